"""Decides inside a debuggee what happens at a breakpoint that its code has reached.

pydevd compiles and evaluates the condition of a breakpoint with each hit; the relay gives it a call of
`reached` for that, with nothing but the breakpoint's number: the rest was `set_points` before. So a condition
that raises is told, a condition and a hit count both have to hold, hits are counted by the relay for the
whole cluster, and the message of a logpoint comes with its task. It leans on pydevd:
`PyDB.handle_breakpoint_condition` in its main module evaluates in a frame of its own, with the globals and
locals of the one that was reached.
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
# Conditions call `reached` by this name, which is found from everywhere, and short, for it is compiled anew
# with each hit. The relay writes it, too (stop_points.py).
NAME = "__rayside__"
_CONDITION = "<condition>"  # stopping.py, too, knows a condition by this file
# Seconds that a thread waits for the relay; without an answer it runs on.
PATIENCE = 5.0
# The most characters of an error that are sent.
LONGEST = 4_000
# The most characters of a logpoint's message that are sent.
LONGEST_MESSAGE = 3_900
# Seconds from a message that is not sent until the number of such messages is.
_TELLING = 1.0


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
            self.code = scope.compiled(condition, _CONDITION) if condition else None


_points: dict[int, _Point] = {}
_reported: set[int] = set()  # the breakpoints that were reported to have raised, or to be loaded
_settled: dict[int, bool] = {}  # whether a breakpoint stops from now on, where that can't change any more
_left_out: list[int] = []  # the breakpoint of each message that was not sent


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
    telling.tell_at_exit()


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
    # The answer says whether it stops, and whether that holds for all that follow.
    stops, settled = telling.ask(EVENT, {"key": key, "what": "hit"}, patience) or (False, False)
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


def tell_error(key: int, error: Exception) -> None:
    """Tells the relay, once for each breakpoint, what its condition raised."""
    if key not in _reported:
        _reported.add(key)
        telling.send(
            EVENT, {"key": key, "what": "error", "text": described(error)[:LONGEST], "task": scope.task()}
        )


def described(error: BaseException) -> str:
    """Returns the error's class and text, in which a user's code may raise once more."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return type(error).__name__


def _log(key: int, point: _Point, frame: FrameType) -> None:
    """Sends the message of a logpoint, whose number is `key`, as it is in that frame."""
    # Where the relay counts hits, it has to hear of each.
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
    """Returns at most that many characters, and where there were more, how many."""
    return text if len(text) <= most else f"{text[:most]}... ({len(text) - most:,} more characters)"


def _tell_left_out_soon() -> None:
    time.sleep(_TELLING)
    _tell_left_out()


def _tell_left_out() -> None:
    """Reports how many messages were not sent."""
    if not _left_out:
        return
    number = len(_left_out)
    key = _left_out[0]
    del _left_out[:number]
    telling.send(EVENT, {"key": key, "what": "leftOut", "number": number})


telling.leaving.append(_tell_left_out)
