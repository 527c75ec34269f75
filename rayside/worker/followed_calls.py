"""Functions that Ray executes in a worker, wrapped so that a call that raises can be made again (calls.py).

It leans on `get_execution_info` of Ray's FunctionActorManager, on `deserialize_objects` of its Worker, and on
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

from . import edits, later_code, loaded_texts, shared_edits
from .calls import Call, is_shown, leave_alone, note_inputs
from .debug_config import Config
from .failures import Unattended

_FOLLOWS = "_rayside_follows"


def begin(config: Config) -> None:
    """Lets calls that raise be made again, or be recorded, in a worker that does so; with the job's edits."""
    from ray._private.worker import WORKER_MODE, global_worker

    stops = os.environ.get("RAY_DEBUG_POST_MORTEM") == "1"
    if (stops or config.record_failures) and global_worker.mode == WORKER_MODE:
        leave_alone(Unattended.of(config, stops))
        follow()
        shared_edits.read()


def follow() -> None:
    """Wraps what Ray executes in this process from now on; may be called again."""
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
        return None if is_shown(sys.exc_info()[1]) else post_mortem()

    later_code.follow()
    setattr(get_execution_info, _FOLLOWS, True)
    FunctionActorManager.get_execution_info = get_execution_info
    Worker.deserialize_objects = deserialize_objects
    rpdb._post_mortem = _post_mortem


def _followed(function: Callable[..., Any]) -> Callable[..., Any]:
    if hasattr(function, _FOLLOWS):
        return function

    # Ray reads attributes of an actor's method, which this copies.
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if loaded_texts.due:
            edits.apply_due()
        made = Call(function, args, kwargs)
        while True:
            try:
                result = function(*made.arguments, **made.named)
                break
            except Exception as error:
                # To stand still in an event loop would halt the actor's other calls, so Ray's own post-mortem
                # has the plain methods of async actors.
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


def _ends_actor(error: BaseException) -> bool:
    """Returns whether it is what `ray.actor.exit_actor` raises in an async actor."""
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


def _generated(call: Call, generator: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
    """Yields what a task yields; made again, it goes on behind what it has yielded already."""
    begun, sent = False, None
    yielded = left_out = 0
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
                generator, begun = call.executed(*call.arguments, **call.named), False
                left_out = 0 if call.from_start else yielded
                continue
            begun = True
            if left_out:
                left_out -= 1
                continue
            yielded += 1
            sent = yield value
    finally:
        generator.close()


async def _generated_async(call: Call, generator: AsyncGenerator[Any, Any]) -> AsyncGenerator[Any, Any]:
    begun, sent = False, None
    yielded = left_out = 0
    try:
        while True:
            try:
                value = await generator.asend(sent if begun else None)
            except StopAsyncIteration:
                call.returned()
                return
            except Exception as error:
                if not await call.stop_beside(error):
                    raise
                generator, begun = call.executed(*call.arguments, **call.named), False
                left_out = 0 if call.from_start else yielded
                continue
            begun = True
            if left_out:
                left_out -= 1
                continue
            yielded += 1
            sent = yield value
    finally:
        await generator.aclose()
