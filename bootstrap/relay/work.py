"""Runs what the relay does on the side, and bounds how long anybody waits for that."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from bootstrap.errors import DebuggerGone, RequestFailed

# Seconds that an editor waits for debuggees' answers; what comes later is told by events.
FAN_OUT = 0.7


class Work:
    """Keeps everything that is under way. An error other than a debuggee's is a defect, and is logged."""

    def __init__(self, log: Callable[[str], None]) -> None:
        self._log = log
        self._under_way: set[asyncio.Future[Any]] = set()

    def start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Future[Any]:
        future = asyncio.ensure_future(work)
        self._under_way.add(future)
        future.add_done_callback(self._done)
        return future

    async def side_by_side(self, work: list[Coroutine[Any, Any, Any]]) -> list[Any]:
        """Starts all of it, and waits for at most FAN_OUT seconds; what takes longer runs on.

        Returns:
            The results of what was done without an error.
        """
        tasks = [self.start(each) for each in work]
        if not tasks:
            return []
        done, _ = await asyncio.wait(tasks, timeout=FAN_OUT)
        return [
            task.result() for task in tasks if task in done and not task.cancelled() and not task.exception()
        ]

    def cancel(self) -> None:
        for future in self._under_way:
            future.cancel()

    def _done(self, future: asyncio.Future[Any]) -> None:
        self._under_way.discard(future)
        if future.cancelled():
            return
        error = future.exception()
        if error is not None and not isinstance(error, RequestFailed | DebuggerGone):
            self._log(f"a defect: {error!r}")
