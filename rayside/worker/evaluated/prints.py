"""Output of a debuggee: printed lines, reported to the relay with their source location and task.

Output first goes to its original stream, whose exceptions are raised. debugpy's own `redirectOutput` reports
no location, sends each piece of a line separately, buffers unsent output without a limit, holds a lock while
it writes, and does not restore the streams. So the streams' own `write` is replaced while an editor listens:
this covers all references to a stream, and printing threads never wait, because another thread sends. Writes
to the file descriptor, by programs and by C libraries, are not reported.

A print is reported whole: with all of its lines, after the last one has ended. A line without an end is
reported a second later, or before another task of the thread prints.
"""

from __future__ import annotations

import _thread
import os
import sys
import threading
import time
from collections import deque
from contextlib import suppress
from types import CodeType, FrameType
from typing import Any

from .. import tracing
from . import scope, telling

EVENT = "raysidePrinted"
# Limits: unsent prints; characters and lines of each that are sent.
MOST_UNSENT = 500
LONGEST_PRINT, MOST_LINES = 16_000, 500
# Limit: cached file names, because some programs make new ones all the time.
MOST_FILES = 10_000
# Seconds until the number of dropped lines is reported, and until a line without an end is reported.
TELLING = 1.0
# Seconds within which the pieces of one print arrive.
AT_ONCE = 1e-4
# Limit: frames that are searched for user code; `logging` has five.
DEEPEST = 20
# Files that print already reported output again: pydevd while the debug console evaluates, and Ray, whose
# driver prints the output of its tasks.
_ECHOES = ("/_pydevd_bundle/pydevd_io.py", "/ray/_private/worker.py")
# With Ray's progress bars, a function of this file replaces `print`.
_PRINT = "/ray/experimental/tqdm_ray.py"
# Prefixes of Ray's own marker lines, which assign the following lines to a task (ray_constants.py).
_MARKS = (":job_id:", ":actor_name:", ":task_name:")

_Line = dict[str, Any]


class Print:
    """Output of a thread since its last end of a line."""

    __slots__ = (
        *("at", "beyond", "category", "code", "ends", "is_ended"),
        *("line", "place", "task", "task_id", "text"),
    )

    def __init__(self, category: str, task: str | None, task_id: Any) -> None:
        self.category, self.task, self.task_id = category, task, task_id
        self.text = ""
        # While prints are dropped, this and the task may be None: they may not be needed.
        self.place: tuple[str, int] | None = None
        self.beyond = 0  # number of characters beyond the limit, which are dropped
        self.ends = 0  # number of ends of lines in them
        self.is_ended = False  # whether the last line has its end
        # Time of the last piece, by `time.monotonic`, and its location.
        self.at, self.line = 0.0, 0
        self.code: CodeType | None = None

    def add(self, piece: str) -> None:
        if piece.startswith("\r") and piece.rstrip("\r\n"):  # a progress bar is drawn anew
            self.text = self.text[: self.text.rfind("\n") + 1]
        room = LONGEST_PRINT - len(self.text)
        self.text += piece[:room]
        self.beyond += max(0, len(piece) - room)
        self.ends += piece.count("\n", room)

    def shown(self, most_lines: int) -> tuple[str, int]:
        """Returns the lines to report, without the last end of a line, and the number of dropped lines.

        A line that is too long is cut, with the number of dropped characters.
        """
        text = self.text.removesuffix("\n")
        if not self.beyond and text.count("\n") < most_lines:
            return text, 0
        lines = self.text.count("\n") + self.ends + (not self.is_ended)
        if self.beyond:
            whole, _, begun = self.text.rpartition("\n")
            text = whole or f"{begun}... ({self.beyond:,} more characters)"
        text = "\n".join(text.split("\n", most_lines)[:most_lines])
        return text, max(0, lines - text.count("\n") - 1)


