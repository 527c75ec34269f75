"""Supported versions of Ray, and pinned packages, which bootstrap/settings.py imports."""

from __future__ import annotations

import re

DEBUGPY = "1.8.22"
# It inserts breakpoints into code; the newest version for Python 3.10, the oldest supported Python.
BYTECODE = "0.17.0"
# The oldest Ray whose jobs can be debugged, and the first with tokens; tests run both. In older versions a
# failed task does not stop: they have another debugger of their own.
OLDEST_RAY = "2.39.0"
FIRST_RAY_WITH_TOKENS = "2.52.1"


def is_before(version: str, other: str) -> bool:
    """Returns whether `version` is older, by its first two numbers; False for another format.

    A custom build may have such a version.
    """
    numbers = _numbers(version)
    return bool(numbers) and numbers < _numbers(other)


def _numbers(version: str) -> tuple[int, ...]:
    """Returns the first two numbers of a version, as (2, 60); empty for another format."""
    begin = re.match(r"(\d+)\.(\d+)", version)
    return tuple(int(number) for number in begin.groups()) if begin else ()
