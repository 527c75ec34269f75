"""Calls of tasks and actor methods in a worker, which can be made again after they have raised.

A call that raises stops as in Ray's own post-mortem, but before Ray knows of it. A debugger may then replace
code (edits.py) and have the call made again, with the inputs that it began with. What it returns then is the
task's result. Retries of Ray's own are not used up. An actor's state is as the failed call has left it.

Inputs are deserialized once more from what Ray holds for as long as the task runs, so a copy is never made.
It leans on `deserialize_objects` and `worker_paused_by_debugger` of Ray's Worker, and on `recover_args` (Ray
2.60).
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from . import edits
from .edited_source import Refused
from .failures import Unattended, record

EVENT = "raysideRetried"
RETURNED, RAISED = "returned", "raised"
OK = "ok"
# Inputs of calls that have not begun: those of an async actor, whose calls wait in turn.
_MOST_INPUTS = 1_000
_MOST_SHOWN = 1_000
# Seconds for the relay to take note of an outcome.
_TOLD = 5.0
_UNNAMED = b"__RAY_DUMMY__"  # DUMMY_TYPE of ray._common.signature
_Key = tuple[tuple["str | None", int], ...]

_failed: dict[int, Call] = {}  # the calls that have raised and stand still, by thread
# What the arguments of calls that are about to begin were deserialized from, by names and values' ids. Ray
# holds the values until then; of equal ids the last is the call's own.
_inputs: OrderedDict[_Key, list[tuple[Any, Any]]] = OrderedDict()
_shown: deque[tuple[int, int]] = deque(maxlen=_MOST_SHOWN)  # exceptions that have stopped here
_unattended = Unattended()


class Call:
    """A call of a task's function or an actor's method.

    Attributes:
        executed: what Ray calls; an actor's method is in its `method`.
        arguments, named: what it was called with.
        number: stands for the attempt in reports; 0 while none was asked for.
        from_start: whether a generator's values are yielded again.
        serialized: what Ray deserialized the inputs from, and their references; None where that is not known.
    """

    __slots__ = ("_again", "arguments", "executed", "from_start", "named", "number", "serialized")

    def __init__(
        self, executed: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]
    ) -> None:
        self.executed, self.arguments, self.named = executed, arguments, named
        self.number, self.from_start, self._again = 0, False, False
        values = (*arguments[len(self._actor) :], *named.values())
        names = (*(None for _ in values[len(named) :]), *named)
        self.serialized = _taken(tuple(zip(names, map(id, values), strict=True))) if values else ()

    @property
    def _actor(self) -> tuple[Any, ...]:
        return self.arguments[:1] if hasattr(self.executed, "method") else ()

    @property
    def function(self) -> Any:
        """Returns the user's own function."""
        return getattr(self.executed, "method", self.executed)

    @property
    def has_inputs(self) -> bool:
        """Returns whether the inputs can be taken as they were before the call."""
        return self.serialized is not None

    def stop(self, error: BaseException) -> bool:
        """Stops this thread for the debugger; returns whether the call is to be made again."""
        self._report(RAISED, error)
        self.number, self.from_start, self._again = 0, False, False
        thread = threading.get_ident()
        _failed[thread] = self
        try:
            recorded = partial(record, self, error, _unattended.masked)
            if _unattended.stops:
                _stand_still(error, recorded)
            elif _unattended.are_recorded:
                recorded()
        finally:
            del _failed[thread]
        if self._again:
            edits.apply_due()
            self._renew()
        else:
            _shown.append(_identity(error))
        return self._again

    async def stop_beside(self, error: BaseException) -> bool:
        """Stops a thread of its own, in the call's context: the other calls of the event loop run on."""
        loop = asyncio.get_running_loop()
        stopped: asyncio.Future[bool] = loop.create_future()

        def settle(outcome: bool) -> None:
            if not stopped.done():  # by `ray.cancel`
                stopped.set_result(outcome)

        def run() -> None:
            outcome = self.stop(error)
            with suppress(RuntimeError):  # The loop has ended meanwhile.
                loop.call_soon_threadsafe(settle, outcome)

        name = f"{getattr(self.function, '__qualname__', 'call')} failed"
        context = contextvars.copy_context()
        threading.Thread(target=context.run, args=(run,), name=name, daemon=True).start()
        return await stopped

    def asked(self, number: int, from_start: bool) -> None:
        """Notes that the call is to be made again once its thread resumes."""
        self.number, self.from_start, self._again = number, from_start, True

    def returned(self) -> None:
        self._report(RETURNED)

    def _renew(self) -> None:
        if self.serialized:
            import ray
            from ray._common import signature

            values = ray._private.worker.global_worker.deserialize_objects(*self.serialized)
            _taken(_key(values))
            arguments, self.named = signature.recover_args(values)
            self.arguments = (*self._actor, *arguments)

    def _report(self, outcome: str, error: BaseException | None = None) -> None:
        if self.number:
            from .evaluated import telling
            from .evaluated.reached import described

            why = "" if error is None else described(error)[:1_000]
            attempt, self.number = self.number, 0
            # What returns may be the last of its job, and its process be ended: the relay knows first.
            telling.ask(EVENT, {"key": attempt, "outcome": outcome, "why": why}, _TOLD)


