"""Threads of a debuggee: stacks of threads and of asyncio tasks, and the interruption of evaluations in them.

Stacks are read without a stop. Only code, lines and names are read, and no variables, because access to a
frame's locals keeps their values alive until it ends. This relies on pydevd to recognize user code, and its
own threads.

pydevd evaluates in the stopped thread, so an endless evaluation would block that thread forever. A thread is
interrupted only during pydevd's own evaluation: anywhere else the exception would be raised in the user's
code. It is a KeyboardInterrupt, which pydevd handles there.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import chain, dropwhile, takewhile
from pathlib import Path
from types import FrameType
from typing import Any

from ..tracing import is_pydevds
from ..workarounds import is_ours

# Limits: threads and asyncio tasks; frames of each, half from each end; frames of all.
MOST, MOST_FRAMES, MOST_IN_ALL = 500, 100, 8_000
# Limit: characters of a name.
LONGEST = 500
_SUSPENDED = 2  # pydevd_constants.py

# A frame in the answer: file, line, function, whether it is user code.
_Row = list[Any]
# A thread, or an asyncio task: its name, whether it is stopped, a function for its frames, outermost first.
_Thread = tuple[str, bool, Callable[[], list[FrameType]]]


def stacks() -> str:
    """Returns the stacks of threads and asyncio tasks, in JSON.

    Returns:
        `{"threads": [{"name", "stopped": bool, "frames": [[file, line, function, is user code]]}],
        "more": the number of omitted threads}`, the outermost frame first.
    """
    reader = _Reader()
    threads: list[dict[str, Any]] = []
    frames = more = 0
    for name, stopped, stack in chain(reader.threads(), reader.asyncio_tasks()):
        if len(threads) < MOST and frames < MOST_IN_ALL:
            rows = reader.rows(stack())
            frames += len(rows)
            threads.append({"name": name[:LONGEST], "stopped": stopped, "frames": rows})
        else:
            more += 1
    return json.dumps({"threads": threads, "more": more})


class _Reader:
    def __init__(self) -> None:
        pydevd = sys.modules["pydevd"]
        self._debugger = pydevd.get_global_debugger()
        # A stopped thread has frames of pydevd at its top.
        self._pydevds = f"{Path(str(pydevd.__file__)).parent}{os.sep}"
        self._is_users: dict[str, bool] = {}

    def threads(self) -> Iterator[_Thread]:
        """Yields the threads that are not pydevd's own, nor Rayside's."""
        known = {thread.ident: thread for thread in threading.enumerate()}
        for ident, frame in sys._current_frames().items():
            thread = known.get(ident)
            if is_pydevds(thread):
                continue
            frames = [*_outwards(frame)][::-1]
            if self._is_ours(frames):
                continue
            state = getattr(getattr(thread, "additional_info", None), "pydev_state", None)
            name = str(thread.name if thread else f"thread {ident}")
            yield name, state == _SUSPENDED, frames.copy

    def asyncio_tasks(self) -> Iterator[_Thread]:
        """Yields waiting asyncio tasks; a running one is in its thread's stack."""
        module = sys.modules.get("asyncio.tasks")
        # Tasks of all loops, in all threads; private, and removed in Python 3.14.
        every = getattr(module, "_scheduled_tasks", None) or getattr(module, "_all_tasks", None) or ()
        tasks: list[Any] = []
        with suppress(RuntimeError):  # Another thread adds one.
            tasks = list(every)
        for task in tasks:
            with suppress(Exception):  # not one of asyncio's own tasks, or it ends meanwhile
                coroutine = task.get_coro()
                if not task.done() and next(_inwards(coroutine), None) is not None:
                    yield f"asyncio {task.get_name()}", False, partial(_awaited, coroutine)

    def _is_ours(self, frames: list[FrameType]) -> bool:
        """Returns whether pydevd or Rayside has started a thread for its own work.

        Not all of these are registered with the module `threading`.
        """
        # pydevd also starts the user's threads, through one of its functions.
        began = dropwhile(self._is_pydevds, frames)
        first = next(dropwhile(lambda frame: _file(frame) == threading.__file__, began), None)
        if first is None:
            return all(map(self._is_pydevds, frames))
        return self._is_pydevds(first) or _is_raysides(first)

    def _is_pydevds(self, frame: FrameType) -> bool:
        return _file(frame).startswith(self._pydevds)

    def rows(self, frames: list[FrameType]) -> list[_Row]:
        """Returns the rows of frames, the outermost first.

        Without Rayside's frames, and pydevd's frames for the start of a thread and for a stop.
        """
        users = takewhile(lambda frame: not self._is_pydevds(frame), dropwhile(self._is_pydevds, frames))
        rows = [self._row(frame) for frame in users if not _is_raysides(frame)]
        if len(rows) <= MOST_FRAMES:
            return rows
        half, left_out = MOST_FRAMES // 2, len(rows) - MOST_FRAMES
        return [*rows[:half], ["", 0, f"({left_out} more frames)", False], *rows[-half:]]

    def _row(self, frame: FrameType) -> _Row:
        code = frame.f_code
        file, function = code.co_filename[:LONGEST], code.co_name[:LONGEST]
        return [file, frame.f_lineno or 0, function, self._users(code.co_filename)]

    def _users(self, file: str) -> bool:
        if file not in self._is_users:
            with suppress(Exception):
                self._is_users[file] = bool(self._debugger.in_project_roots_filename_uncached(file))
        return self._is_users.get(file, True)


