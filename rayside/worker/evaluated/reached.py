"""Breakpoint hits inside a debuggee: conditions, hit counts and logpoint messages.

pydevd compiles and evaluates a breakpoint's condition at each hit; the relay sets a call of `reached` as the
condition, with only the breakpoint's number: `set_points` has transferred the rest before. So an exception in
a condition is reported, a condition and a hit count both have to hold, the relay counts hits for the whole
cluster, and a logpoint's message includes its task. This relies on pydevd: `PyDB.handle_breakpoint_condition`
in its main module evaluates in a separate frame, with the globals and locals of the breakpoint's frame.
"""

from __future__ import annotations

import builtins
import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from types import CodeType, FrameType
from typing import Any

from .. import tracing
from . import scope, telling

EVENT = "raysideReached"
# Builtin name of `reached` in conditions; short, because a condition is compiled again at each hit. The relay
# uses the same name (stop_points.py).
NAME = "__rayside__"
_CONDITION = "<condition>"  # file name of conditions, also for stopping.py
# Timeout in seconds for the relay's answer; without one the thread resumes.
PATIENCE = 5.0
# Limit: characters of an error.
LONGEST = 4_000
# Limit: characters of a logpoint's message.
LONGEST_MESSAGE = 3_900
# Seconds from a dropped message until the number of dropped messages is reported.
_TELLING = 1.0


class _Point:
    """Breakpoint, as in `set_points`."""

    __slots__ = ("code", "condition", "counted", "message", "name", "patience", "shown")

    def __init__(self, condition: str, message: str, counted: bool, name: str, patience: float) -> None:
        self.condition, self.message, self.counted, self.name = condition, message, counted, name
        self.patience = patience
        self.code: CodeType | None = None
        self.shown: CodeType | None = None
        # A condition that can't be compiled is reported when it is reached.
        with suppress(Exception):
            self.code = scope.compiled(condition, _CONDITION) if condition else None


_points: dict[int, _Point] = {}
_reported: set[int] = set()  # breakpoints whose exception, or loaded function, has been reported
_settled: dict[int, bool] = {}  # whether a breakpoint stops at all further hits, once that is final
_left_out: list[int] = []  # the breakpoint of each dropped message


def set_points(points: Mapping[int, tuple[str, str, bool, str, float]], gone: Iterable[int] = ()) -> None:
    """Registers breakpoints by their numbers, before pydevd gets them.

    Args:
        points: each breakpoint's condition, a Python expression; a logpoint's message, in DAP's format;
            whether the relay counts hits; the function's name as the user wrote it, if any; the timeout in
            seconds for the relay's answer.
        gone: the numbers of breakpoints that were removed from pydevd.
    """
    for key in gone:
        _points.pop(key, None)
        _reported.discard(key)
        _settled.pop(key, None)
    _points.update({key: _Point(*point) for key, point in points.items()})
    setattr(builtins, NAME, reached)
    telling.tell_at_exit()


def reached(key: int) -> bool:
    """Returns whether the thread stops at the breakpoint with that number."""
    return decides(key, sys._getframe(1))


def decides(key: int, frame: FrameType, holds: bool = False) -> bool:
    """Like `reached`, for that frame; `holds`: whether the condition is known to hold."""
    point = _points.get(key)
    if point is None:  # it is being removed
        return False
    if point.name:
        if not _is_of(frame, point.name):
            return False
        if key not in _reported:
            _reported.add(key)
            telling.send(EVENT, {"key": key, "what": "loaded"})
    if point.condition and not holds:
        try:
            code = point.code or scope.compiled(point.condition, _CONDITION)
            if not eval(code, frame.f_globals, frame.f_locals):
                return False
        except Exception as error:
            tell_error(key, error)
            return False
    if point.message:
        _log(key, point, frame)
        return False
    return not point.counted or _counts(key, point.patience)


