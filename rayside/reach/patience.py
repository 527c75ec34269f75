"""Timeouts of an editor's connection to the relay, and the backoff before an editor attaches again."""

from __future__ import annotations

from dataclasses import dataclass

from rayside.dap.additions import AWAY, EVERY, MOST_MISSED


@dataclass(frozen=True)
class Patience:
    """Timeouts, in seconds.

    Attributes:
        every: between two heartbeats; after `most_missed` unanswered ones the connection counts as lost.
        lost: for retries of a lost connection.
        absent: for a relay to answer over a restored connection.
        away: the relay's own, for keeping tasks stopped.
    """

    every: float = EVERY
    most_missed: int = MOST_MISSED
    lost: float = 600.0
    absent: float = 60.0
    away: float = AWAY


USUAL = Patience()


class Pace:
    """Backoff for the editors of one port before they attach again.

    Without it, a relay that accepts every editor and drops it at once would cause an endless loop.
    """

    # Seconds: duration of a session after which there is no pause, and the longest pause.
    LASTED, LONGEST = 10.0, 60.0

    def __init__(self) -> None:
        self._pause = 0.0

    def after(self, lasted: float) -> float:
        """Returns the pause in seconds after a session of this duration: 0, 1, 2, 4, ... 60."""
        self._pause = 0.0 if lasted >= self.LASTED else min(self._pause * 2 or 1.0, self.LONGEST)
        return self._pause
