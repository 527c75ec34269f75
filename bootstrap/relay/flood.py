"""Bounds how much output of debuggees reaches editors; what is left out is counted, and told in one line.

A `print` in a hot loop, or a logpoint there, gives thousands of lines a second: more than any debug console
draws, and enough to fill the connection of an editor until it is dropped.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

from bootstrap.hook.evaluated.telling import AT_ONCE, RATE, Bucket

# The most lines a second in the long run, and at once: of one debuggee, and of all together. VS Code's
# debug console keeps the last 10,000 lines, and stays smooth at some hundreds a second.
EACH, EACH_AT_ONCE = RATE, AT_ONCE
ALL, ALL_AT_ONCE = 1_000.0, 5_000.0
# So many characters count as one line.
WIDTH = 200
# Seconds without a line left out after which a burst has ended: debuggees tell theirs once a second.
ENDED = 1.5
# Seconds after which a burst that goes on is told.
LASTING = 10.0
_SUBMISSION = re.compile(r"[\w.-]{1,100}", re.ASCII)

Debuggee = TypeVar("Debuggee", bound=Hashable)


class Flood(Generic[Debuggee]):
    """Decides what of debuggees' output is sent on.

    Args:
        tell: is called once for each burst, and every LASTING seconds of one, with the number of lines left
            out, by debuggee.
        clock: returns seconds (default: `time.monotonic`).
        later: calls something after so many seconds (default: the running event loop's `call_later`).
    """

    def __init__(
        self,
        tell: Callable[[Mapping[Debuggee, int]], None],
        *,
        clock: Callable[[], float] = time.monotonic,
        later: Callable[[float, Callable[[], None]], object] | None = None,
    ) -> None:
        self._tell, self._clock, self._later = tell, clock, later
        self._all = Bucket(ALL, ALL_AT_ONCE, clock)
        self._each: WeakKeyDictionary[Debuggee, Bucket] = WeakKeyDictionary()
        self._left_out: Counter[Debuggee] = Counter()
        self._began_at = self._last_at = 0.0

    def passes(self, debuggee: Debuggee, text: str) -> bool:
        """Returns whether this output of the debuggee is sent on; where it is not, its lines are counted."""
        bucket = self._each.setdefault(debuggee, Bucket(EACH, EACH_AT_ONCE, self._clock))
        lines = text.count("\n")
        amount = max(lines, len(text) / WIDTH, 1)
        if bucket.left >= amount and self._all.passes(amount):
            bucket.take(amount)
            return True
        self.leave_out(debuggee, lines)
        return False

    def leave_out(self, debuggee: Debuggee, lines: int) -> None:
        """Counts lines that the debuggee itself has left out, or that do not pass."""
        if not lines:
            return
        self._last_at = self._clock()
        if not self._left_out:
            self._began_at = self._last_at
            self._look_later(ENDED)
        self._left_out[debuggee] += lines

    def _look_later(self, seconds: float) -> None:
        (self._later or asyncio.get_running_loop().call_later)(seconds, self._look)

    def _look(self) -> None:
        now = self._clock()
        goes_on = min(self._last_at + ENDED, self._began_at + LASTING) - now
        if goes_on > 0:
            self._look_later(goes_on)
            return
        left_out, self._left_out = self._left_out, Counter()
        self._tell(left_out)


def sentence(left_out: Sequence[tuple[str, int]], submissions: Collection[str]) -> str:
    """Returns what users read.

    Args:
        left_out: the title of each debuggee, and its number of lines.
        submissions: the submission ids of their jobs.
    """
    total = sum(lines for _, lines in left_out)
    lines = f"{total:,} more lines were" if total != 1 else "1 more line was"
    by = left_out[0][0] if len(left_out) == 1 else f"{len(left_out)} tasks"
    return (
        f"{by}: {lines} left out here, for they came too fast."
        f" What tasks print is all in the job's own output: {command(submissions)}"
    )


def command(submissions: Collection[str]) -> str:
    """Returns the command that shows all that these jobs have printed."""
    names = set(submissions)
    job = f" --job {names.pop()}" if len(names) == 1 and all(map(_SUBMISSION.fullmatch, names)) else ""
    return f"./invokew logs{job}"
