"""Stops at the first line of a task which a thread of another process has stepped into.

Ray runs a task by the function in its FunctionExecutionInfo. While tasks are expected, these functions are
wrapped; a task whose id is expected is stepped into from there. What runs before, such as the unpickling of
arguments, does not stop. The id is known only once the task is submitted: a task of that function that
comes earlier waits for it, for at most PATIENCE.

It leans on `execution_infos` and `get_execution_info` of Ray's FunctionActorManager (Ray 2.39 to 2.60), and
on pydevd 1.8.22: `internal_step_in_thread` in pydevd_comm.py does what `_step_in` does.
"""

from __future__ import annotations

import functools
import inspect
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from .. import tracing
from . import reached

EVENT = "raysideRemoteCall"  # as in remote_calls.py
# Seconds that a task waits for the id of the one that is expected.
PATIENCE = 2.0
_MARK = "_rayside_starts"
_NOT_STEPPING, _RUNS, _STEP_IN, _STEP_IN_MY_CODE = -1, 1, 107, 144  # pydevd's constants

_changed = threading.Condition()
_expected: dict[int, tuple[str, str]] = {}


def expect(calls: Mapping[int, tuple[str, str]]) -> bool:
    """Makes these the tasks that are expected; returns whether this process runs Ray's tasks.

    Args:
        calls: of each call its function's bare name, and its task's id in hex, empty while that is not known;
            by the relay's number.
    """
    worker = sys.modules.get("ray._private.worker")
    if worker is None:
        return False
    manager = worker.global_worker.function_actor_manager
    with _changed:
        _expected.clear()
        _expected.update(calls)
        _changed.notify_all()
    if calls:
        _wrap_later(type(manager))
    for descriptor, info in list(manager.execution_infos.items()):
        manager.execution_infos[descriptor] = wrapped(info) if calls else _unwrapped(info)
    return True


def _wrap_later(owner: Any) -> None:
    get = owner.get_execution_info
    if hasattr(get, _MARK):
        return

    @functools.wraps(get)
    def get_execution_info(self: Any, *args: Any, **kwargs: Any) -> Any:
        info = get(self, *args, **kwargs)
        module: Any = sys.modules.get(__name__)
        return info if module is None or not module._expected else module.wrapped(info)

    setattr(get_execution_info, _MARK, True)
    owner.get_execution_info = get_execution_info


def wrapped(info: Any) -> Any:
    """Returns a FunctionExecutionInfo whose function stops where its task is expected."""
    function = info.function
    if hasattr(function, _MARK):
        return info
    name = str(info.function_name).rpartition(".")[2]

    # Ray reads attributes of an actor's method, which this copies.
    @functools.wraps(function)
    def task(*args: Any, **kwargs: Any) -> Any:
        # It is looked up: the module is imported anew for each connection.
        module: Any = sys.modules.get(__name__)
        if module is None or not module._expected:
            return function(*args, **kwargs)
        return module.run(name, function, args, kwargs)

    setattr(task, _MARK, function)
    return info._replace(function=task)


def _unwrapped(info: Any) -> Any:
    return info._replace(function=getattr(info.function, _MARK, info.function))


def run(name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Runs a task's function, and steps into it where the task is expected."""
    call = 0
    with suppress(Exception):  # the task itself has to run
        call = _awaited(name)
    step = None
    with suppress(Exception):
        step = _step_in(call) if call else None
    result = None
    try:
        result = function(*args, **kwargs)
        return result
    finally:
        # A coroutine, or a generator, has not begun.
        if step is not None and not (
            inspect.iscoroutine(result) or inspect.isgenerator(result) or inspect.isasyncgen(result)
        ):
            with suppress(Exception):
                _end(step)


def _awaited(name: str) -> int:
    """Returns the call by which the task of this thread is expected, which it is no more; 0 for none."""
    task = task_id()
    until = time.monotonic() + PATIENCE
    with _changed:
        while not reached._is_detached:
            for call, (_, expected) in _expected.items():
                if task and expected == task:
                    del _expected[call]
                    return call
            is_early = any(not expected and name == of for of, expected in _expected.values())
            left = until - time.monotonic()
            if not is_early or left <= 0:
                return 0
            # A relay that dies tells nobody.
            _changed.wait(min(left, 0.2))
    return 0


def task_id() -> str:
    """Returns the id, in hex, of the task that this thread runs; empty where it runs none."""
    try:
        return str(sys.modules["ray"].get_runtime_context().get_task_id() or "")
    except Exception:
        return ""


def _step_in(call: int) -> Any:
    """Makes this thread stop at the user's next line; returns pydevd's state of it, and this step's mark."""
    pydevd = reached.debugger()
    if pydevd is None or not reached.send(EVENT, {"key": call, "what": "entered"}):
        return None
    # It would say, once, that a step in has left out the code of Ray's that calls an actor's method.
    pydevd.notify_skipped_step_in_because_of_filters = lambda frame: None
    states = sys.modules["_pydevd_bundle.pydevd_additional_thread_info"]
    info = states.set_additional_thread_info(threading.current_thread())
    command = _STEP_IN_MY_CODE if pydevd.get_use_libraries_filter() else _STEP_IN
    info.pydev_original_step_cmd = info.pydev_step_cmd = command
    info.pydev_step_stop = None
    # pydevd has a frame and its line here, and clears that when the thread stops.
    mark = info.step_in_initial_location = (sys._getframe(), -1)
    info.pydev_state = _RUNS
    info.update_stepping_info()
    if sys.modules["_pydevd_bundle.pydevd_constants"].PYDEVD_USE_SYS_MONITORING:
        monitoring = sys.modules["_pydevd_sys_monitoring.pydevd_sys_monitoring"]
        monitoring.start_monitoring(all_threads=True)
        monitoring.update_monitor_events(suspend_requested=True)
        monitoring.restart_events()
    pydevd.enable_tracing()
    return info, mark


def _end(step: tuple[Any, Any]) -> None:
    """Ends a step that has not stopped, for the task had no line of the user's: the next task runs on."""
    info, mark = step
    if info.step_in_initial_location is not mark:
        return
    info.pydev_original_step_cmd = info.pydev_step_cmd = _NOT_STEPPING
    info.step_in_initial_location = None
    info.update_stepping_info()
    # It sleeps again: compiled.py decides that or, where there has been no breakpoint, tracing.py.
    settle = getattr(reached.debugger(), "rayside_settle", tracing.settle)
    settle()
