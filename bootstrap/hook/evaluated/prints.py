"""Tells the relay each line that a debuggee prints, with the place and the task that have printed it.

What is printed goes where it went before, first, and with what that raises. debugpy's own `redirectOutput`
tells no place, sends each piece of a line by itself, keeps in memory whatever is not sent yet, holds a lock
while it writes, and leaves the streams exchanged behind. So `write` of the streams themselves is ours for as
long as an editor listens: all who hold a stream are heard, and nobody who prints waits, for another thread
sends. Not heard is what writes to the file descriptor: programs, and libraries in C.

It needs the debuggee to have reached.py.
"""

from __future__ import annotations

import _thread
import os
import sys
import threading
import time
from collections import deque
from contextlib import suppress
from types import FrameType
from typing import Any

EVENT = "raysidePrinted"
# The most characters that are sent of what is written at once, and the most lines that may wait for that.
LONGEST, MOST_UNSENT = 16_000, 500
# The most names of files that are kept: some programs make new ones all the time.
MOST_FILES = 10_000
# Seconds from a line that was left out until that is told.
TELLING = 1.0
# The most frames that are searched for one of the user's: `logging` has five.
DEEPEST = 20
# These print what was told already: pydevd while the debug console evaluates, and Ray, which has the driver
# print what its tasks print.
_ECHOES = ("/_pydevd_bundle/pydevd_io.py", "/ray/_private/worker.py")
# Where Ray's progress bars are used, a function of this file replaces `print`.
_PRINT = "/ray/experimental/tqdm_ray.py"
# Such lines tell Ray itself of whose task the following ones are (ray_constants.py).
_MARKS = (":job_id:", ":actor_name:", ":task_name:")

_Line = dict[str, Any]


class _Tee:
    """Replaces one stream's `write`."""

    def __init__(self, stream: Any, category: str, prints: _Prints) -> None:
        self.prints: _Prints | None = prints
        self._stream, self._category = stream, category
        self._original = stream.write
        self._of_thread = threading.local()  # the line that is not complete
        stream.write = self.write

    def write(self, text: str) -> Any:
        written = self._original(text)
        of_thread = self._of_thread
        # What is called for a line may print itself, as a warning of Ray's.
        if self.prints is not None and not getattr(of_thread, "hears", False):
            of_thread.hears = True
            try:
                self._hear(text, sys._getframe(1))
            except Exception:
                self.prints = None  # whoever prints is not to blame
            finally:
                of_thread.hears = False
        return written

    def _hear(self, text: str, frame: FrameType) -> None:
        of_thread = self._of_thread
        begun = getattr(of_thread, "begun", "")
        if "\n" not in text:
            of_thread.begun = (begun + text)[:LONGEST]
            return
        lines, _, rest = (begun + text).rpartition("\n")
        of_thread.begun = rest[:LONGEST]
        if self.prints is not None and not lines.startswith(_MARKS):
            self.prints.hear(self._category, lines, frame)

    def end(self) -> None:
        self.prints = None
        if vars(self._stream).get("write") == self.write:
            del self._stream.write


