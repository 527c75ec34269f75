"""Steps into Ray's `.remote()`: detects such a call, and stops at the first line of its task in a worker.

A step into such a call means a step into the task. pydevd steps over it, because the call itself only runs
Ray's code. So the thread asks the relay before it submits the task, and waits until every debuggee is
notified; afterwards it sends the task's id. The call itself is unchanged, and without a step in it costs one
comparison.

Ray runs a task through the function in its FunctionExecutionInfo. While tasks are expected, these functions
are wrapped; a task with an expected id is stepped into from there. Earlier code, such as the unpickling of
arguments, does not stop. The id is known only after the task is submitted: a task of that function that
starts before waits for the id, for at most PATIENCE.

This relies on `_remote` of Ray's RemoteFunction, ActorMethod and ActorClass, on `execution_infos` and
`get_execution_info` of its FunctionActorManager (Ray 2.39 to 2.60), and on pydevd 1.8.22: on the thread state
that `_do_wait_suspend` in its main module sets, and `internal_step_in_thread` in pydevd_comm.py, the model of
`_step_in`.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from types import FrameType
from typing import Any

from .. import tracing
from . import scope, stopping, telling

EVENT = "raysideRemoteCall"
# Timeout in seconds for the relay's answer, after which the task is submitted anyway; and for a task to wait
# for the expected id.
PATIENCE = 2.0
# Limits: frames of the caller that are reported, and characters of each name in them.
MOST_FRAMES, LONGEST = 50, 500
_MARK, _STARTS = "_rayside_notices", "_rayside_starts"
# pydevd's commands: CMD_STEP_INTO, CMD_STEP_INTO_MY_CODE, and their replacement in a coroutine.
_STEP_IN, _STEPPING_IN = (107, 144), (107, 144, 206)
# Ray's modules with frames between the user's line and `_remote`.
_BETWEEN = frozenset(
    {
        *("ray.remote_function", "ray.actor", "ray.util.tracing.tracing_helper"),
        *("ray._private.auto_init_hook", "ray._private.client_mode_hook"),
    }
)
_calls = itertools.count(1)


class _Told(tuple[Any, ...]):
    """pydevd's record of a step's start, after the step's first call was reported: later ones don't count."""


def begin() -> bool:
    """Detects calls from now on; returns whether Ray is imported. May be called again."""
    function, actor = sys.modules.get("ray.remote_function"), sys.modules.get("ray.actor")
    if function is None or actor is None:
        return False
    _tell_of_other_code(tracing.debugger())
    _notice(function.RemoteFunction, lambda remote: str(remote._function_name).rpartition(".")[2])
    _notice(actor.ActorMethod, lambda method: str(method._method_name))
    _notice(actor.ActorClass, lambda _: "__init__")
    return True


def _tell_of_other_code(pydevd: Any) -> None:
    """Keeps pydevd from reporting Ray's code between the line and the task as skipped by a step."""
    tell = pydevd.notify_skipped_step_in_because_of_filters
    if hasattr(tell, _MARK):
        return

    def notify(frame: FrameType) -> None:
        if frame.f_globals.get("__name__") not in _BETWEEN:
            tell(frame)

    setattr(notify, _MARK, True)
    pydevd.notify_skipped_step_in_because_of_filters = notify


def _notice(owner: Any, name_of: Callable[[Any], str]) -> None:
    submit = owner._remote
    if hasattr(submit, _MARK):
        return

    @functools.wraps(submit)
    def _remote(self: Any, *args: Any, **kwargs: Any) -> Any:
        # Looked up, because the module is imported anew for each connection.
        module: Any = sys.modules.get(__name__)
        call = module.called(self, name_of, sys._getframe(1)) if module is not None else 0
        if not call:
            return submit(self, *args, **kwargs)
        result = None
        try:
            result = submit(self, *args, **kwargs)
            return result
        finally:
            module.submitted(call, result)

    setattr(_remote, _MARK, True)
    owner._remote = _remote


