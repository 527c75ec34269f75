"""Event loop in a background thread, while the main thread waits for the keyboard; timeout of a coroutine."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

Answer = TypeVar("Answer")


class Call(Protocol):
    """Runs a coroutine on the loop, and waits for its result."""

    def __call__(self, work: Coroutine[Any, Any, Answer]) -> Answer: ...


@contextmanager
def background_loop() -> Iterator[Call]:
    """Runs a loop while in the context; Ctrl-C cancels only the coroutine that is awaited."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="debugger", daemon=True)
    thread.start()

    def call(work: Coroutine[Any, Any, Answer]) -> Answer:
        future = asyncio.run_coroutine_threadsafe(work, loop)
        try:
            return future.result()
        except (KeyboardInterrupt, SystemExit):  # raised by a signal handler
            future.cancel()
            raise

    try:
        yield call
    finally:
        rest = asyncio.run_coroutine_threadsafe(_cancel_rest(), loop)
        rest.result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _cancel_rest() -> None:
    rest = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)


async def within(seconds: float, work: Coroutine[Any, Any, Answer]) -> Answer:
    """Awaits with a timeout; asyncio.wait_for can lose a cancellation before 3.12. Raises TimeoutError."""
    task = asyncio.ensure_future(work)
    try:
        done, _ = await asyncio.wait({task}, timeout=seconds)
        if not done:
            raise asyncio.TimeoutError
        return task.result()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
