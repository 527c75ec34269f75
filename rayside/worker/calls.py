"""Retries in place: a task or actor method that raised waits in its worker, and can be called again.

The wait comes before Ray records the failure. A debugger may then replace code (edits.py) and call the
function again with its original inputs. What that call returns is the task's result; Ray's own retries are
not used up. An actor keeps the state that the failed call left.

The inputs are deserialized again from the values that Ray holds while the task runs, so no copy is made. This
relies on `deserialize_objects` and `worker_paused_by_debugger` of Ray's Worker, and on `recover_args` (Ray
2.60).
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import sys
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from . import edits, tracing
from .edited_source import Refused
from .failures import Unattended, record

EVENT = "raysideRetried"
RETURNED, RAISED = "returned", "raised"
OK = "ok"
# Limit: pending calls whose inputs are kept; calls of an async actor queue up.
_MOST_INPUTS = 1_000
_MOST_SHOWN = 1_000
# Timeout in seconds for the relay to acknowledge an outcome.
_TOLD = 5.0
_UNNAMED = b"__RAY_DUMMY__"  # DUMMY_TYPE of ray._common.signature
_Key = tuple[tuple["str | None", int], ...]

_failed: dict[int, Call] = {}  # failed calls that wait, by thread id
# Serialized arguments of calls that are about to start, by argument names and ids of values. Ray keeps the
# values alive until then. For equal keys, the newest belongs to the call.
_inputs: OrderedDict[_Key, list[tuple[Any, Any]]] = OrderedDict()
_shown: deque[tuple[int, int]] = deque(maxlen=_MOST_SHOWN)  # exceptions that the debugger has shown
_unattended = Unattended()


class Call:
    """Call of a task's function or an actor's method.

    Attributes:
        executed: the function that Ray calls; its attribute `method` is an actor's method.
        arguments, named: positional and keyword arguments.
        number: id of the requested attempt in reports; 0 without a request.
        from_start: whether a generator yields its values again.
        serialized: the serialized inputs and their object references; None if unknown.
    """

    __slots__ = (
        *("_again", "_cancelled", "arguments", "executed", "from_start", "named", "number", "serialized"),
    )

    def __init__(
        self, executed: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]
    ) -> None:
        self.executed, self.arguments, self.named = executed, arguments, named
        self.number, self.from_start, self._again = 0, False, False
        self._cancelled: threading.Event | None = None
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
        """Returns whether the original inputs are available."""
        return self.serialized is not None

    def stop(self, error: BaseException) -> bool:
        """Stops this thread in the debugger; returns whether to make the call again."""
        self._report(RAISED, error)
        self.number, self.from_start, self._again = 0, False, False
        thread = threading.get_ident()
        _failed[thread] = self
        try:
            recorded = partial(record, self, error, _unattended.masked)
            if _unattended.stops:
                _stand_still(error, recorded, self._cancelled or threading.Event())
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
        """Stops a separate thread in the call's context, so that other calls of the event loop continue."""
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
        context, self._cancelled = contextvars.copy_context(), threading.Event()
        thread = threading.Thread(target=context.run, args=(run,), name=name, daemon=True)
        thread.start()
        try:
            return await stopped
        except asyncio.CancelledError:  # by `ray.cancel`: nobody waits for its result
            self._cancelled.set()
            _resume(thread)
            raise

    def asked(self, number: int, from_start: bool) -> None:
        """Records a request to make the call again when its thread resumes."""
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
            # The job may end with this result, and its process too: the relay has to know before.
            telling.ask(EVENT, {"key": attempt, "outcome": outcome, "why": why}, _TOLD)


def _identity(error: BaseException) -> tuple[int, int]:
    """Identifies an exception, without keeping it and its frames alive."""
    return id(error), id(type(error))


def _stand_still(error: BaseException, record: Callable[[], None], cancelled: threading.Event) -> None:
    """Stops this thread as Ray's post-mortem does, but without printing the exception."""
    from ray._private.worker import global_worker

    with global_worker.worker_paused_by_debugger():
        _unattended.wait(record, cancelled)
    if cancelled.is_set():
        return
    pydevd = tracing.debugger()
    thread = threading.current_thread()
    info = pydevd.set_additional_thread_info(thread)
    info.is_tracing += 1
    try:
        pydevd.stop_on_unhandled_exception(pydevd, thread, info, (type(error), error, error.__traceback__))
    finally:
        info.is_tracing -= 1


def _resume(thread: threading.Thread) -> None:
    """Resumes a thread if the debugger has stopped it."""
    if tracing.debugger() is not None:
        thread_id = sys.modules["_pydevd_bundle.pydevd_constants"].get_thread_id(thread)
        sys.modules["_pydevd_bundle.pydevd_thread_lifecycle"].resume_threads(thread_id)


# --- inputs of calls that are about to start ---------------------------------------------


def note_inputs(values: Any, serialized: Any, references: Any) -> None:
    """Records the serialized form of values, if they are a task's arguments."""
    if key := _key(values):
        _inputs.setdefault(key, []).append((serialized, references))
        if len(_inputs) > _MOST_INPUTS:
            _inputs.popitem(last=False)


def leave_alone(unattended: Unattended) -> None:
    """Sets what happens to failed calls without a debugger."""
    global _unattended
    _unattended = unattended


def is_shown(error: BaseException | None) -> bool:
    """Returns whether the debugger has shown this exception already; true once for each."""
    if error is None or (known := _identity(error)) not in _shown:
        return False
    _shown.remove(known)
    return True


def _key(values: Any) -> _Key:
    """Returns the key of a task's inputs; empty for results of `ray.get` and for calls that will not start.

    Ray flattens arguments into pairs of name and value, with a marker as the name of positional ones.
    """
    if not isinstance(values, list) or len(values) % 2:
        return ()
    names = [None if type(each) is bytes and each == _UNNAMED else each for each in values[::2]]
    if not all(each is None or type(each) is str for each in names) or any(map(_has_failed, values[1::2])):
        return ()
    return tuple(zip(names, map(id, values[1::2]), strict=True))


def _has_failed(value: object) -> bool:
    """Returns whether an input is the error of another task: Ray does not start the call then."""
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


# --- requests from the relay -----------------------------------------------------------------


def check(texts: Mapping[str, str]) -> str:
    """Returns why these sources, by path, can't be applied here, or don't fit the failed calls' inputs."""
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
    except ValueError:  # It has no signature.
        return ""
    return ""


def here(number: int, *, from_start: bool = False, as_they_are: bool = False) -> str:
    """Requests that this thread's failed call is made again when it resumes; returns OK, or why it can't be.

    Args:
        number: id of the attempt in the report of its outcome (EVENT).
        from_start: whether a generator yields its values again.
        as_they_are: whether to use the inputs as the failed call left them if the originals are unavailable.
    """
    call = _failed.get(threading.get_ident())
    if call is None:
        return "only a failed task or actor method that is waiting can run again"
    if not call.has_inputs and not as_they_are:
        return "its original inputs are unavailable, and it may have changed them: --as-they-are uses them"
    if why := _does_not_bind(call.function, call):
        return f"its function {why}"
    call.asked(number, from_start)
    return OK