def called(remote: Any, name_of: Callable[[Any], str], frame: FrameType | None) -> int:
    """Reports a call that this thread steps into to the relay, and waits for it; `frame` made the call.

    Returns:
        The call's number; 0 without a step into it.
    """
    info = getattr(threading.current_thread(), "additional_info", None)
    if info is None or info.pydev_original_step_cmd not in _STEP_IN:
        return 0
    began = info.step_in_initial_location  # the frame and the line
    if type(began) is not tuple or info.pydev_step_cmd not in _STEPPING_IN:
        return 0
    while frame is not None and frame.f_globals.get("__name__") in _BETWEEN:
        frame = frame.f_back
    # In any other frame of user code the step would have ended; the remaining calls are a library's.
    if frame is None or frame is not began[0]:
        return 0
    info.step_in_initial_location = _Told(began)
    call = next(_calls)
    try:
        told = {
            **{"key": call, "what": "call", "function": name_of(remote)[:LONGEST]},
            **{"frames": [*_frames(frame)], "threadId": _thread_id()},
            **{"task": scope.task(), "taskId": task_id()},
        }
        return call if [*telling.ask(EVENT, told, PATIENCE), False][0] else 0
    except Exception:  # the program's own call continues
        return 0


def submitted(call: int, result: Any) -> None:
    """Reports the id of the task that a call has started; an empty one if it failed, or is unknown."""
    task = ""
    with suppress(Exception):
        task = _task_of(result)
    with suppress(Exception):
        telling.send(EVENT, {"key": call, "what": "called", "taskId": task})


def _task_of(result: Any) -> str:
    """Returns the id, in hex, of the task of a call's result: ObjectRefs, a generator or an actor."""
    first: Any = result[0] if isinstance(result, (list, tuple)) else result
    if isinstance(first, sys.modules["ray.actor"].ActorHandle):
        ids = sys.modules["ray._raylet"].TaskID
        return str(ids.for_actor_creation_task(first._ray_actor_id).hex())
    return str(getattr(first, "_generator_ref", first).task_id().hex())


def task_id() -> str:
    """Returns the id, in hex, of this thread's task; empty without one, as in a driver."""
    try:
        worker = sys.modules["ray._private.worker"]
        if worker.global_worker.mode != worker.WORKER_MODE:
            return ""
        return str(sys.modules["ray"].get_runtime_context().get_task_id() or "")
    except Exception:
        return ""


def _frames(frame: FrameType | None) -> Iterator[dict[str, Any]]:
    """Yields a DAP StackFrame, without an id, for each frame of user code from `frame` outwards."""
    files, pydevd = sys.modules["pydevd_file_utils"], tracing.debugger()
    number = 0
    while frame is not None and number < MOST_FRAMES:
        path = files.get_abs_path_real_path_and_base_from_frame(frame)
        if not stopping.is_filtered(pydevd, frame):
            number += 1
            yield {
                "name": frame.f_code.co_name[:LONGEST],
                "source": {"path": path[0]},
                "line": frame.f_lineno,
                "column": 1,
            }
        frame = frame.f_back


def _thread_id() -> Any:
    """Returns DAP's id of this thread."""
    name = sys.modules["_pydevd_bundle.pydevd_constants"].get_current_thread_id(threading.current_thread())
    schema = sys.modules["_pydevd_bundle._debug_adapter.pydevd_base_schema"].BaseSchema
    return schema._translate_id_to_dap(name)


# --- in the task's process ----------------------------------------------------------------

_NOT_STEPPING, _RUNS = -1, 1  # pydevd's constants

_changed = threading.Condition()
_expected: dict[int, tuple[str, str]] = {}