def _file(frame: FrameType) -> str:
    return frame.f_code.co_filename


def _is_raysides(frame: FrameType) -> bool:
    return is_ours(_file(frame))


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _awaited(coroutine: Any) -> list[FrameType]:
    return [*_inwards(coroutine)]


def _inwards(awaitable: Any) -> Iterator[FrameType]:
    """Yields the frames of a waiting coroutine, and of its awaitables; none for a running one."""
    for _ in range(10 * MOST_FRAMES):
        for kind in ("cr", "gi", "ag"):
            if hasattr(awaitable, f"{kind}_frame"):
                break
        else:
            return
        frame = getattr(awaitable, f"{kind}_frame")
        if frame is None or getattr(awaitable, f"{kind}_running"):
            return
        yield frame
        awaitable = getattr(awaitable, "gi_yieldfrom" if kind == "gi" else f"{kind}_await")


# pydevd's function for `evaluate` requests (debugpy 1.8.22, pydevd_vars.py). It is private: if it has another
# name, nothing is interrupted.
_EVALUATION = ("pydevd_vars.py", "evaluate_expression")
_TO_OTHERS = 0.001  # seconds for which the GIL is released, for other threads that wait for it


def interrupt() -> int:
    """Interrupts evaluations; returns the number of interrupted threads."""
    # Between the reading of the frames and the exception no other thread may run. A thread that has just
    # taken the GIL keeps it for a whole switch interval, 5 ms: other threads wait so long before they request
    # it (`take_gil` in CPython's ceval_gil.h). A longer interval would not affect threads that already wait,
    # and others that start to wait might wait that long.
    time.sleep(_TO_OTHERS)
    own = threading.get_ident()
    evaluating = [
        ident for ident, frame in sys._current_frames().items() if ident != own and _evaluates(frame)
    ]
    for ident in evaluating:
        main = ident == threading.main_thread().ident
        if main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            # The signal also ends a sleep, or a wait for input.
            signal.pthread_kill(ident, signal.SIGINT)
        else:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(ident), ctypes.py_object(KeyboardInterrupt)
            )
    return len(evaluating)


def _evaluates(frame: FrameType | None) -> bool:
    """Returns whether the frame is within an evaluation."""
    while frame is not None:
        code = frame.f_code
        if code.co_name == _EVALUATION[1] and code.co_filename.endswith(_EVALUATION[0]):
            return True
        frame = frame.f_back
    return False
