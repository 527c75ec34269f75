"""Timeouts of an editor's connection: for a way, for a relay, and before an editor may attach again."""

from __future__ import annotations

from dataclasses import dataclass

from rayside.dap.additions import AWAY, EVERY, MOST_MISSED


@dataclass(frozen=True)
class Patience:
    """Timeouts, in seconds.

    Attributes:
        every: between two beats; `most_missed` without an answer make a way count as lost.
        lost: for a way that is lost, at most.
        absent: for a relay at the end of a way that is there again.
        away: the relay's own, for which it keeps what is stopped.
    """

    every: float = EVERY
    most_missed: int = MOST_MISSED
    lost: float = 600.0
    absent: float = 60.0
    away: float = AWAY


USUAL = Patience()


class Pace:
    """Spaces out how often the editors of one port are told to attach again.

    Without it a relay that takes every editor and drops it at once would have them do so without end.
    """

    # Seconds that a session lasts whose end says nothing against the relay, and the longest pause.
    LASTED, LONGEST = 10.0, 60.0

    def __init__(self) -> None:
        self._pause = 0.0

    def after(self, lasted: float) -> float:
        """Returns how many seconds to wait after a session that lasted so many: 0, 1, 2, 4, ... 60."""
        self._pause = 0.0 if lasted >= self.LASTED else min(self._pause * 2 or 1.0, self.LONGEST)
        return self._pause
