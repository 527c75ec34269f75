"""Decides inside a debuggee what happens at a breakpoint that its code has reached.

pydevd compiles and evaluates the condition of a breakpoint with each hit; the relay gives it a call of
`reached` for that, with nothing but the breakpoint's number: the rest was `set_points` before. So a condition
that raises is told, a condition and a hit count both have to hold, hits are counted by the relay for the
whole cluster, and the message of a logpoint comes with its task. It leans on pydevd:
`PyDB.handle_breakpoint_condition` in its main module evaluates in a frame of its own, with the globals and
locals of the one that was reached.
"""

from __future__ import annotations

import _thread
import builtins
import itertools
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from types import CodeType, FrameType
from typing import Any

EVENT = "raysideReached"
# Conditions call `reached` by this name, which is found from everywhere, and short, for it is compiled anew
# with each hit. The relay writes it, too (breakpoints.py).
NAME = "__rayside__"
# Seconds that a thread waits for the relay; without an answer it runs on.
PATIENCE = 5.0
# The most characters of an error, or of a name, that are sent.
LONGEST = 4_000
_CMD_WRITE_TO_CONSOLE = 116  # pydevd_comm_constants.py
_MARK, _WAKES = "_rayside_tells_at_exit", "_rayside_wakes_at_detach"


class _Point:
    """Keeps a breakpoint, as `set_points` has it."""

    __slots__ = ("code", "condition", "counted", "message", "name", "patience", "shown")

    def __init__(self, condition: str, message: str, counted: bool, name: str, patience: float) -> None:
        self.condition, self.message, self.counted, self.name = condition, message, counted, name
        self.patience = patience
        self.code: CodeType | None = None
        self.shown: CodeType | None = None
        # A condition that can't be compiled is reported when it is reached.
        with suppress(Exception):
            self.code = compiled(condition) if condition else None


_points: dict[int, _Point] = {}
_reported: set[int] = set()  # the breakpoints that were reported to have raised, or to be loaded
_settled: dict[int, bool] = {}  # whether a breakpoint stops from now on, where that can't change any more
_numbers = itertools.count(1)
_waiting: dict[int, tuple[Any, list[bool]]] = {}  # threads that wait for an answer, by number of the report
_is_detached = False  # whether the relay of this module's connection has left
leaving: list[Callable[[], object]] = []  # what is called before pydevd ends


def set_points(points: Mapping[int, tuple[str, str, bool, str, float]], gone: Iterable[int] = ()) -> None:
    """Makes breakpoints known by their numbers, before pydevd knows them.

    Args:
        points: of each its condition, a Python expression; a logpoint's message, as DAP has it; whether the
            relay counts hits; the function's name as the user wrote it, if any; the seconds to wait for it.
        gone: the numbers of those that pydevd does not have any more.
    """
    for key in gone:
        _points.pop(key, None)
        _reported.discard(key)
        _settled.pop(key, None)
    _points.update({key: _Point(*point) for key, point in points.items()})
    setattr(builtins, NAME, reached)
    tell_at_exit()


def tell_at_exit() -> None:
    """Sends what is kept for later before pydevd ends its threads: when the program's have ended."""
    if not hasattr(debugger(), _MARK):
        setattr(debugger(), _MARK, True)
        with suppress(Exception):  # private; without it the last messages of a process are not counted
            threading._register_atexit(_at_exit)  # type: ignore[attr-defined]


def _wake_at_detach() -> None:
    """Ends the wait of threads for a relay that has left: nobody will answer them."""
    pydevd = debugger()
    if hasattr(pydevd, _WAKES):
        return
    setattr(pydevd, _WAKES, True)
    on_disconnect = pydevd.on_disconnect

    def on_disconnect_and_wake() -> None:
        on_disconnect()
        # As in `_at_exit`, the module may be another one by then.
        sys.modules[__name__].detached()

    pydevd.on_disconnect = on_disconnect_and_wake


def _at_exit() -> None:
    # The module is looked up as it is by then: it is imported anew for each connection.
    module = sys.modules[__name__]
    for leave in list(module.leaving):
        leave()


def reached(key: int) -> bool:
    """Returns whether the thread stops at the breakpoint of that number."""
    return decides(key, sys._getframe(1))


def decides(key: int, frame: FrameType, holds: bool = False) -> bool:
    """Returns as `reached`, for that frame; `holds` where the condition does."""
    point = _points.get(key)
    if point is None:  # it is being removed
        return False
    if point.name:
        if not _is_of(frame, point.name):
            return False
        if key not in _reported:
            _reported.add(key)
            send(EVENT, {"key": key, "what": "loaded"})
    if point.condition and not holds:
        try:
            code = point.code or compiled(point.condition)
            if not eval(code, frame.f_globals, frame.f_locals):
                return False
        except Exception as error:
            tell_error(key, error)
            return False
    if point.message:
        from . import telling  # which imports this module

        telling.log(key, point, frame)
        return False
    return not point.counted or _counts(key, point.patience)


def ask(body: dict[str, Any], patience: float = PATIENCE, event: str = EVENT) -> list[bool]:
    """Sends a report, and returns the relay's answer, for which this thread waits; empty where none comes."""
    number, lock, answer = next(_numbers), _thread.allocate_lock(), list[bool]()
    lock.acquire()
    _waiting[number] = lock, answer
    until = time.monotonic() + patience
    try:
        # `_is_detached` is read after the thread can be woken: a detach in between would leave it waiting.
        waits = not _is_detached and send(event, {**body, "number": number})
        while waits and not lock.acquire(timeout=min(1.0, patience)):
            # A relay that dies does not say that it leaves.
            waits = time.monotonic() < until and debugger() is not None and debugger().reader.is_alive()
    finally:  # `ray.cancel` ends it by an exception
        if _waiting.pop(number, None) is not None:
            send(event, {"key": body["key"], "what": "gone", "number": number})
    return answer