def _counts(key: int, patience: float) -> bool:
    if key in _settled:
        return _settled[key]
    # The answer: whether to stop, and whether that is final for all further hits.
    stops, settled = telling.ask(EVENT, {"key": key, "what": "hit"}, patience) or (False, False)
    if settled:
        _settled[key] = stops
    return stops


def _is_of(frame: FrameType, name: str) -> bool:
    """Returns whether the frame runs the function of that name: plain, qualified, or with its module."""
    if "." not in name:
        return True
    # The condition's frame has only the variables of the breakpoint's frame; pydevd's has that frame.
    own = frame.f_back.f_locals.get("new_frame") if frame.f_back is not None else None
    qualified = getattr(own.f_code, "co_qualname", "") if own is not None else ""
    # Without a qualified name (Python 3.10), only the last part of the name is compared.
    if own is None or not qualified or is_named(qualified, str(own.f_globals.get("__name__")), name):
        return True
    # The method may come from a base class, or be a function that was set on the class at run time.
    first = own.f_locals.get(own.f_code.co_varnames[0]) if own.f_code.co_argcount else None
    owner = first if isinstance(first, type) else type(first)
    return any(is_method(each, own.f_code, name) for each in owner.__mro__)


def is_named(qualified: str, module: str, name: str) -> bool:
    """Returns whether the user's name is the function's full name, or the end of it."""
    return f".{module}.{qualified}".replace(".<locals>", "").endswith(f".{name}")


def is_method(owner: type, code: CodeType, name: str) -> bool:
    """Returns whether the user's name is the name of a class's method with this code, decorated or not."""
    method = name.rpartition(".")[2]
    if not is_named(f"{owner.__qualname__}.{method}", str(owner.__module__), name):
        return False
    each: Any = next((vars(base)[method] for base in owner.__mro__ if method in vars(base)), None)
    while each is not None and getattr(each, "__code__", None) is not code:
        inner = (getattr(each, way, None) for way in ("__func__", "__wrapped__", "func"))
        each = next((found for found in inner if found is not None), None)
    return each is not None


def tell_error(key: int, error: Exception) -> None:
    """Reports the exception of a condition to the relay, once for each breakpoint."""
    if key not in _reported:
        _reported.add(key)
        telling.send(
            EVENT, {"key": key, "what": "error", "text": described(error)[:LONGEST], "task": scope.task()}
        )


def described(error: BaseException) -> str:
    """Returns the error's class and text; the class alone if the user's `__str__` raises."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return type(error).__name__


def _log(key: int, point: _Point, frame: FrameType) -> None:
    """Sends the message of the logpoint with the number `key`, evaluated in that frame."""
    # If the relay counts hits, each one has to be reported.
    if not (point.counted or telling.rate.passes(1)) or telling.unsent() > telling.MOST_UNSENT:
        _left_out.append(key)
        if len(_left_out) == 1:
            tracing.in_background(_tell_left_out_soon)
        return
    try:
        if point.shown is None:
            expression = sys.modules["_pydevd_bundle.pydevd_utils"].convert_dap_log_message_to_expression(
                point.message
            )
            point.shown = scope.compiled(expression, "<logpoint>")
        text = str(eval(point.shown, frame.f_globals, frame.f_locals))
    except Exception as error:
        text = described(error)
    text = cut(text, LONGEST_MESSAGE)
    telling.send(EVENT, {"key": key, "what": "message", "text": text, "task": scope.task()})


def cut(text: str, most: int) -> str:
    """Returns at most `most` characters of a text, with the number of further characters, if any."""
    return text if len(text) <= most else f"{text[:most]}... ({len(text) - most:,} more characters)"


def _tell_left_out_soon() -> None:
    time.sleep(_TELLING)
    _tell_left_out()


def _tell_left_out() -> None:
    """Reports the number of dropped messages."""
    if not _left_out:
        return
    number = len(_left_out)
    key = _left_out[0]
    del _left_out[:number]
    telling.send(EVENT, {"key": key, "what": "leftOut", "number": number})


telling.leaving.append(_tell_left_out)
