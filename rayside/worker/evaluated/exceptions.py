"""Stops at exceptions in a debuggee: once for each exception, with conditions, and also without tracing.

With several filters pydevd stops for the same exception where it is raised, where it leaves the user's code
and again in the post-mortem: `stop_once`. pydevd detects exceptions that end a program or a thread only by
tracing. With compiled-in breakpoints a process is seldom traced: it stops for these exceptions anyway, after
the stack is unwound (`notice`). Python's audit event reports the main thread's exceptions, whatever function
the program, or Ray, has set as `sys.excepthook`.

This relies on pydevd 1.8.22: `set_suspend`, `do_wait_suspend`, `trigger_exception_handler` and
`do_stop_on_unhandled_exception` of `PyDB`.
https://docs.python.org/3/library/sys.html#sys.excepthook
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

from ..tracing import debugger

# pydevd_comm_constants.py, pydevd_constants.py
_CMD_STEP_CAUGHT_EXCEPTION, _CMD_ADD_EXCEPTION_BREAK = 137, 122
_HANDLED, _USER_UNHANDLED, _UNHANDLED = "HANDLED", "USER_UNHANDLED", "UNHANDLED"
# Pairs of the current and the earlier stop reason, for an exception that the thread has already stopped for.
_AGAIN = {(_USER_UNHANDLED, _HANDLED), (_UNHANDLED, _HANDLED), (_UNHANDLED, _USER_UNHANDLED)}
_MARK, _NOTICES = "_rayside_stops_once", "_rayside_uncaught"
# pydevd's attributes with the exception breakpoints, by DAP's breakMode.
_KEPT = {
    "always": "break_on_caught_exceptions",
    "unhandled": "break_on_uncaught_exceptions",
    "userUnhandled": "break_on_user_uncaught_exceptions",
}
_here = threading.local()  # `told`: the exception that pydevd itself has stopped this thread for

_Raised = tuple[type[BaseException], BaseException, TracebackType | None]


def set_conditions(conditions: Mapping[str, str]) -> list[str]:
    """Sets a condition for each exception filter, by DAP's breakMode; returns filters that can't have one."""
    db = debugger()
    lacking = []
    for mode, condition in conditions.items():
        try:
            getattr(db, _KEPT[mode])["BaseException"].condition = condition
        except Exception:  # another version of pydevd
            lacking.append(mode)
    return lacking


def stop_once() -> None:
    """Makes a thread stop once for an exception, and again only if it is raised anew."""
    db = debugger()
    if hasattr(db, _MARK):
        return
    setattr(db, _MARK, True)
    set_suspend, do_wait_suspend = db.set_suspend, db.do_wait_suspend
    put_off: dict[int, tuple[Any, ...]] = {}  # arguments of deferred `set_suspend` calls, by thread
    stopped_for: dict[int, tuple[Any, ...]] = {}  # exception and reason of the latest stop, by thread

    def set_suspend_later(thread: Any, stop_reason: int, *args: Any, **kwargs: Any) -> None:
        if stop_reason in (_CMD_STEP_CAUGHT_EXCEPTION, _CMD_ADD_EXCEPTION_BREAK):
            put_off[thread.ident] = (stop_reason, args, kwargs)
        else:
            set_suspend(thread, stop_reason, *args, **kwargs)

    def do_wait_suspend_once(
        thread: Any, frame: Any, event: str, arg: Any, exception_type: str | None = None
    ) -> None:
        suspension = put_off.pop(thread.ident, None)
        if suspension is not None:
            exception = _identity(arg)
            earlier, by = stopped_for.get(thread.ident, (None, None))
            # The next exception may have this one's address: each stop reason counts once.
            if exception_type == _UNHANDLED:
                stopped_for.pop(thread.ident, None)
            if earlier == exception and (exception_type, by) in _AGAIN:
                return
            if exception_type != _UNHANDLED:
                stopped_for[thread.ident] = exception, exception_type
            stop_reason, args, kwargs = suspension
            set_suspend(thread, stop_reason, *args, **kwargs)
        do_wait_suspend(thread, frame, event, arg, exception_type)

    db.set_suspend, db.do_wait_suspend = set_suspend_later, do_wait_suspend_once


def _identity(arg: Any) -> tuple[Any, ...]:
    """Identifies an exception, also by where it was raised, without keeping it and its frames alive."""
    kind, value, trace = arg
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return id(value), id(kind), trace and (id(trace.tb_frame.f_code), trace.tb_lineno)


def notice(pydevd: Any, is_wanted: Callable[[], bool]) -> None:
    """Makes pydevd stop once for uncaught exceptions, by its filters, while `is_wanted` returns true.

    May be called again: the last call counts.
    """
    is_new = not hasattr(pydevd, _NOTICES)
    setattr(pydevd, _NOTICES, is_wanted)
    if is_new:
        _remember_stops(pydevd)
    if not hasattr(sys, _NOTICES):  # A fork inherits its parent's hooks, with a new debugger object.
        setattr(sys, _NOTICES, True)
        sys.addaudithook(_audit)
        _stop_for_threads()


def _remember_stops(pydevd: Any) -> None:
    stop = pydevd.do_stop_on_unhandled_exception

    def do_stop_on_unhandled_exception(thread: Any, frame: Any, frames_by_id: Any, raised: _Raised) -> None:
        _here.told = _raised_identity(raised)
        stop(thread, frame, frames_by_id, raised)

    pydevd.do_stop_on_unhandled_exception = do_stop_on_unhandled_exception


def _stop_for_threads() -> None:
    end = threading.excepthook

    def excepthook(raised: Any) -> None:
        if not issubclass(raised.exc_type, SystemExit):  # SystemExit ends a thread silently.
            _stop((raised.exc_type, raised.exc_value, raised.exc_traceback))
        end(raised)

    threading.excepthook = excepthook


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "sys.excepthook":
        _stop(arguments[1:])


def _stop(raised: Any) -> None:
    told, _here.told = getattr(_here, "told", None), None
    pydevd = debugger()
    if pydevd is None or told == _raised_identity(raised) or not getattr(pydevd, _NOTICES, bool)():
        return
    try:
        pydevd.trigger_exception_handler(raised)
    except Exception:  # it would hide the user's exception
        return
    finally:
        _here.told = None


def _raised_identity(raised: _Raised) -> tuple[int, int]:
    """Identifies an exception without keeping it and its frames alive."""
    kind, value, _ = raised
    return id(value), id(kind)
