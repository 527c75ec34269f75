"""Decides which lines of prints and of logpoints a debuggee tells, and tells what logpoints say.

A rate bounds them. Lines that are not told are counted, and their number is told.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

from . import reached

# The most characters of a logpoint's message, and the most characters and lines of one print, that are sent.
LONGEST, LONGEST_PRINT, MOST_LINES = 3_900, 16_000, 500
# The most messages that pydevd may have to send before more are left out: it keeps all of them in memory,
# and a loop is faster than any connection.
MOST_UNSENT = 500
# Lines a second that are sent for long, and at once: as many as the relay passes on (relay/reports.py).
RATE, AT_ONCE = 200.0, 2_000.0
# Seconds from a line that is not told until the number of such lines is.
TELLING = 1.0


class Bucket:
    """Lets a number pass: `at_once` at first, `rate` more each second (a token bucket)."""

    def __init__(self, rate: float, at_once: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._at_once, self._clock = rate, at_once, clock
        self._left, self._since = at_once, clock()

    @property
    def left(self) -> float:
        """Returns how many may pass now."""
        now = self._clock()
        self._left = min(self._at_once, self._left + self._rate * (now - self._since))
        self._since = now
        return self._left

    def take(self, amount: float) -> None:
        self._left -= amount

    def passes(self, amount: float) -> bool:
        """Takes the amount where it may pass; returns whether it does."""
        if self.left < amount:
            return False
        self.take(amount)
        return True


class Print:
    """Keeps what a thread has written since its last end of a line."""

    __slots__ = (
        *("at", "beyond", "category", "code", "ends", "is_ended"),
        *("line", "place", "task", "task_id", "text"),
    )

    def __init__(self, category: str, task: str | None, task_id: Any) -> None:
        self.category, self.task, self.task_id = category, task, task_id
        self.text = ""
        # While more is printed than is told, this and the task may be None, for they may not be needed.
        self.place: tuple[str, int] | None = None
        self.beyond = 0  # the number of characters that are not kept
        self.ends = 0  # the number of ends of lines in them
        self.is_ended = False  # whether the last line has its end
        # Of the last piece: the time, by `time.monotonic`, and where it was written.
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
        """Returns the lines that are told, without the last end of a line, and the number of the others.

        Of a line that is too long the beginning is told, with the number of characters that are not.
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


rate = Bucket(RATE, AT_ONCE)
_left_out: list[int] = []  # the breakpoint of each message that was not sent


def log(key: int, point: Any, frame: FrameType) -> None:
    """Tells what the message of a logpoint, whose number is `key`, is in that frame."""
    # Where the relay counts hits, it has to hear of each.
    if not (point.counted or rate.passes(1)) or reached.unsent() > MOST_UNSENT:
        _left_out.append(key)
        if len(_left_out) == 1:
            _soon(tell_left_out)
        return
    try:
        if point.shown is None:
            expression = sys.modules["_pydevd_bundle.pydevd_utils"].convert_dap_log_message_to_expression(
                point.message
            )
            point.shown = reached.compiled(expression, "<logpoint>")
        text = str(eval(point.shown, frame.f_globals, frame.f_locals))
    except Exception as error:
        text = reached.described(error)
    reached.send(reached.EVENT, {"key": key, "what": "message", "text": cut(text), "task": reached.task()})


def cut(text: str, most: int = LONGEST) -> str:
    """Returns at most that many characters, and where there were more, how many."""
    return text if len(text) <= most else f"{text[:most]}... ({len(text) - most:,} more characters)"


def _soon(tell: Callable[[], None]) -> None:
    timer = threading.Timer(TELLING, tell)
    timer.daemon = True
    # pydevd's own mark of a thread that is not debugged.
    timer.is_pydev_daemon_thread = timer.pydev_do_not_trace = True  # type: ignore[attr-defined]
    timer.start()


def tell_left_out() -> None:
    """Tells how many messages were not sent."""
    if not _left_out:
        return
    number = len(_left_out)
    key = _left_out[0]
    del _left_out[:number]
    reached.send(reached.EVENT, {"key": key, "what": "leftOut", "number": number})


# As reached.py, it is imported anew for each connection.
reached.leaving[:0] = [tell_left_out]