class _Prints:
    """Reports what this process prints, from `begin` until `give_back`."""

    def __init__(self, reached: Any) -> None:
        self._reached = reached
        self._writer = reached.debugger().writer
        self._process = os.getpid()
        self._context = reached.context()
        self._users: dict[
            str, str | None
        ] = {}  # paths of the user's files by the name that code has for them
        self._lines: deque[_Line] = deque()
        self._left_out: deque[int] = deque()
        self._reported_at = 0.0
        self._wake = _thread.allocate_lock()
        self._on = True
        self._tees: list[_Tee] = []
        for name in ("stdout", "stderr"):
            with suppress(Exception):  # a stream that can't be ours, or none
                self._tees.append(_Tee(_own(getattr(sys, name)), name, self))
        self._thread = threading.Thread(target=self._send_all, name="rayside-prints", daemon=True)
        # pydevd's own marks of a thread that is not debugged.
        vars(self._thread).update(is_pydev_daemon_thread=True, pydev_do_not_trace=True)
        self._thread.start()

    # --- in the threads that print: nothing here may wait, nor take a lock, for what prints may be a
    # destructor that came in between anything ----------------------------------------------------------

    def hear(self, category: str, lines: str, frame: FrameType) -> None:
        if frame.f_code.co_filename.endswith(_PRINT) and frame.f_back is not None:
            frame = frame.f_back
        if frame.f_code.co_filename.endswith(_ECHOES):
            return
        if os.getpid() != self._process:  # a forked child: no thread of ours is there
            self.give_back()
            return
        if len(lines) > LONGEST:
            lines = f"{lines[:LONGEST]}..."
        number = lines.count("\n") + 1
        if len(self._lines) >= MOST_UNSENT or not self._reached.rate.passes(number):
            self._left_out.append(number)
            if len(self._left_out) == 1:
                self._rouse()
            return
        path, line = self._place(frame)
        self._lines.append(
            {
                "category": category,
                "output": lines,
                "path": path,
                "line": line,
                "task": self._reached.task(self._context) if self._context is not None else "",
            }
        )
        self._rouse()

    def _place(self, frame: FrameType) -> tuple[str, int]:
        """Returns the user's place that is nearest; where there is none, the place that has printed."""
        at: FrameType | None = frame
        for _ in range(DEEPEST):
            if at is None:
                break
            path = self._users_path(at.f_code.co_filename)
            if path is not None:
                return path, at.f_lineno or 0
            at = at.f_back
        return frame.f_code.co_filename, frame.f_lineno or 0

    def _users_path(self, file: str) -> str | None:
        if file not in self._users:
            if len(self._users) >= MOST_FILES:
                self._users.clear()
            is_users = not file.startswith(
                "<"
            ) and self._reached.debugger().in_project_roots_filename_uncached(file)
            self._users[file] = os.path.abspath(file) if is_users else None  # noqa: PTH100 (once a file)
        return self._users[file]

    def _rouse(self) -> None:
        if self._wake.locked():
            with suppress(RuntimeError):  # another thread was faster
                self._wake.release()

    # --- in the thread that sends ------------------------------------------------------------------------

    def _send_all(self) -> None:
        try:
            while self._on:
                self._wake.acquire(timeout=TELLING if self._left_out else -1)
                self.flush()
        finally:
            self.give_back()

    def flush(self, *, at_once: bool = False) -> None:
        """Sends what waits; with `at_once` also what is told once in a while."""
        while self._lines and self._is_heard():
            with suppress(IndexError):  # another thread does it, too
                line = self._lines.popleft()
                if self._reached.unsent() > MOST_UNSENT:
                    self._left_out.append(line["output"].count("\n") + 1)
                else:
                    self._reached.send(EVENT, line)
        now = time.monotonic()
        if self._left_out and (at_once or now - self._reported_at >= TELLING) and self._is_heard():
            self._reported_at, total = now, 0
            with suppress(IndexError):
                while self._left_out:
                    total += self._left_out.popleft()
            self._reached.send(EVENT, {"category": "stdout", "leftOut": total})

    def _is_heard(self) -> bool:
        """Returns whether the relay that asked for lines is connected; if not, gives the streams back."""
        debugger, writer = self._reached.debugger(), self._writer
        heard = debugger is not None and debugger.writer is writer and writer.is_alive()
        heard = heard and not writer._kill_received
        if self._on and not heard:
            self.give_back()
        return bool(heard)

    def give_back(self) -> None:
        self._on = False
        for tee in self._tees:
            tee.end()
        self._rouse()


_begun: list[_Prints] = []


def begin() -> None:
    """Reports lines from now on."""
    if not _begun:
        reached = sys.modules["_rayside_reached"]
        _begun.append(_Prints(reached))
        reached.leaving.append(_flush)
        reached.tell_at_exit()


def _flush() -> None:
    for prints in _begun:
        prints.flush(at_once=True)


def give_back() -> None:
    """Sends what was printed, and leaves the streams as they were."""
    while _begun:
        prints = _begun.pop()
        prints.flush(at_once=True)
        prints.give_back()


def _own(stream: Any) -> Any:
    """Returns the stream itself, behind what pydevd puts in its place while the debug console evaluates, and
    without what a relay that broke down has left."""
    while type(stream).__name__ == "IORedirector":
        stream = stream._redirect_to[0]
    tee = getattr(vars(stream).get("write"), "__self__", None)
    if type(tee).__name__ == _Tee.__name__:
        (tee.prints.give_back if tee.prints is not None else tee.end)()  # type: ignore[union-attr]
    return stream
