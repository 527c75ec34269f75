"""Stops at exceptions that end a program or a thread where pydevd does not trace what raised them.

pydevd notices them by tracing alone. Where breakpoints are compiled in, a process is seldom traced: it stops
for them all the same, once what it ran is unwound. The main thread's are told by Python's audit event,
whoever (Ray does it, too) has put a function in place of `sys.excepthook`.

It leans on `PyDB.trigger_exception_handler` and `do_stop_on_unhandled_exception` of pydevd 1.8.22.
https://docs.python.org/3/library/sys.html#sys.excepthook
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any

_MARK = "_rayside_uncaught"
_here = threading.local()  # of this thread: `told`, for which exception pydevd itself has stopped

_Raised = tuple[type[BaseException], BaseException, TracebackType | None]


def notice(pydevd: Any, is_wanted: Callable[[], bool]) -> None:
    """Makes pydevd stop for what nobody catches, while `is_wanted`; as its filters say, and once.

    May be called again: the last one counts.
    """
    is_new = not hasattr(pydevd, _MARK)
    setattr(pydevd, _MARK, is_wanted)
    if is_new:
        _remember_stops(pydevd)
    if not hasattr(sys, _MARK):  # A fork has its parent's, and another debugger.
        setattr(sys, _MARK, True)
        sys.addaudithook(_audit)
        _stop_for_threads()


def _remember_stops(pydevd: Any) -> None:
    stop = pydevd.do_stop_on_unhandled_exception

    def do_stop_on_unhandled_exception(thread: Any, frame: Any, frames_by_id: Any, raised: _Raised) -> None:
        _here.told = _identity(raised)
        stop(thread, frame, frames_by_id, raised)

    pydevd.do_stop_on_unhandled_exception = do_stop_on_unhandled_exception


def _stop_for_threads() -> None:
    end = threading.excepthook

    def excepthook(raised: Any) -> None:
        if not issubclass(raised.exc_type, SystemExit):  # That one ends a thread without a word.
            _stop((raised.exc_type, raised.exc_value, raised.exc_traceback))
        end(raised)

    threading.excepthook = excepthook


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "sys.excepthook":
        _stop(arguments[1:])


def _stop(raised: Any) -> None:
    told, _here.told = getattr(_here, "told", None), None
    pydevd = sys.modules["pydevd"].get_global_debugger()
    if pydevd is None or told == _identity(raised) or not getattr(pydevd, _MARK, bool)():
        return
    try:
        pydevd.trigger_exception_handler(raised)
    except Exception:  # what is raised here would hide the user's
        return
    finally:
        _here.told = None


def _identity(raised: _Raised) -> tuple[int, int]:
    """Identifies an exception without keeping it, and all that its frames hold, alive."""
    kind, value, _ = raised
    return id(value), id(kind)
