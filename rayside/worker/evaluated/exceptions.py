"""Exception filters of a debuggee: one stop for an exception, and conditions.

With several filters pydevd stops for the same exception where it is raised, where it leaves the user's code
and once more in the post-mortem. It leans on pydevd: each of those calls `PyDB.set_suspend` and then
`PyDB.do_wait_suspend`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

# pydevd_comm_constants.py, pydevd_constants.py
_CMD_STEP_CAUGHT_EXCEPTION, _CMD_ADD_EXCEPTION_BREAK = 137, 122
_HANDLED, _USER_UNHANDLED, _UNHANDLED = "HANDLED", "USER_UNHANDLED", "UNHANDLED"
# How an exception comes that the thread has stopped for already, and how it came before.
_AGAIN = {(_USER_UNHANDLED, _HANDLED), (_UNHANDLED, _HANDLED), (_UNHANDLED, _USER_UNHANDLED)}
_MARK = "_rayside_stops_once"
# pydevd keeps what stops in these, by DAP's breakMode.
_KEPT = {
    "always": "break_on_caught_exceptions",
    "unhandled": "break_on_uncaught_exceptions",
    "userUnhandled": "break_on_user_uncaught_exceptions",
}


def set_conditions(conditions: Mapping[str, str]) -> list[str]:
    """Gives filters a condition each, by DAP's breakMode; returns those that can't have one."""
    db = _debugger()
    lacking = []
    for mode, condition in conditions.items():
        try:
            getattr(db, _KEPT[mode])["BaseException"].condition = condition
        except Exception:  # another pydevd, which keeps it elsewhere
            lacking.append(mode)
    return lacking


def stop_once() -> None:
    """Makes an exception that a thread has stopped for stop it again only where it is raised anew."""
    db = _debugger()
    if hasattr(db, _MARK):
        return
    setattr(db, _MARK, True)
    set_suspend, do_wait_suspend = db.set_suspend, db.do_wait_suspend
    put_off: dict[int, tuple[Any, ...]] = {}  # what was to be suspended, by thread
    stopped_for: dict[int, tuple[Any, ...]] = {}  # which exception, and how it came, by thread

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
            # The next exception may have this one's address: each way that it can come counts once.
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


def _debugger() -> Any:
    return sys.modules["pydevd"].get_global_debugger()
