"""Says what becomes of the forks of a debugged process (multiprocessing, a data loader).

A fork has the parent's breakpoints, but none of the threads that would tell anybody of a stop: it would
stand still for good, unseen. So it begins anew with the parent's debugger, where that wants it, and else it
runs on without one.
"""

from __future__ import annotations

import builtins
import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any

from . import child, tracing
from .children import Children
from .listener import Listener, in_background

_TEXT = b"rayside: this process forks others, in which breakpoints do not stop: they run on\n"
_reported = False  # in this process
# Opens a fork to the parent's debugger, where that wants it: `attach.join_parents_debugger`.
Join = Callable[[Callable[[], None], Callable[[], None]], None]
_parent: list[tuple[Listener, Children, Join]] = tracing._OfThisProcess()


def follow(listener: Listener, children: Children, join: Join) -> None:
    """Does so with every fork of this process from now on; other programs that it starts are not touched."""
    is_first = not _parent
    _parent[:] = [(listener, children, join)]  # a fork's own, where it forks itself
    if is_first:
        os.register_at_fork(after_in_parent=_tell, after_in_child=_begin)


def _tell() -> None:
    """Says once that they run on, and only where a debugger is attached, whose user may wonder."""
    global _reported
    if not _reported and tracing.is_attached() and not _parent[0][1].are_taken:
        _reported = True
        os.write(2, _TEXT)  # Another thread may hold the lock of sys.stderr.


def _begin() -> None:
    """Runs in the fork, before any code of the user's; it takes no lock that a lost thread may hold."""
    listener, children, join = _parent[0]
    is_wanted = children.are_taken and not _becomes_another_program()
    listener.close()
    tracing.end()
    sys.breakpointhook = sys.__breakpointhook__ = builtins.breakpoint = _pass_over
    if not is_wanted:
        return
    with _signals_kept() as kept:
        join(child.forget_the_parents_debugger, _stop_at_breakpoints)
    if kept:
        _send_again(kept)


def _stop_at_breakpoints() -> None:
    import debugpy

    sys.breakpointhook = sys.__breakpointhook__ = builtins.breakpoint = debugpy.breakpoint


@contextlib.contextmanager
def _signals_kept() -> Iterator[list[int]]:
    """Keeps signals for the program: what its handlers raise here is lost, in pydevd and after `_begin`."""
    kept: list[int] = []
    handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}
    handlers = {number: handler for number, handler in handlers.items() if callable(handler)}
    for number in handlers:
        signal.signal(number, lambda number, _: kept.append(number))
    try:
        yield kept
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _send_again(signals: Sequence[int]) -> None:
    """Sends this process signals once this thread, its main one, runs the program."""
    here = threading.get_ident()

    def send() -> None:
        while any(frame.f_code is _begin.__code__ for frame in _frames_of(here)):
            time.sleep(0.001)
        for number in signals:
            os.kill(os.getpid(), number)

    in_background(send)


def _frames_of(thread: int) -> Iterator[FrameType]:
    frame = sys._current_frames().get(thread)
    while frame is not None:
        yield frame
        frame = frame.f_back


def _becomes_another_program() -> bool:
    """Returns whether subprocess has forked only to start a program, after its `preexec_fn`."""
    return any(
        frame.f_code.co_name == "_execute_child" and frame.f_globals.get("__name__") == "subprocess"
        for frame in _frames_of(threading.get_ident())
    )


def _pass_over(*args: Any, **kwargs: Any) -> None:
    """Replaces Ray's `breakpoint()`, which would wait for a debugger without end."""
