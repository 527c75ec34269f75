"""Polling with a growing pause."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

# Pause between two checks in seconds; it grows by half each time, up to the limit: fast changes are seen
# at once, slow ones are not polled too often.
_FIRST_PAUSE, _PAUSE_GROWTH, _LONGEST_PAUSE = 0.05, 1.5, 0.5

Seen = TypeVar("Seen")


def until(
    read: Callable[[], Seen],
    done: Callable[[Seen], bool],
    patience: float,
    stop: threading.Event | None = None,
) -> Seen:
    """Reads until `done`, at most `patience` seconds or until `stop` is set; returns the last thing read."""
    deadline = time.monotonic() + patience
    stop = stop or threading.Event()
    pause = _FIRST_PAUSE
    while not done(last := read()) and time.monotonic() < deadline and not stop.wait(pause):
        pause = min(pause * _PAUSE_GROWTH, _LONGEST_PAUSE)
    return last
