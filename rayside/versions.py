"""Versions that the debugger is made for: pins, which bootstrap/settings.py has from here, and Ray's."""

from __future__ import annotations

import re

DEBUGPY = "1.8.22"
# It writes code with breakpoints in it; the newest that runs on Python 3.10, the oldest that we support.
BYTECODE = "0.17.0"
# The oldest Ray whose jobs can be debugged, and the first that knows tokens; tests run both. In older ones a
# task that fails does not stop: their own debugger is another one.
OLDEST_RAY = "2.39.0"
FIRST_RAY_WITH_TOKENS = "2.52.1"


def is_before(version: str, other: str) -> bool:
    """Returns whether it is older, by the first two numbers; a version of another form is not.

    A build of one's own may have such a one.
    """
    numbers = _numbers(version)
    return bool(numbers) and numbers < _numbers(other)


def _numbers(version: str) -> tuple[int, ...]:
    """Returns the two numbers that a version begins with, as in (2, 60); nothing of what has another form."""
    begin = re.match(r"(\d+)\.(\d+)", version)
    return tuple(int(number) for number in begin.groups()) if begin else ()
