"""Wrappers around the functions that Ray executes in a worker, for retries of failed calls (calls.py).

This relies on `get_execution_info` of Ray's FunctionActorManager, `deserialize_objects` of its Worker, and
`_post_mortem` of ray.util.rpdb, which Ray's `store_task_errors` calls for each failed task (Ray 2.60).
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from typing import Any

from . import edit_hooks, edits, loaded_sources, shared_edits
from .calls import Call, is_shown, leave_alone, note_inputs
from .debug_config import Config
from .failures import Unattended

_FOLLOWS = "_rayside_follows"


def begin(config: Config) -> None:
    """Sets up retries and recorded failures if this worker's job asks for them; loads the job's edits."""
    from ray._private.worker import WORKER_MODE, global_worker

    stops = os.environ.get("RAY_DEBUG_POST_MORTEM") == "1"
    if (stops or config.record_failures) and global_worker.mode == WORKER_MODE:
        leave_alone(Unattended.of(config, stops))
        follow()
        shared_edits.read()


def follow() -> None:
    """Wraps the functions that Ray executes in this process from now on; safe to call twice."""
    from ray._private.function_manager import FunctionActorManager
    from ray._private.worker import Worker
    from ray.util import rpdb

    if hasattr(FunctionActorManager.get_execution_info, _FOLLOWS):
        return
    get, deserialize, post_mortem = (
        FunctionActorManager.get_execution_info,
        Worker.deserialize_objects,
        rpdb._post_mortem,
    )

    @functools.wraps(get)
    def get_execution_info(self: Any, *args: Any, **kwargs: Any) -> Any:
        info = get(self, *args, **kwargs)
        return info._replace(function=_followed(info.function))

    @functools.wraps(deserialize)
    def deserialize_objects(self: Any, serialized: Any, references: Any, *more: Any, **named: Any) -> Any:
        values = deserialize(self, serialized, references, *more, **named)
        if not (more or named):
            note_inputs(values, serialized, references)
        return values

    @functools.wraps(post_mortem)
    def _post_mortem() -> Any:
        error = sys.exc_info()[1]
        return None if _is_cancelled(error) or is_shown(error) else post_mortem()

    edit_hooks.follow()
    setattr(get_execution_info, _FOLLOWS, True)
    FunctionActorManager.get_execution_info = get_execution_info
    Worker.deserialize_objects = deserialize_objects
    rpdb._post_mortem = _post_mortem


def _followed(function: Callable[..., Any]) -> Callable[..., Any]:
    if hasattr(function, _FOLLOWS):
        return function

    # `wraps` also copies the attributes that Ray reads from an actor's method.
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if loaded_sources.due:
            edits.apply_due()
        made = Call(function, args, kwargs)
        while True:
            try:
                result = function(*made.arguments, **made.named)
                break
            except Exception as error:
                # A stop in the event loop would block the actor's other calls: plain methods of async actors
                # are left to Ray's own post-mortem.
                if _ends_actor(error) or _is_in_loop() or not made.stop(error):
                    raise
        if inspect.iscoroutine(result):
            return _awaited(made, result)
        if inspect.isgenerator(result):
            return _generated(made, result)
        if inspect.isasyncgen(result):
            return _generated_async(made, result)
        made.returned()
        return result

    setattr(call, _FOLLOWS, True)
    return call


def _is_in_loop() -> bool:
    return asyncio._get_running_loop() is not None


def _is_cancelled(error: BaseException | None) -> bool:
    """Returns whether `ray.cancel` raised it: in a task a KeyboardInterrupt."""
    return isinstance(error, KeyboardInterrupt) or type(error).__name__ == "TaskCancelledError"


def _ends_actor(error: BaseException) -> bool:
    """Returns whether `ray.actor.exit_actor` raised it in an async actor."""
    return type(error).__name__ == "AsyncioActorExit"


async def _awaited(call: Call, result: Coroutine[Any, Any, Any]) -> Any:
    while True:
        try:
            value = await result
            call.returned()
            return value
        except Exception as error:
            if _ends_actor(error) or not await call.stop_beside(error):
                raise
        result = call.executed(*call.arguments, **call.named)


class _Yielded:
    """Progress of a generator: a retry continues after the values that were yielded."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._number = self._left_out = 0

    def is_new(self) -> bool:
        """Counts the next value; returns whether to yield it."""
        is_new = not self._left_out
        if is_new:
            self._number += 1
        else:
            self._left_out -= 1
        return is_new

    def again(self) -> Any:
        call = self._call
        if call.from_start:
            self._number = 0
        self._left_out = self._number
        return call.executed(*call.arguments, **call.named)


def _generated(call: Call, generator: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
    begun, sent, yielded = False, None, _Yielded(call)
    try:
        while True:
            try:
                value = generator.send(sent if begun else None)
            except StopIteration as end:
                call.returned()
                return end.value
            except Exception as error:
                if not call.stop(error):
                    raise
                generator, begun = yielded.again(), False
                continue
            begun = True
            if yielded.is_new():
                sent = yield value
    finally:
        generator.close()


async def _generated_async(call: Call, generator: AsyncGenerator[Any, Any]) -> AsyncGenerator[Any, Any]:
    begun, sent, yielded = False, None, _Yielded(call)
    try:
        while True:
            try:
                value = await generator.asend(sent if begun else None)
            except StopAsyncIteration:
                call.returned()
                return
            except Exception as error:
                if _ends_actor(error) or not await call.stop_beside(error):
                    raise
                generator, begun = yielded.again(), False
                continue
            begun = True
            if yielded.is_new():
                sent = yield value
    finally:
        await generator.aclose()