def _identity(error: BaseException) -> tuple[int, int]:
    """Identifies an exception, without keeping it and its frames alive."""
    return id(error), id(type(error))


def _stand_still(error: BaseException, record: Callable[[], None]) -> None:
    """Stops this thread as Ray's post-mortem does, which would also print the exception."""
    from ray._private.worker import global_worker

    from .tracing import debugger

    with global_worker.worker_paused_by_debugger():
        _unattended.wait(record)
    pydevd = debugger()
    thread = threading.current_thread()
    info = pydevd.set_additional_thread_info(thread)
    info.is_tracing += 1
    try:
        pydevd.stop_on_unhandled_exception(pydevd, thread, info, (type(error), error, error.__traceback__))
    finally:
        info.is_tracing -= 1


# --- inputs of calls that are about to begin ---------------------------------------------


def note_inputs(values: Any, serialized: Any, references: Any) -> None:
    """Notes what values were deserialized from, if they are a task's arguments."""
    if key := _key(values):
        _inputs.setdefault(key, []).append((serialized, references))
        if len(_inputs) > _MOST_INPUTS:
            _inputs.popitem(last=False)


def leave_alone(unattended: Unattended) -> None:
    """Sets what becomes of calls that raise where no debugger is."""
    global _unattended
    _unattended = unattended


def is_shown(error: BaseException | None) -> bool:
    """Returns, once for each, whether an exception has stopped here already."""
    if error is None or (known := _identity(error)) not in _shown:
        return False
    _shown.remove(known)
    return True


def _key(values: Any) -> _Key:
    """Returns what identifies a task's inputs; nothing for what `ray.get` has deserialized, or no call gets.

    Ray flattens arguments to pairs of a name, or a mark for those without, and a value.
    """
    if not isinstance(values, list) or len(values) % 2:
        return ()
    names = [None if type(each) is bytes and each == _UNNAMED else each for each in values[::2]]
    if not all(each is None or type(each) is str for each in names) or any(map(_has_failed, values[1::2])):
        return ()
    return tuple(zip(names, map(id, values[1::2]), strict=True))


def _has_failed(value: object) -> bool:
    """Returns whether it stands for what another task was to return: Ray does not begin the call then."""
    kind = type(value)
    return issubclass(kind, Exception) and any(each.__name__ == "RayError" for each in kind.__mro__)


def _taken(key: _Key) -> tuple[Any, ...] | None:
    found = _inputs.get(key)
    if not found:
        return None
    serialized = found.pop()
    if not found:
        del _inputs[key]
    return serialized


# --- what the relay asks -----------------------------------------------------------------


def check(texts: Mapping[str, str]) -> str:
    """Returns why these texts, by path, can't be applied here; also where failed calls would not fit them."""
    try:
        changed = edits.changed(texts)
    except Refused as refused:
        return str(refused)
    for call in list(_failed.values()):
        function = inspect.unwrap(call.function)
        if function in changed and (why := _does_not_bind(changed[function], call)):
            return f"{function.__qualname__} {why}"
    return ""


def _does_not_bind(function: Any, call: Call) -> str:
    try:
        inspect.signature(function).bind(*call.arguments, **call.named)
    except TypeError as error:
        return f"can't take the inputs that the failed call began with: {error}"
    except ValueError:  # It says nothing of its signature.
        return ""
    return ""


def here(number: int, *, from_start: bool = False, as_they_are: bool = False) -> str:
    """Asks for this thread's failed call to be made again once it resumes; returns OK, or why it can't be.

    Args:
        number: stands for the attempt in the report of its outcome, EVENT.
        from_start: whether a generator's values are yielded again.
        as_they_are: whether inputs that can't be taken anew are used as the failed call has left them.
    """
    call = _failed.get(threading.get_ident())
    if call is None:
        return "only a task or an actor's method that has failed can run again, and is not doing so already"
    if not call.has_inputs and not as_they_are:
        return "its inputs can't be taken anew, and it may have changed them: --as-they-are uses them"
    if why := _does_not_bind(call.function, call):
        return f"its function {why}"
    call.asked(number, from_start)
    return OK
