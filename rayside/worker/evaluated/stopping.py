"""Stops at compiled-in breakpoints, as at pydevd's own, and the choice of breakpoints to compile in.

pydevd keeps the breakpoints, and handles the stops. While it traces a frame itself (a step, a pause, a filter
for raised exceptions), compiled-in breakpoints of the frame's code have no effect.

This relies on pydevd 1.8.22: `_stop_on_breakpoint` in pydevd_sys_monitoring.py is the model of `_stop`.
"""

from __future__ import annotations

import contextlib
import re
import sys
import threading
from types import FrameType
from typing import Any

from .. import tracing
from . import entering

# CMD_SET_BREAK and others, in pydevd's constants.
_BREAKPOINT, _RUNNING, _SUSPENDED, _NOT_STEPPING = 111, 1, 2, -1
_CALL = re.compile(r"__rayside__\((\d+)\)\Z")  # conditions that the relay sets: stop_points.py

# Limit in bytes from the first inserted instruction of a breakpoint to its last call (inserted.py).
_LONGEST_CALL = 200
_untraced: set[threading.Thread] = set()  # threads in `_stop` that pydevd does not trace
_told_replaced: list[bool] = []  # not empty after the report of `_tell_replaced`
_here = threading.local()  # `stops`: this thread is in `_stop`; `noticed`: pydevd itself stopped there

Lines = dict[int, str]  # by line, pydevd's condition, or an empty text


class Place:
    """A line of a file with a compiled-in breakpoint; `call` is its condition in pydevd."""

    __slots__ = ("_call", "_file", "_line")

    def __init__(self, file: str, line: int, call: str) -> None:
        self._file, self._line, self._call = file, line, call

    def reach(self) -> None:
        """Stops the thread at this line if the breakpoint's condition holds."""
        _stop(self._file, self._line, sys._getframe(1), "")

    def stop(self) -> None:
        """Stops the thread at this line; the condition is known to hold."""
        _stop(self._file, self._line, sys._getframe(1), self._call)

    def raised(self, error: Exception) -> bool:
        """Reports an exception of the condition, which counts as false."""
        key = key_of(self._call)
        if key is not None:
            _reached().tell_error(key, error)
        return False


def remember_stops(pydevd: Any) -> None:
    """Prevents a second stop at a compiled-in breakpoint after pydevd has stopped at the same line.

    A step stops at a line before the call that is compiled into it, and when the thread resumes from there,
    pydevd no longer traces it.
    """
    wait = pydevd.do_wait_suspend

    def do_wait_suspend(thread: Any, frame: Any, event: str, *arguments: Any, **options: Any) -> None:
        try:
            wait(thread, frame, event, *arguments, **options)
        except BaseException:  # The task was cancelled while it was stopped.
            with contextlib.suppress(Exception):  # pydevd may have ended.
                _goes_on(pydevd, thread)
            raise
        is_due = event == "line" and not getattr(_here, "stops", False) and _would_stop(pydevd, frame)
        _here.noticed = (id(frame), frame.f_lasti) if is_due else None

    pydevd.do_wait_suspend = do_wait_suspend


def _goes_on(pydevd: Any, thread: Any) -> None:
    """Makes pydevd report a thread as running: a thread in the state stopped ignores all breakpoints."""
    info = thread.additional_info
    info.pydev_original_step_cmd = info.pydev_step_cmd = _NOT_STEPPING
    info.pydev_step_stop, info.pydev_state = None, _RUNNING
    info.update_stepping_info()
    ident = sys.modules["_pydevd_bundle.pydevd_constants"].get_current_thread_id(thread)
    pydevd.writer.add_command(pydevd.cmd_factory.make_thread_run_message(pydevd, ident, _NOT_STEPPING))