def expect(calls: Mapping[int, tuple[str, str]]) -> bool:
    """Sets the expected tasks; returns whether this process runs Ray's tasks.

    Args:
        calls: for each call, by the relay's number, its function's bare name, and its task's id in hex, empty
            while unknown.
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
    if hasattr(get, _STARTS):
        return

    @functools.wraps(get)
    def get_execution_info(self: Any, *args: Any, **kwargs: Any) -> Any:
        info = get(self, *args, **kwargs)
        module: Any = sys.modules.get(__name__)
        return info if module is None or not module._expected else module.wrapped(info)

    setattr(get_execution_info, _STARTS, True)
    owner.get_execution_info = get_execution_info


def wrapped(info: Any) -> Any:
    """Returns a FunctionExecutionInfo whose function stops if its task is expected."""
    function = info.function
    if hasattr(function, _STARTS):
        return info
    name = str(info.function_name).rpartition(".")[2]

    # `wraps` copies the attributes that Ray reads from an actor's method.
    @functools.wraps(function)
    def task(*args: Any, **kwargs: Any) -> Any:
        # Looked up, because the module is imported anew for each connection.
        module: Any = sys.modules.get(__name__)
        if module is None or not module._expected:
            return function(*args, **kwargs)
        return module.run(name, function, args, kwargs)

    setattr(task, _STARTS, function)
    return info._replace(function=task)


def _unwrapped(info: Any) -> Any:
    return info._replace(function=getattr(info.function, _STARTS, info.function))


def run(name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Runs a task's function, and steps into it if the task is expected."""
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
        # A coroutine, or a generator, has not started yet.
        if step is not None and not (
            inspect.iscoroutine(result) or inspect.isgenerator(result) or inspect.isasyncgen(result)
        ):
            with suppress(Exception):
                _end(step)


def _awaited(name: str) -> int:
    """Returns the call that expects this thread's task, and removes it; 0 without one."""
    task = task_id()
    until = time.monotonic() + PATIENCE
    with _changed:
        while not telling._is_detached:
            for call, (_, expected) in _expected.items():
                if task and expected == task:
                    del _expected[call]
                    return call
            is_early = any(not expected and name == of for of, expected in _expected.values())
            left = until - time.monotonic()
            if not is_early or left <= 0:
                return 0
            # There is no event if a relay dies.
            _changed.wait(min(left, 0.2))
    return 0


def _step_in(call: int) -> Any:
    """Makes this thread stop at the next line of user code; returns pydevd's thread state, and a mark."""
    pydevd = tracing.debugger()
    if pydevd is None or not telling.send(EVENT, {"key": call, "what": "entered"}):
        return None
    # It would report, once, that a step in has skipped Ray's code that calls an actor's method.
    pydevd.notify_skipped_step_in_because_of_filters = lambda frame: None
    states = sys.modules["_pydevd_bundle.pydevd_additional_thread_info"]
    info = states.set_additional_thread_info(threading.current_thread())
    command = _STEP_IN[1] if pydevd.get_use_libraries_filter() else _STEP_IN[0]
    info.pydev_original_step_cmd = info.pydev_step_cmd = command
    info.pydev_step_stop = None
    # pydevd stores a frame and its line here, and clears that when the thread stops.
    mark = info.step_in_initial_location = (sys._getframe(), -1)
    info.pydev_state = _RUNS
    info.update_stepping_info()
    if monitoring := tracing.monitoring():
        monitoring.start_monitoring(all_threads=True)
        monitoring.update_monitor_events(suspend_requested=True)
        monitoring.restart_events()
    pydevd.enable_tracing()
    return info, mark


def _end(step: tuple[Any, Any]) -> None:
    """Ends a step that has not stopped, as in a task without user code: the next task must not stop."""
    info, mark = step
    if info.step_in_initial_location is not mark:
        return
    info.pydev_original_step_cmd = info.pydev_step_cmd = _NOT_STEPPING
    info.step_in_initial_location = None
    info.update_stepping_info()
    # Tracing may sleep again: compiled.py decides or, if it has not begun, tracing.py.
    settle = getattr(tracing.debugger(), "rayside_settle", tracing.settle)
    settle()
