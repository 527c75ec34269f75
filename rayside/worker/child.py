"""Debugging of child processes (forks, Python programs), the child's side: a request to the parent.

The request is cheap if the parent has no debugger, or a debugger that does not accept children; children.py
is the parent's side. A fork inherits the parent's breakpoints, but none of the threads that report a stop: it
would hang at a breakpoint. So it connects to the parent's debugger anew if that accepts it, and else runs
without a debugger.
"""

from __future__ import annotations

import builtins
import contextlib
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any

from . import tracing
from .children import PATIENCE, Children, descends, peer
from .debug_config import Config
from .listener import Listener

# Timeout in seconds for the debugger, which has been notified, and attaches within some tenths of a second.
WAITING = 15.0
# Timeout in seconds for the connection to the parent.
_ASKING = 3.0
# Limit in bytes of an invitation: Ray's token, and some names.
_LONGEST = 65_536
# Helper processes of Python's multiprocessing or of Ray, without a user's program.
_SERVERS = (
    "from multiprocessing.resource_tracker ",
    "from multiprocessing.forkserver ",
    "/site-packages/ray/",
    "-m ray.",
)
_WORDS = 8  # at the start of a command, including the name of its program


@contextlib.contextmanager
def invitation() -> Iterator[tuple[dict[str, Any], socket.socket]]:
    """Asks for a debugger of the nearest parent whose debugger accepts child processes.

    Yields the arguments of `attach.listen`, empty without such a parent, and the socket to the parent.
    """
    for name in Config.read().parents.split(":"):
        with socket.socket(socket.AF_UNIX) as connection:
            if answer := _invitation(connection, name):
                yield answer, connection
                return
    yield {}, connection


def is_over(parent: socket.socket) -> Callable[[], bool]:
    """Returns a function that returns whether the wait for the parent's debugger is over."""
    parent.settimeout(0)

    def over() -> bool:
        try:
            return not parent.recv(1)
        except BlockingIOError:
            return False
        except OSError:
            return True

    return over


def is_program(words: list[str]) -> bool:
    """Returns whether a Python process with these arguments (`sys.orig_argv`) runs a user's program."""
    command = " ".join(words[:_WORDS])
    return not any(server in command for server in _SERVERS)


def _invitation(connection: socket.socket, name: str) -> dict[str, Any] | None:
    """Asks the parent at that socket; returns None unless it has a debugger that accepts children."""
    connection.settimeout(PATIENCE)
    try:
        _connect(connection, name)
        parent, user = peer(connection)
        if user != os.geteuid() or not descends(os.getpid(), parent):
            return None  # Another process has bound the socket name of an ended parent.
        with connection.makefile("rb") as answers:
            text = answers.readline(_LONGEST)
    except OSError:
        return None
    return dict(json.loads(text)) if text.endswith(b"\n") else None


def _connect(connection: socket.socket, name: str) -> None:
    """Connects; raises OSError. Retries while many children connect at once, or the parent is stopped."""
    deadline = time.time() + _ASKING
    while True:
        try:
            return connection.connect(f"\0{name}")
        except BlockingIOError:
            if time.time() >= deadline:
                raise
            time.sleep(0.05)


# --- forks -----------------------------------------------------------------------------------

_TEXT = b"rayside: this process forks others, in which breakpoints do not stop: they run on\n"
_reported = False  # in this process
# `attach.join_parents_debugger`
Join = Callable[[Callable[[], None], Callable[[], None]], None]
_parent: list[tuple[Listener, Children, Join]] = tracing.OfThisProcess()


def follow_forks(listener: Listener, children: Children, join: Join) -> None:
    """Debugs every fork of this process from now on; other programs that it starts are unaffected."""
    is_first = not _parent
    _parent[:] = [(listener, children, join)]  # in a fork, its own, for forks of the fork
    if is_first:
        os.register_at_fork(after_in_parent=_tell, after_in_child=_begin)


def _tell() -> None:
    """Reports once, to the user of an attached debugger, that breakpoints do not stop in forks."""
    global _reported
    if not _reported and tracing.is_attached() and not _parent[0][1].are_taken:
        _reported = True
        os.write(2, _TEXT)  # Another thread may hold sys.stderr's lock.


def _begin() -> None:
    """Runs in the fork, before the user's code, without locks that the parent's threads may hold."""
    listener, children, join = _parent[0]
    is_wanted = children.are_taken and not _becomes_another_program()
    listener.close()
    tracing.end()
    sys.breakpointhook = sys.__breakpointhook__ = builtins.breakpoint = _pass_over
    if not is_wanted:
        return
    with _signals_kept() as kept:
        join(_forget_the_parents_debugger, _stop_at_breakpoints)
    if kept:
        _send_again(kept)


def _stop_at_breakpoints() -> None:
    import debugpy

    sys.breakpointhook = sys.__breakpointhook__ = builtins.breakpoint = debugpy.breakpoint


@contextlib.contextmanager
def _signals_kept() -> Iterator[list[int]]:
    """Defers signals: exceptions of the program's handlers would be lost here, in pydevd and `_begin`."""
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
    """Sends this process the signals again once this (main) thread runs the program."""
    here = threading.get_ident()

    def send() -> None:
        while any(frame.f_code is _begin.__code__ for frame in _frames_of(here)):
            time.sleep(0.001)
        for number in signals:
            os.kill(os.getpid(), number)

    tracing.in_background(send)


def _frames_of(thread: int) -> Iterator[FrameType]:
    frame = sys._current_frames().get(thread)
    while frame is not None:
        yield frame
        frame = frame.f_back


def _becomes_another_program() -> bool:
    """Returns whether subprocess has forked just to start a program (with a `preexec_fn`)."""
    return any(
        frame.f_code.co_name == "_execute_child" and frame.f_globals.get("__name__") == "subprocess"
        for frame in _frames_of(threading.get_ident())
    )


def _pass_over(*args: Any, **kwargs: Any) -> None:
    """Replaces Ray's `breakpoint()`, which would wait for a debugger forever."""


def _forget_the_parents_debugger() -> None:
    """Makes pydevd start anew in this fork, as `_on_forked_process` in its pydev_monkey.py does (1.8.22)."""
    import pydevd
    from _pydev_bundle.pydev_monkey import _on_forked_process
    from _pydevd_bundle.pydevd_constants import PYDEVD_USE_SYS_MONITORING
    from _pydevd_bundle.pydevd_custom_frames import custom_frames_container_init
    from _pydevd_frame_eval.pydevd_frame_eval_main import clear_thread_local_info
    from debugpy.server import api

    _on_forked_process(setup_tracing=False)
    custom_frames_container_init()
    if clear_thread_local_info is not None:
        clear_thread_local_info()
    if PYDEVD_USE_SYS_MONITORING:
        from _pydevd_sys_monitoring import pydevd_sys_monitoring as monitoring

        monitoring.reset_thread_local_info()
        # The cached information on code depends on the parent's breakpoints.
        sys.modules[monitoring.stop_monitoring.__module__]._code_to_func_code_info_cache.clear()
    pydevd.connected = False
    api.listen.called = False
