"""Knows whether an editor behind a forward is still there, by the beats of the forward."""

from __future__ import annotations

import asyncio

from bootstrap.dap.additions import AWAY, EVERY, MOST_MISSED


class Presence:
    """Of an editor whose forward has never sent a beat it knows nothing.

    Args:
        every: seconds between two beats.
        away: seconds without one after which the editor counts as gone.

    Attributes:
        left: whether the forward has said that the editor ended the connection.
    """

    def __init__(self, *, every: float = EVERY, away: float = AWAY) -> None:
        self.left = False
        self._every, self._away = every, away
        self._beats = asyncio.Event()
        self._missed = 0

    @property
    def by_forward(self) -> bool:
        """Returns whether a forward that sends beats is between."""
        return self._beats.is_set()

    @property
    def is_silent(self) -> bool:
        """Returns whether the forward itself would count the way as lost by now."""
        return self._missed > MOST_MISSED

    def beat(self) -> None:
        self._beats.set()
        self._missed = 0

    async def until_away(self) -> None:
        """Waits until no beat has come for `away` seconds; without any beat for ever."""
        await self._beats.wait()
        # Each pause counts once, however long it was: where this machine slept, no beat could come.
        while self._missed * self._every < self._away:
            await asyncio.sleep(self._every)
            self._missed += 1
