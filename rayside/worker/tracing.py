"""Switch for debugpy's tracing in a whole process, so that listening costs nothing.

Once debugpy listens, Python calls it at every function call, with or without a client: a loop of small calls
took nine times as long (Python 3.11). This relies on pydevd, debugpy's engine: `PyDB` in pydevd.py and
pydevd_tracing.py.
A process is awake if `threading.gettrace()` is set: pydevd itself sets it.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

# Attributes of pydevd's debugger: a mark that it wakes by itself, and a replacement of `settle`.
_WAKES, _SETTLE = "rayside_wakes", "rayside_settle"
_TO_OTHERS = 0.001  # seconds for which the GIL is released, for other threads that wait for it
_UNDISTURBED = 0.2  # switch interval in seconds: other threads wait so long before they request the GIL
_NOT_STEPPING, _SUSPENDED = -1, 2  # pydev_step_cmd and pydev_state, in pydevd_constants.py


class OfThisProcess(list[Any]):
    """List that is pickled as an empty list: the workers get this module by value."""

    def __reduce__(self) -> tuple[type[list[Any]], tuple[()]]:
        return list, ()


_pending = OfThisProcess()  # keeps references to calls for the main thread


def sleep() -> None:
    """Turns tracing off in all threads except stopped and stepping ones; `breakpoint()` still stops."""
    db = debugger()
    if db is None:
        return
    busy = _busy()
    if monitoring():
        if not busy:
            _stop_monitoring()
        return
    if not _reaches_all_threads():
        # A thread that is not traced from its start could never be woken: only the main thread sleeps.
        if threading.main_thread().ident not in busy:
            _in_main_thread(db.disable_tracing)
        return
    threading.settrace(None)
    _start_threads_untraced()
    if hasattr(sys, "_settraceallthreads"):
        # One thread with a trace function slows down every thread: none may keep `_gate` for long.
        _settrace_in_all(_gate if busy else None)
    else:
        _set_trace(_gate, _users_threads() - busy)
    for ident, top in sys._current_frames().items():
        frame: Any = top
        while ident not in busy and frame is not None:
            # A loop without calls would be traced line by line until it ends.
            if frame.f_trace is not None:
                frame.f_trace = None
            frame = frame.f_back
    if threading.get_ident() not in busy:
        db.disable_tracing()


def wake() -> None:
    """Turns tracing on in all threads, also in the frames that they run now."""
    db = debugger()
    if db is None:
        return
    if monitoring():
        monitoring().start_monitoring(all_threads=True)
    elif not _reaches_all_threads():
        _in_main_thread(db.enable_tracing)
    else:
        threading.settrace(db.trace_dispatch)
        if hasattr(sys, "_settraceallthreads"):
            _set_trace(db.trace_dispatch, _users_threads() - set(vars(threading)["_active"]))
            _settrace_in_all(db.trace_dispatch)
        else:
            _set_trace(db.trace_dispatch, _users_threads() - _busy())
    db.set_tracing_for_untraced_contexts()


def follow() -> None:
    """Traces this thread if other threads are traced; for threads that Python did not start."""
    if threading.gettrace() is not None and sys.gettrace() is None:
        db = debugger()
        if db is not None and not monitoring():
            threading.current_thread()  # Registers the thread with `threading`: pydevd traces no others.
            db.enable_tracing()


def wake_by_itself() -> None:
    """Makes a debugger's breakpoints and `pause` wake the process, and their removal let it sleep.

    May be called again. With compiled-in breakpoints, compiled.py decides at each change of breakpoints.
    """
    db, api = debugger(), _pydevd("_pydevd_bundle.pydevd_api").PyDevdAPI
    if db is None or hasattr(db, _WAKES):
        return
    setattr(db, _WAKES, True)
    changed = db.on_breakpoints_changed

    def on_breakpoints_changed(removed: bool = False) -> None:
        changed(removed)
        getattr(db, _SETTLE, settle)()

    db.on_breakpoints_changed = on_breakpoints_changed
    if hasattr(api, _WAKES):  # A fork inherits its parent's API class, with a new debugger object.
        return
    setattr(api, _WAKES, True)
    suspend, disconnect = api.request_suspend_thread, api.request_disconnect

    def request_suspend_thread(self: Any, py_db: Any, thread_id: str = "*") -> Any:
        wake()
        return suspend(self, py_db, thread_id)

    def request_disconnect(self: Any, py_db: Any, resume_threads: bool) -> None:
        disconnect(self, py_db, resume_threads)
        sleep()  # Again: when the breakpoints were removed, stopped threads had not resumed yet.

    api.request_suspend_thread = request_suspend_thread
    api.request_disconnect = request_disconnect


def settle() -> None:
    """Wakes the process if there is something to stop at, else lets it sleep."""
    db = debugger()
    (wake if any(db.breakpoints.values()) or something_else_to_stop_at(db) else sleep)()


def leave_out_this_thread() -> None:
    """Ends tracing in one of Rayside's own threads, independent of pydevd's classification.

    With sys.monitoring, pydevd may mistake it for an earlier user thread with the same id (3.12.1).
    """
    if debugger() is None:
        return
    if monitoring():
        monitoring().stop_monitoring(all_threads=False)
    else:
        _pydevd("pydevd_tracing").SetTrace(None)


def is_attached() -> bool:
    """Returns whether a debugger is attached to this process."""
    db = debugger()
    return db is not None and bool(db.is_attached())


def end() -> None:
    """Ends pydevd in a process that was just forked: it lacks pydevd's threads."""
    if debugger() is None:
        return
    if monitoring():
        _stop_monitoring()
    else:
        threading.settrace(None)
        _pydevd("pydevd_tracing").restore_sys_set_trace_func()
        sys.settrace(None)
    frame: Any = sys._getframe()
    while frame is not None:
        frame.f_trace = None
        frame = frame.f_back
    _pydevd("_pydev_bundle.pydev_monkey").undo_patch_thread_modules()
    _pydevd("_pydevd_bundle.pydevd_constants").set_global_debugger(None)