def _would_stop(pydevd: Any, frame: FrameType) -> bool:
    """Returns whether the frame's line has a breakpoint whose condition holds, so that it would stop."""
    file = sys.modules["pydevd_file_utils"].get_abs_path_real_path_and_base_from_frame(frame)[1]
    bp = pydevd.breakpoints.get(file, {}).get(frame.f_lineno)
    condition = condition_of(bp.condition or "") if bp is not None else ""
    try:
        return bp is not None and (not condition or bool(eval(condition, frame.f_globals, frame.f_locals)))
    except Exception:
        return False


def _was_noticed(frame: FrameType) -> bool:
    at, _here.noticed = getattr(_here, "noticed", None), None
    return at is not None and at[0] == id(frame) and 0 <= frame.f_lasti - at[1] <= _LONGEST_CALL


def wanted(pydevd: Any) -> tuple[dict[str, Lines], bool]:
    """Returns the breakpoints that can be compiled in, and whether there are others."""
    files: dict[str, Lines] = {}
    others = False
    for file, by_line in list(pydevd.breakpoints.items()):
        for line, bp in list(by_line.items()):
            condition = bp.condition or ""
            # pydevd itself evaluates other conditions than the relay's, hit conditions and messages.
            is_pydevds = bp.hit_condition or bp.is_logpoint or bp.expression
            is_pydevds = is_pydevds or (condition and key_of(condition) is None)
            if is_pydevds or str(file).startswith("<"):
                others = True
            else:
                files.setdefault(str(file), {})[int(line)] = condition
    return files, others


def key_of(condition: str | None) -> int | None:
    match = _CALL.match(condition or "")
    return int(match[1]) if match else None


def condition_of(call: str) -> str:
    """Returns the user's condition of a breakpoint with the relay's call; empty without one."""
    key = key_of(call)
    point = _reached()._points.get(key) if key is not None else None
    return str(getattr(point, "condition", ""))


def _stop(file: str, line: int, frame: FrameType, holds: str) -> None:
    """Handles a line with a breakpoint as pydevd does; `holds` is a condition that is known to hold."""
    if entering.is_ours():
        return  # This thread holds the lock of compiled.py, which is required to resume it.
    pydevd = tracing.debugger()
    # Looked up, because a running frame keeps its code when its breakpoints change.
    bp = None if pydevd is None else pydevd.breakpoints.get(file, {}).get(line)
    if _was_noticed(frame) or bp is None or _is_traced(frame) or is_filtered(pydevd, frame):
        return
    thread = threading.current_thread()
    if tracing.is_pydevds(thread):
        return
    info = sys.modules["_pydevd_bundle.pydevd_additional_thread_info"].set_additional_thread_info(thread)
    # Evaluated code, in a stopped thread or for a condition, does not stop.
    if info.pydev_state == _SUSPENDED or info.is_tracing or _is_in_condition(frame):
        return
    info.is_tracing += 1
    try:
        key = key_of(bp.condition)
        if key is not None and not _reached().decides(key, frame, holds == bp.condition):
            return
    finally:
        info.is_tracing -= 1
    if bp.suspend_policy == "ALL":
        tracing.wake()
    info.hit_breakpoint_ids = [bp.breakpoint_id]
    _here.stops = True
    if not _is_pydevds_function(sys.gettrace()):
        _untraced.add(thread)
    try:
        with _Untraced(info):  # as in pydevd's own handling of lines
            pydevd.set_suspend(thread, _BREAKPOINT, suspend_other_threads=bp.suspend_policy == "ALL")
            pydevd.do_wait_suspend(thread, frame, "line", None)
    finally:
        _here.stops = False
        _untraced.discard(thread)
    if info.pydev_step_cmd != _NOT_STEPPING:
        _tell_replaced()
        pydevd.enable_tracing()


def is_tracing_stopped_threads() -> bool:
    """Returns whether pydevd traces a stopped thread, as after a step or `breakpoint()`."""
    stopped = {
        thread
        for thread in threading.enumerate()
        if getattr(getattr(thread, "additional_info", None), "pydev_state", _RUNNING) == _SUSPENDED
    }
    return not stopped or not stopped <= _untraced


