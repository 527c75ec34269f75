"""Has threads of debuggees wait for each other at a breakpoint, until so many have come.

Each waits in the breakpoint's condition, for the relay's answer (`ask` in evaluated/reached.py): it runs on
with the first of an answer, the relay's end, and the end of its own patience.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Sequence
from typing import Generic, TypeVar

from bootstrap.relay.hit_condition import Gather

Debuggee = TypeVar("Debuggee", bound=Hashable)


class Rendezvous(Generic[Debuggee]):
    """Keeps who waits at one breakpoint. When all have come they stop together, and it begins anew."""

    def __init__(self) -> None:
        # By debuggee and number of its report.
        self._waiting: dict[tuple[Debuggee, int], asyncio.Future[bool]] = {}
        self._timer: asyncio.TimerHandle | None = None

    async def join(
        self, debuggee: Debuggee, number: int, gather: Gather, tell: Callable[[Sequence[Debuggee]], None]
    ) -> bool:
        """Waits for the others; returns whether the thread stops.

        `tell` is called once for all, with the debuggee of each thread that stops now.
        """
        if (debuggee, number) in self._waiting:  # no debuggee of ours says the same twice
            return False
        loop = asyncio.get_running_loop()
        stops: asyncio.Future[bool] = loop.create_future()
        self._waiting[debuggee, number] = stops
        if self._timer is None:
            self._timer = loop.call_later(gather.seconds, self._stop, tell)
        if len(self._waiting) >= gather.number:
            self._stop(tell)
        return await stops

    def leave(self, debuggee: Debuggee, number: int | None = None) -> None:
        """Lets one thread of a debuggee go, or all; they do not count any more."""
        for who in [who for who in self._waiting if who[0] is debuggee and number in (None, who[1])]:
            self._end(self._waiting.pop(who), stops=False)
        if not self._waiting:
            self._rest()

    def let_go(self) -> None:
        """Lets all go: nothing stops here any more."""
        self._end_all(stops=False)

    def _stop(self, tell: Callable[[Sequence[Debuggee]], None]) -> None:
        tell([debuggee for debuggee, _ in self._waiting])
        self._end_all(stops=True)

    def _end_all(self, *, stops: bool) -> None:
        waiting, self._waiting = self._waiting, {}
        self._rest()
        for each in waiting.values():
            self._end(each, stops=stops)

    def _rest(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @staticmethod
    def _end(waiting: asyncio.Future[bool], *, stops: bool) -> None:
        if not waiting.done():  # the relay ends, and has cancelled it
            waiting.set_result(stops)