class _Tee:
    """Replaces one stream's `write`."""

    def __init__(self, stream: Any, category: str, prints: _Prints) -> None:
        self.prints: _Prints | None = prints
        # Each unfinished `Print`, by thread. All operations on it are atomic, without a lock.
        self.begun: dict[int, Print] = {}
        self._stream, self._category = stream, category
        self._original = stream.write
        self._of_thread = threading.local()
        self._own = vars(stream).get("write")  # a replacement that the program has set on this stream, if any
        stream.write = self.write

    def write(self, text: str, *more: Any, **named: Any) -> Any:
        written = self._original(text, *more, **named)
        of_thread = self._of_thread
        # The calls for a line may print, too, such as a warning from Ray.
        if text and self.prints is not None and not getattr(of_thread, "hears", False):
            of_thread.hears = True
            try:
                self._hear(self.prints, text, sys._getframe(1))
            except Exception:
                self.prints = None  # an error here must not affect the program
            finally:
                of_thread.hears = False
        return written

    def _hear(self, prints: _Prints, text: str, frame: FrameType) -> None:
        thread, now, code, line = _thread.get_ident(), time.monotonic(), frame.f_code, frame.f_lineno
        begun = self.begun.pop(thread, None)
        is_there = begun is not None and begun.code is code and begun.line == line
        # If it is not the next piece of one print, another task may be running.
        may_differ = begun is not None and not (is_there and now - begun.at < AT_ONCE)
        if may_differ and begun and (text.startswith(_MARKS) or scope.task_id() != begun.task_id):
            prints.take(begun)
            begun, is_there = None, False
        if begun is None and (begun := prints.begun(self._category, frame)) is None:
            return
        if not is_there:
            begun.code, begun.line = code, line
            begun.place = None if prints.floods else prints.place(frame)
        if text[0] == "\r" or len(begun.text) + len(text) > LONGEST_PRINT:
            begun.add(text)
        else:  # the usual case
            begun.text += text
        if text[-1] == "\n":
            begun.is_ended = True
            prints.take(begun, frame)
            return
        begun.is_ended, begun.at = False, now
        self.begun[thread] = begun
        if not prints.looks_again:
            prints.look_again()

    def end(self) -> None:
        self.prints = None
        if vars(self._stream).get("write") == self.write:
            if self._own is None:
                del self._stream.write
            else:
                self._stream.write = self._own


