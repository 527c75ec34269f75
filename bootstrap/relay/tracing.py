"""Turns a debuggee's tracing off and on: expressions for DAP's `evaluate`, with Ray's hook or without.

The functions are the hook's own (bootstrap/hook/rayside_hook/tracing.py), whose text is sent along.
They are harmless in every process that debugpy is in, on every Python, however often they are sent.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from bootstrap.errors import RequestFailed
from bootstrap.hook import rayside_hook
from bootstrap.relay.connection import DETACHING, Connection
from bootstrap.relay.sent import Sent

_TRACING = Sent("_rayside_tracing", Path(rayside_hook.__file__).with_name("tracing.py"))

# Both are evaluated without a frame, in the context QUIETLY. SLEEP lets all code run at full speed that is
# not stopped or being stepped; `breakpoint()` still stops. WAKE has to come before breakpoints, the exception
# filters `raised` and `userUnhandled`, and `pause`, where the process has no hook.
SLEEP, WAKE = _TRACING.first_call("sleep"), _TRACING.first_call("wake")


class Tracing:
    """Knows whether one debuggee traces its code."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._awake: bool | None = None

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
        if self._awake is awake:
            return
        self._awake = awake
        with contextlib.suppress(RequestFailed):  # private interfaces: without them it is just slower
            await self._connection.run(WAKE if awake else SLEEP, timeout)
