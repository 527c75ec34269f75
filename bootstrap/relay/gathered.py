"""Makes an answer that is long and often asked for, once for all who wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from bootstrap.dap.framing import Message, as_json

# After an answer is made, so many times its duration passes before the next one is made. An editor asks for
# all threads after each stop: where a thousand stop, they are listed now and then, and not a thousand times
# (docs/adr/0018-threads-are-answered-together.md).
LEAST_SHARE = 4


class Gathered:
    """Keeps an answer; `make` returns its body as of now."""

    def __init__(self, make: Callable[[], Message]) -> None:
        self._make = make
        self._body = b""
        self._body_at = self._not_before = 0.0  # in the loop's time
        self._making = asyncio.Lock()

    async def since(self, asked: float) -> bytes:
        """Returns the body in JSON, as of no earlier moment of the loop's time than `asked`."""
        loop = asyncio.get_running_loop()
        async with self._making:
            if self._body_at < asked:
                if (pause := self._not_before - loop.time()) > 0:
                    await asyncio.sleep(pause)
                self._body_at = loop.time()
                self._body = as_json(self._make())
                ended = loop.time()
                self._not_before = ended + LEAST_SHARE * (ended - self._body_at)
            return self._body