class _Prints:
    """Reports this process's output, from `begin` until `give_back`."""

    def __init__(self) -> None:
        self._writer = tracing.debugger().writer
        self._process = os.getpid()
        self._context = scope.context()
        # Paths of the user's files, by `co_filename`; None for other files.
        self._users: dict[str, str | None] = {}
        self._lines: deque[_Line] = deque()
        self._left_out: deque[int] = deque()
        self._reported_at = 0.0
        self._wake = _thread.allocate_lock()
        self.looks_again = False  # whether the sending thread polls again by itself
        self._on = True
        self._tees: list[_Tee] = []
        self.floods = False  # whether the last print was dropped
        for name in ("stdout", "stderr"):
            with suppress(Exception):  # no stream, or one that can't be patched
                self._tees.append(_Tee(_own(getattr(sys, name)), name, self))
        tracing.in_background(self._send_all)

    # --- in the threads that print: nothing here may wait, nor take a lock, because the output may come from
    # a destructor, which may interrupt any code -------------------------------------------------------

    def begun(self, category: str, frame: FrameType) -> Print | None:
        """Returns a `Print` for output that this thread begins; None if it is not reported."""
        if frame.f_code.co_filename.endswith(_PRINT) and frame.f_back is not None:
            frame = frame.f_back
        if frame.f_code.co_filename.endswith(_ECHOES):
            return None
        if os.getpid() != self._process:  # a fork, which lacks the sending thread
            self.give_back()
            return None
        task = None if self.floods else self._task()
        return Print(category, task, scope.task_id())

    def _task(self) -> str:
        return str(scope.task(self._context)) if self._context is not None else ""

    def take(self, printed: Print, frame: FrameType | None = None) -> None:
        """Queues a thread's output for the sending thread.

        `frame` is the frame that has printed; None if another thread, or another task, has.
        """
        if printed.text.startswith(_MARKS):
            return
        lines, left_out = printed.shown(MOST_LINES)
        number = lines.count("\n") + 1
        if len(self._lines) < MOST_UNSENT and telling.rate.passes(number):
            self.floods, is_first = False, True
            task, place = printed.task, printed.place
            if frame is not None:
                task = self._task() if task is None else task
                place = place or self.place(frame)
            path, line = place or ("", 0)
            told = {"path": path, "line": line, "task": task or ""}
            self._lines.append({"category": printed.category, "output": lines, **told})
        else:
            self.floods = True
            left_out += number
            is_first = not self._left_out
        if left_out:
            self._left_out.append(left_out)
        if is_first:
            self._rouse()

    def look_again(self) -> None:
        """Makes the sending thread poll for lines without an end."""
        self.looks_again = True
        self._rouse()

    def place(self, frame: FrameType) -> tuple[str, int]:
        """Returns the nearest location in user code; without one, the location of the print."""
        if frame.f_code.co_filename.endswith(_PRINT) and frame.f_back is not None:
            frame = frame.f_back
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
            is_users = not file.startswith("<") and tracing.debugger().in_project_roots_filename_uncached(
                file
            )
            self._users[file] = os.path.abspath(file) if is_users else None  # noqa: PTH100 (once a file)
        return self._users[file]

    def _rouse(self) -> None:
        if self._wake.locked():
            with suppress(RuntimeError):  # Another thread was faster.
                self._wake.release()

    # --- in the sending thread ---------------------------------------------------------------------------

    def _send_all(self) -> None:
        try:
            was_woken = True
            while self._on:
                # A thread that prints from now on finds it false, and wakes this one.
                self.looks_again = False
                # While much is printed it polls anyway, and need not be woken for a begun line.
                is_unfinished = self._left_out or any(tee.begun for tee in self._tees)
                self.looks_again = waits = was_woken or bool(is_unfinished)
                was_woken = self._wake.acquire(timeout=TELLING if waits else -1)
                self.flush()
        finally:
            self.give_back()

    def flush(self, *, at_once: bool = False) -> None:
        """Sends queued output; with `at_once` also unfinished lines, and the number of dropped ones."""
        for tee in self._tees:
            for thread, begun in list(tee.begun.items()):
                is_left = at_once or time.monotonic() - begun.at >= TELLING
                # Its thread may have continued meanwhile: the thread that pops it reports it.
                if is_left and (taken := tee.begun.pop(thread, None)) is not None:
                    self.take(taken)
        while self._lines and self._is_heard():
            with suppress(IndexError):  # Another thread may empty it at the same time.
                line = self._lines.popleft()
                if telling.unsent() > telling.MOST_UNSENT:
                    self._left_out.append(line["output"].count("\n") + 1)
                else:
                    telling.send(EVENT, line)
        now = time.monotonic()
        if not (at_once or now - self._reported_at >= TELLING) or not self._is_heard():
            return
        if self._left_out:
            self._reported_at, total = now, 0
            with suppress(IndexError):
                while self._left_out:
                    total += self._left_out.popleft()
            telling.send(EVENT, {"category": "stdout", "leftOut": total})

    def _is_heard(self) -> bool:
        """Returns whether the relay that requested lines is connected; if not, restores the streams."""
        debugger, writer = tracing.debugger(), self._writer
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
        _begun.append(_Prints())
        telling.leaving.append(_flush)
        telling.tell_at_exit()


def _flush() -> None:
    for prints in _begun:
        prints.flush(at_once=True)


def give_back() -> None:
    """Sends the remaining output, and restores the streams."""
    while _begun:
        prints = _begun.pop()
        prints.flush(at_once=True)
        prints.give_back()


def _own(stream: Any) -> Any:
    """Returns the stream itself, without pydevd's replacement while the debug console evaluates, and without
    a patch that an earlier, crashed relay has left."""
    while type(stream).__name__ == "IORedirector":
        stream = stream._redirect_to[0]
    tee = getattr(vars(stream).get("write"), "__self__", None)
    if type(tee).__name__ == _Tee.__name__:
        (tee.prints.give_back if tee.prints is not None else tee.end)()  # type: ignore[union-attr]
    return stream