def _tell_replaced() -> None:
    """Reports in the job's output, once, which trace function a step replaces."""
    trace: Any = sys.gettrace()
    if tracing.monitoring() or trace is None or _is_pydevds_function(trace) or _told_replaced:
        return
    _told_replaced.append(True)
    sys.stderr.write(
        f"rayside: {_module_of(trace)} traces this thread too, and misses what it runs from this step on, "
        "for Python has one trace function for each thread; it misses none where a stop is continued.\n"
    )
    sys.stderr.flush()


class _Untraced:
    """Context in which pydevd does not trace this thread, neither for stops nor for steps.

    Not from contextlib, because pydevd would step into that.
    """

    def __init__(self, info: Any) -> None:
        self._info = info
        self._monitoring = None if info is None else tracing.monitoring()

    def __enter__(self) -> None:
        if self._info is not None:
            self._info.is_tracing += 1
        if self._monitoring is not None:
            self._info.trace_suspend_type = "sys_monitor"
            self._monitoring.suspend_current_thread_tracing()

    def __exit__(self, *_: object) -> None:
        if self._info is not None:
            self._info.is_tracing -= 1
        if self._monitoring is not None:
            self._monitoring.resume_current_thread_tracing()


def passed_over() -> _Untraced:
    """Returns a context in which pydevd does not trace this thread, unless it is pydevd's own thread."""
    thread = threading.current_thread()
    info = None
    if tracing.debugger() is not None and not tracing.is_pydevds(thread):
        threads = sys.modules["_pydevd_bundle.pydevd_additional_thread_info"]
        info = threads.set_additional_thread_info(thread)
    return _Untraced(info)


def notice_lines_of(frames: list[FrameType]) -> None:
    """Makes pydevd trace lines of suspended generators: sys.monitoring does not report their resumption."""
    if monitoring := tracing.monitoring():
        for frame in frames:
            monitoring.enable_code_tracing(threading.get_ident(), frame.f_code, frame)


def _is_traced(frame: FrameType) -> bool:
    """Returns whether pydevd itself traces the frame's lines."""
    if tracing.monitoring():
        monitoring: Any = sys.monitoring  # type: ignore[attr-defined]
        tool = monitoring.DEBUGGER_ID
        if monitoring.get_tool(tool) != "pydevd":
            return False
        return bool(monitoring.get_local_events(tool, frame.f_code) & monitoring.events.LINE)
    trace: Any = sys.gettrace()
    return trace is not None and frame.f_trace is not None and _is_pydevds_function(trace)


def _is_pydevds_function(trace: object) -> bool:
    return _module_of(trace).startswith(("pydevd", "_pydevd"))


def _module_of(trace: object) -> str:
    return str(getattr(trace, "__module__", None) or type(trace).__module__)


def is_filtered(pydevd: Any, frame: FrameType) -> bool:
    """Returns whether pydevd neither shows a frame nor stops in it: its own, Rayside's, a library's."""
    files = sys.modules["pydevd_file_utils"]
    path = files.get_abs_path_real_path_and_base_from_frame(frame)
    if pydevd.get_file_type(frame, path) is not None:
        return True
    return bool(pydevd.is_files_filter_enabled and pydevd.apply_files_filter(frame, path[0], False))


def _is_in_condition(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename == "<condition>":
            return True
        frame = frame.f_back
    return False


def tells_loops() -> bool:
    """Returns whether pydevd reports a line again after a jump back to its own line.

    It uses sys.monitoring's jump events on Python 3.12, and not from 3.13 on.
    """
    return not tracing.monitoring() or sys.version_info < (3, 13)


def _reached() -> Any:
    """Returns the module reached.py of the current connection (`begin` in this package)."""
    from . import reached

    return reached
