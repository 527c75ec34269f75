"""Has an editor told of many stops no faster than the relay answers what it asks about them.

An editor asks three or more things at each stop. Where a thousand tasks stop within a second, each of its
requests would wait behind the stops of all others, and behind what was asked about those.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from bootstrap.relay.editor import CurrentEditor

# Stops that are looked at at once, and requests of the editor from which on a stop waits for an answer.
_AT_ONCE, _MOST_ASKED = 4, 4
# Seconds that one stop holds up others: for the editor's answers, and again for its own debuggee, which may
# be frozen.
_HOLDING_UP = 0.05


class Pace:
    """Lets stops through in the order in which they come."""

    def __init__(self, editor: CurrentEditor) -> None:
        self._editor = editor
        self._turns = asyncio.Semaphore(_AT_ONCE)

    async def keep(self, look_and_tell: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Runs what a stop needs until the editor is told of it. Raises what that raises."""
        async with self._turns:
            if self._editor.editor is not None:
                await self._editor.editor.answered(_MOST_ASKED, _HOLDING_UP)
            telling = asyncio.ensure_future(look_and_tell())
            try:
                await asyncio.wait({telling}, timeout=_HOLDING_UP)
            except asyncio.CancelledError:
                telling.cancel()
                raise
        await telling
