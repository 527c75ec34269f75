"""Turns a debuggee's tracing off and on, with Ray's hook or without.

The functions are the hook's own (rayside/worker/tracing.py). They are harmless in every process
that debugpy is in, on every Python, however often they are called.
"""

from __future__ import annotations

import contextlib
import os

from rayside.errors import RequestFailed
from rayside.relay.connection import DETACHING, Connection
from rayside.worker import tracing
from rayside.worker.evaluated import compiled

_SWITCH = "RAYSIDE_COMPILED_BREAKPOINTS"  # in the relay's environment; 0 leaves it all to pydevd


class Tracing:
    """Knows whether one debuggee traces its code."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._awake: bool | None = None
        self._compiles = False  # whether it decides by itself

    async def notice_lines(self) -> None:
        """Has it stop at breakpoints set from now on: they are compiled in, or else it is traced."""
        if os.environ.get(_SWITCH) == "0":
            await self.wake()
            return
        if self._compiles or self._awake:
            return
        compiles = await self._connection.ask(self._connection.patience, compiled.begin)
        self._compiles = compiles is True
        if compiles is False:
            self._awake = True
        await self.wake()

    async def wake(self) -> None:
        """Has it trace its code, so that it stops at what is set."""
        await self._trace(True, self._connection.patience)

    async def sleep(self) -> None:
        """Lets its code run at full speed; a `breakpoint()` call stops all the same."""
        await self._trace(False, self._connection.patience)

    async def give_back(self) -> None:
        """Ends what we have begun: without us it runs at full speed."""
        if self._awake:
            await self._trace(False, DETACHING)

    def resumed(self) -> None:
        """Notes that a thread resumed: a `breakpoint()` call, or a step, has it trace its code, too."""
        self._awake = self._awake or None

    async def _trace(self, awake: bool, timeout: float) -> None:
        if self._awake is awake or (awake and self._compiles):
            return
        self._awake = awake
        with contextlib.suppress(RequestFailed):  # private interfaces: without them it is just slower
            await self._connection.tell(timeout, tracing.wake if awake else tracing.sleep)