def something_else_to_stop_at(db: Any) -> bool:
    """Returns whether there is something to stop at besides breakpoints at lines."""
    return any(
        (
            db.function_breakpoint_name_to_breakpoint,
            db.break_on_caught_exceptions,
            db.break_on_user_uncaught_exceptions,
        )
    )


def debugger() -> Any:
    """Returns pydevd's debugger; None without one."""
    return _pydevd("pydevd").get_global_debugger() if "pydevd" in sys.modules else None


def _pydevd(module: str) -> Any:
    return sys.modules[module]  # Not importable: debugpy has pydevd on sys.path only while it loads.


def monitoring() -> Any:
    """Returns pydevd's module for sys.monitoring, if it uses that (Python 3.12 on) and not sys.settrace."""
    used = _pydevd("_pydevd_bundle.pydevd_constants").PYDEVD_USE_SYS_MONITORING
    return _pydevd("_pydevd_sys_monitoring.pydevd_sys_monitoring") if used else None


def _stop_monitoring() -> None:
    """Ends monitoring in all threads, and the local events of functions that had breakpoints.

    Python before 3.14 would keep their line events: loops there took up to twice as long.
    """
    pydevds = monitoring()
    monitor = pydevds.monitor
    if monitor.get_tool(monitor.DEBUGGER_ID) == "pydevd":
        # pydevd has this module in C and in Python; this takes the one in use.
        for code in list(_pydevd(pydevds.stop_monitoring.__module__)._code_to_func_code_info_cache):
            if monitor.get_local_events(monitor.DEBUGGER_ID, code):
                monitor.set_local_events(monitor.DEBUGGER_ID, code, 0)
    pydevds.stop_monitoring(all_threads=True)


def _busy() -> set[int]:
    """Returns the idents of the threads that are stopped or stepping: they need their tracing."""
    idents = set()
    for ident, thread in list(vars(threading)["_active"].items()):
        info = getattr(thread, "additional_info", None)
        if info and (info.pydev_state == _SUSPENDED or info.pydev_step_cmd != _NOT_STEPPING):
            idents.add(ident)
    return idents


def _gate(frame: Any, event: str, arg: Any) -> Any:
    """Ends a thread's tracing at its next call, unless it is being stepped."""
    db = debugger()
    if db is None:  # The process is ending; pydevd's own `sys.settrace` would print a warning.
        _pydevd("pydevd_tracing").SetTrace(None)
        return None
    if threading.get_ident() in _busy():
        return db.trace_dispatch(frame, event, arg)
    db.disable_tracing()
    return None


def _start_threads_untraced() -> None:
    pydev_monkey = _pydevd("_pydev_bundle.pydev_monkey")
    start = pydev_monkey._on_set_trace_for_new_thread
    if start.__module__ == pydev_monkey.__name__:
        pydev_monkey._on_set_trace_for_new_thread = lambda db: start(db) if threading.gettrace() else None


