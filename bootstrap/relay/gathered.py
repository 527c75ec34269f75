"""Makes what takes long and is often asked for, once for all who wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

# After it is made, so many times its duration passes before the next one is made. An editor asks for
# all threads after each stop: where a thousand stop, they are listed now and then, and not a thousand times
# (docs/adr/0018-threads-are-answered-together.md).
LEAST_SHARE = 4
# But not more than so many seconds: a process that does not answer must not have all wait.
LONGEST = 5.0


_Made = TypeVar("_Made")


class Gathered(Generic[_Made]):
    """Keeps what `make` returns, which is so as of now."""

    def __init__(self, make: Callable[[], Awaitable[_Made]]) -> None:
        self._make = make
        self._made: tuple[float, _Made] | None = None  # since when it is so, in the loop's time
        self._not_before = 0.0  # in the loop's time
        self._making = asyncio.Lock()

    async def since(self, asked: float) -> _Made:
        """Returns what is so as of no earlier moment of the loop's time than `asked`."""
        loop = asyncio.get_running_loop()
        async with self._making:
            if self._made is None or self._made[0] < asked:
                if (pause := self._not_before - loop.time()) > 0:
                    await asyncio.sleep(pause)
                began = loop.time()
                self._made = began, await self._make()
                ended = loop.time()
                self._not_before = ended + min(LEAST_SHARE * (ended - began), LONGEST)
            return self._made[1]
