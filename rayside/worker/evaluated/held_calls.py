"""Notices calls of Ray's `.remote()` in a thread that steps into them, and tells the relay of their tasks.

Who steps into such a call means the task. pydevd steps over it, for what it runs here is Ray's own code. So
the thread asks the relay before it submits the task, and waits until every debuggee knows; afterwards it
tells the task's id. Nothing is added to the call, and a thread that does not step in pays one comparison.

It leans on `_remote` of Ray's RemoteFunction, ActorMethod and ActorClass, and on pydevd 1.8.22: on what
`_do_wait_suspend` in its main module leaves in the thread's state.
"""

from __future__ import annotations

import functools
import itertools
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import FrameType
from typing import Any

from . import reached

EVENT = "raysideRemoteCall"
# Seconds that the call waits for the relay; then the task is submitted all the same.
PATIENCE = 2.0
# The most frames of the caller that are told, and the most characters of each name in them.
MOST_FRAMES, LONGEST = 50, 500
_MARK = "_rayside_notices"
# pydevd's commands: CMD_STEP_INTO, CMD_STEP_INTO_MY_CODE, and what these become in a coroutine.
_STEP_IN, _STEPPING_IN = (107, 144), (107, 144, 206)
# Between the user's line and `_remote` there is nothing but these modules of Ray's.
_BETWEEN = frozenset(
    {
        *("ray.remote_function", "ray.actor", "ray.util.tracing.tracing_helper"),
        *("ray._private.auto_init_hook", "ray._private.client_mode_hook"),
    }
)
_calls = itertools.count(1)


class _Told(tuple[Any, ...]):
    """Pydevd's note of where a step began, once a call of that step was told: the first one counts."""


def begin() -> bool:
    """Notices calls from now on; returns whether Ray is there. It may be called as often as one likes."""
    function, actor = sys.modules.get("ray.remote_function"), sys.modules.get("ray.actor")
    if function is None or actor is None:
        return False
    _tell_of_other_code(reached.debugger())
    _notice(function.RemoteFunction, lambda remote: str(remote._function_name).rpartition(".")[2])
    _notice(actor.ActorMethod, lambda method: str(method._method_name))
    _notice(actor.ActorClass, lambda _: "__init__")
    return True


def _tell_of_other_code(pydevd: Any) -> None:
    """Keeps pydevd from reporting code that a step left out: Ray's, between the line and the task."""
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
        # It is looked up: the module is imported anew for each connection.
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
    """Tells the relay of a call that this thread steps into, and waits for it; `frame` made the call.

    Returns:
        The call's number; 0 where nobody steps into it.
    """
    info = getattr(threading.current_thread(), "additional_info", None)
    if info is None or info.pydev_original_step_cmd not in _STEP_IN:
        return 0
    began = info.step_in_initial_location  # the frame and the line
    if type(began) is not tuple or info.pydev_step_cmd not in _STEPPING_IN:
        return 0
    while frame is not None and frame.f_globals.get("__name__") in _BETWEEN:
        frame = frame.f_back
    # In each other frame of the user's own the step would have ended; the rest is a library's call.
    if frame is None or frame is not began[0]:
        return 0
    info.step_in_initial_location = _Told(began)
    call = next(_calls)
    try:
        told = {
            **{"key": call, "what": "call", "function": name_of(remote)[:LONGEST]},
            **{"frames": [*_frames(frame)], "threadId": _thread_id()},
            **{"task": reached.task(), "taskId": task_id()},
        }
        return call if [*reached.ask(told, PATIENCE, EVENT), False][0] else 0
    except Exception:  # the program's own call goes on
        return 0


def submitted(call: int, result: Any) -> None:
    """Tells the id of the task that a call has started; none where it failed, or does not say."""
    task = ""
    with suppress(Exception):
        task = _task_of(result)
    with suppress(Exception):
        reached.send(EVENT, {"key": call, "what": "called", "taskId": task})


def _task_of(result: Any) -> str:
    """Returns the id, in hex, of the task whose ObjectRefs, generator or actor that is."""
    first: Any = result[0] if isinstance(result, (list, tuple)) else result
    if isinstance(first, sys.modules["ray.actor"].ActorHandle):
        ids = sys.modules["ray._raylet"].TaskID
        return str(ids.for_actor_creation_task(first._ray_actor_id).hex())
    return str(getattr(first, "_generator_ref", first).task_id().hex())


def task_id() -> str:
    """Returns the id, in hex, of the task that this thread runs; empty in a driver."""
    try:
        worker = sys.modules["ray._private.worker"]
        if worker.global_worker.mode != worker.WORKER_MODE:
            return ""
        return str(sys.modules["ray"].get_runtime_context().get_task_id() or "")
    except Exception:
        return ""


def _frames(frame: FrameType | None) -> Iterator[dict[str, Any]]:
    """Returns DAP's StackFrame, without an id, for each of the user's own frames from there on."""
    files, pydevd = sys.modules["pydevd_file_utils"], reached.debugger()
    number = 0
    while frame is not None and number < MOST_FRAMES:
        path = files.get_abs_path_real_path_and_base_from_frame(frame)
        hidden = pydevd.get_file_type(frame, path) is not None
        if not (
            hidden or (pydevd.is_files_filter_enabled and pydevd.apply_files_filter(frame, path[0], False))
        ):
            number += 1
            yield {
                "name": frame.f_code.co_name[:LONGEST],
                "source": {"path": path[0]},
                "line": frame.f_lineno,
                "column": 1,
            }
        frame = frame.f_back


def _thread_id() -> Any:
    """Returns DAP's number of this thread."""
    name = sys.modules["_pydevd_bundle.pydevd_constants"].get_current_thread_id(threading.current_thread())
    schema = sys.modules["_pydevd_bundle._debug_adapter.pydevd_base_schema"].BaseSchema
    return schema._translate_id_to_dap(name)