def _reaches_all_threads() -> bool:
    """Returns whether a thread can set another's trace function: pydevd's library can up to 3.11, x86-64."""
    return (
        hasattr(sys, "_settraceallthreads") or _pydevd("pydevd_tracing")._load_python_helper_lib() is not None
    )


def _settrace_in_all(function: Any) -> None:
    """Sets the trace function of all threads: `sys._settraceallthreads` (Python 3.12 on).

    Python iterates over the thread states without holding them, and calls audit hooks for each, some of them
    ours: if a thread ends during a hook, Python reads freed memory (seen on 3.12.1 and 3.13.0). So garbage
    collection is off meanwhile, and this starts just after this thread has taken the GIL again, which no
    other thread then requests for a whole switch interval. The default of 5 ms may pass on a busy machine
    while this thread gets no processor.
    """
    collects, interval = gc.isenabled(), sys.getswitchinterval()
    sys.setswitchinterval(_UNDISTURBED)
    held = sys.getswitchinterval()  # as Python keeps it
    try:
        time.sleep(_TO_OTHERS)
        gc.disable()
        sys._settraceallthreads(function)  # type: ignore[attr-defined]
    finally:
        if collects:
            gc.enable()
        if sys.getswitchinterval() == held:  # unless the program has set another
            sys.setswitchinterval(interval)


def _set_trace(function: Any, idents: set[int]) -> None:
    """Sets the trace function of these threads, and registers them with `threading`, as pydevd requires."""
    if idents:
        _introduce(idents)
        set_trace = _pydevd("pydevd_tracing").set_trace_to_threads
        set_trace(function, thread_idents=idents, create_dummy_thread=False)


def _introduce(idents: set[int]) -> None:
    """Registers with `threading` threads that it did not start, such as C++ threads.

    pydevd does so without the lock: its stand-in replaced a thread that was just starting, which then stopped
    and could not be resumed.
    """
    active = vars(threading)["_active"]
    with vars(threading)["_active_limbo_lock"]:
        for ident in idents & set(sys._current_frames()) - set(active):
            active[ident] = _stand_in(ident)


def _stand_in(ident: int) -> threading.Thread:
    """Makes a stand-in for another thread, as `threading.current_thread()` does in an unknown thread.

    `_DummyThread.__init__` is for the calling thread: from Python 3.13 on, the stand-in is removed when that
    thread ends, or makes another.
    """
    thread = threading._DummyThread.__new__(threading._DummyThread)
    threading.Thread.__init__(thread, name=f"Dummy-{ident}", daemon=True)
    vars(thread)["_started"].set()
    vars(thread)["_ident"] = ident
    if hasattr(threading, "_make_thread_handle"):  # from Python 3.13 on
        vars(thread)["_handle"] = threading._make_thread_handle(ident)
    return thread


def is_pydevds(thread: threading.Thread | None) -> bool:
    """Returns whether pydevd ignores a thread: one of its own, or of Rayside's."""
    return any(getattr(thread, name, False) for name in ("pydev_do_not_trace", "is_pydev_daemon_thread"))


def _users_threads() -> set[int]:
    """Returns the idents of the threads that aren't pydevd's own, including threads of Ray's C++ core."""
    threads = threading.enumerate()
    pydevds = {thread.ident for thread in threads if is_pydevds(thread)}
    return {*sys._current_frames(), *(thread.ident for thread in threads if thread.ident)} - pydevds


def _in_main_thread(function: Callable[[], Any]) -> None:
    """Calls `function` in the main thread between two bytecodes, now or when it next runs Python code."""
    if threading.current_thread() is threading.main_thread():
        function()
        return

    def call(_: Any) -> int:
        with contextlib.suppress(Exception):  # An exception would be raised in the user's code.
            function()
            debugger().set_trace_for_frame_and_parents(threading.get_ident(), sys._getframe())
        return 0

    _pending.append(ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(call))
    ctypes.pythonapi.Py_AddPendingCall(_pending[-1], None)


def in_background(function: Callable[[], None]) -> threading.Thread:
    """Runs a function in a new thread that the debugger does not trace, stop or show; returns the thread."""

    def run() -> None:
        leave_out_this_thread()
        function()

    thread = threading.Thread(target=run, name="rayside", daemon=True)
    vars(thread).update(pydev_do_not_trace=True, is_pydev_daemon_thread=True)
    thread.start()
    return thread