def answered(number: int, *answer: bool) -> None:
    """Takes the relay's answer to `ask`."""
    waiting = _waiting.pop(number, None)
    if waiting is not None:
        lock, result = waiting
        result[:] = answer
        lock.release()


def detached() -> None:
    """Wakes all threads that wait for an answer, and has no other begin to."""
    global _is_detached
    _is_detached = True
    for number in list(_waiting):
        answered(number)


def _counts(key: int, patience: float) -> bool:
    if key in _settled:
        return _settled[key]
    # The answer says whether it stops, and whether that holds for all that follow.
    stops, settled = ask({"key": key, "what": "hit"}, patience) or (False, False)
    if settled:
        _settled[key] = stops
    return stops


def _is_of(frame: FrameType, name: str) -> bool:
    """Returns whether the frame is of the function of that name: a plain, a qualified, or a module's."""
    if "." not in name:
        return True
    # The condition's frame has only the variables of the one that was reached; pydevd's has that frame.
    own = frame.f_back.f_locals.get("new_frame") if frame.f_back is not None else None
    qualified = getattr(own.f_code, "co_qualname", "") if own is not None else ""
    # Without a qualified name (Python 3.10), the last part of the name has to do.
    if own is None or not qualified or is_named(qualified, str(own.f_globals.get("__name__")), name):
        return True
    # Its method may come from a base class, or be a function that was set on the class as it ran.
    first = own.f_locals.get(own.f_code.co_varnames[0]) if own.f_code.co_argcount else None
    owner = first if isinstance(first, type) else type(first)
    return any(is_method(each, own.f_code, name) for each in owner.__mro__)


def is_named(qualified: str, module: str, name: str) -> bool:
    """Returns whether the user's name is the function's: as much of its end as the user has written."""
    return f".{module}.{qualified}".replace(".<locals>", "").endswith(f".{name}")


def is_method(owner: type, code: CodeType, name: str) -> bool:
    """Returns whether the user's name is that of a class's method that runs this code, decorated or not."""
    method = name.rpartition(".")[2]
    if not is_named(f"{owner.__qualname__}.{method}", str(owner.__module__), name):
        return False
    each: Any = next((vars(base)[method] for base in owner.__mro__ if method in vars(base)), None)
    while each is not None and getattr(each, "__code__", None) is not code:
        inner = (getattr(each, way, None) for way in ("__func__", "__wrapped__", "func"))
        each = next((found for found in inner if found is not None), None)
    return each is not None


def compiled(expression: str, file: str = "<condition>") -> CodeType:
    """Returns the code of a user's expression, in which `ray` is what scope.py makes of it."""
    if "ray" not in expression:
        return compile(expression, file, "eval")
    from . import scope  # which imports this module

    return scope.compiled(expression, file, "eval")


def tell_error(key: int, error: Exception) -> None:
    """Tells the relay, once for each breakpoint, what its condition raised."""
    if key not in _reported:
        _reported.add(key)
        send(EVENT, {"key": key, "what": "error", "text": described(error)[:LONGEST], "task": task()})


def described(error: Exception) -> str:
    """Returns the error's class and text, in which a user's code may raise once more."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return type(error).__name__


def context() -> Any:
    """Returns Ray's context, which knows the task of each thread; None where there is no Ray."""
    try:
        return sys.modules["ray"].get_runtime_context()
    except Exception:
        return None


def task(known: Any = None) -> str:
    """Returns the task that this thread runs, or what a thread of Ray's libraries runs; empty for others.

    `known` is Ray's context, where the caller has it.
    """
    try:
        worker = sys.modules.get("ray._private.worker")
        # A driver isn't asked: Ray would write an error line into the job's output.
        if worker is not None and worker.global_worker.mode == worker.SCRIPT_MODE:
            return ""
        return str((known or context()).get_task_name() or _trial() or _rank())[:LONGEST]
    except Exception:
        return ""


def task_id() -> Any:
    """Returns what is another in each task that a thread runs; None where there is no Ray."""
    try:
        return sys.modules["ray._private.worker"].global_worker.core_worker.get_current_task_id()
    except Exception:
        return None


def _trial() -> str:
    """Returns the trial of Ray Tune, which runs functions in a thread of its own; empty without one."""
    module = sys.modules.get("ray.train._internal.session")
    return str(getattr(module and module.get_session(), "trial_name", "") or "")


def _rank() -> str:
    """Returns the rank of Ray Train, which trains in a thread of its own; empty where there is none."""
    module = sys.modules.get("ray.train.v2._internal.execution.context")
    if module is None:
        return ""
    train = module.get_train_context()
    return f"{train.get_experiment_name() or 'train'} rank {train.get_world_rank()}"


def unsent() -> int:
    try:
        return int(debugger().writer._cmd_queue.qsize())
    except Exception:
        return 0


def send(event: str, body: dict[str, Any]) -> bool:
    """Sends an event; returns whether there is a relay to send it to."""
    try:
        writer = debugger().writer
        command = sys.modules["_pydevd_bundle.pydevd_net_command"].NetCommand
        message = {"type": "event", "event": event, "body": body}
        writer.add_command(command(_CMD_WRITE_TO_CONSOLE, 0, message, is_json=True))
        return not writer._kill_received
    except Exception:  # the debugger has gone
        return False


def debugger() -> Any:
    return sys.modules["pydevd"].get_global_debugger()


# Where the relay has it imported, there is a debugger from the beginning, and any thread may ask from now on.
if "pydevd" in sys.modules and debugger() is not None:
    _wake_at_detach()
