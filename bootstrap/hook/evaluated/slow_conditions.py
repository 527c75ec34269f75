"""Tells the relay of a breakpoint's condition that goes on and on: to editors its task looks as if it ran.

A thread looks at the others now and then. So nothing is done for it with each hit, but for a number that
each evaluation has: `decides` in reached.py, or the condition's own function (conditions.py). It needs the
debuggee to have reached.py.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

_REACHED = "_rayside_reached"
# A condition's own function has its number and the breakpoint's here (conditions.py).
_EVALUATION = "__rayside_evaluation"
# Seconds between two looks.
EVERY = 5.0


def begin() -> None:
    """Looks from now on, for as long as the relay that asked for it is there."""
    thread = threading.Thread(
        target=_look_on, args=(sys.modules[_REACHED],), name="rayside-slow", daemon=True
    )
    # pydevd's own marks of a thread that is not debugged.
    vars(thread).update(is_pydev_daemon_thread=True, pydev_do_not_trace=True)
    thread.start()


def _look_on(reached: Any) -> None:
    since: dict[int, float] = {}  # the evaluations that were seen, by their number
    told: set[int] = set()
    while _is_there(reached):
        time.sleep(EVERY)
        now = time.monotonic()
        evaluations = evaluating(reached)
        since = {number: since.get(number, now) for number in evaluations}
        told &= since.keys()
        for number, key in evaluations.items():
            if number not in told and now > since[number]:
                told.add(number)
                reached.send(reached.EVENT, {"key": key, "what": "slow", "number": int(EVERY)})


def _is_there(reached: Any) -> bool:
    """Returns whether the relay of that module's connection is there still."""
    current: Any = sys.modules.get(_REACHED)
    if reached._is_detached or current is not reached:
        return False
    try:
        return bool(reached.debugger().reader.is_alive())
    except AttributeError:  # the debugger has gone
        return False


def evaluating(reached: Any) -> dict[int, int]:
    """Returns the breakpoints whose conditions are evaluated now, by the number of the evaluation."""
    evaluations: dict[int, int] = {}
    for frame in sys._current_frames().values():
        at: Any = frame
        while at is not None and at.f_code is not reached.decides.__code__:
            if at.f_code.co_filename == "<condition>" and _EVALUATION in at.f_code.co_varnames:
                number, key = at.f_locals.get(_EVALUATION, (0, 0))
                evaluations |= {number: key} if number else {}
                at = None
                break
            at = at.f_back
        # It is in the condition where it was not called further, as to wait for the relay.
        if at is not None and at is not frame and _is_in_condition(frame, at):
            evaluations[at.f_locals["evaluation"]] = at.f_locals["key"]
    return evaluations


def _is_in_condition(frame: Any, decides: Any) -> bool:
    # The thread runs on meanwhile, and a frame that has ended has no caller.
    while frame is not None and frame.f_back is not decides:
        frame = frame.f_back
    return frame is not None and bool(frame.f_code.co_filename == "<condition>")


# Where it is sent, reached.py was before.
if _REACHED in sys.modules:
    begin()
