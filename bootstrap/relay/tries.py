"""Counts how often debuggees could not be attached to, and says which may be tried again."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

from bootstrap.relay.debuggee import Debuggee

# The most tries to attach to a debuggee that does not answer.
MOST_TRIES = 3
# Seconds before a debuggee is tried again that somebody else debugs, the first time and at most; each pause
# is twice the one before.
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0


class Tries:
    """Has the tries for one editor."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures: Counter[tuple[str, int]] = Counter()
        self._pauses: dict[tuple[str, int], float] = {}
        self._again: dict[tuple[str, int], float] = {}

    def may(self, debuggee: Debuggee) -> bool:
        """Returns whether it may be tried now."""
        key = _key(debuggee)
        return self._failures[key] < MOST_TRIES and self._clock() >= self._again.get(key, 0.0)

    def failed(self, debuggee: Debuggee) -> None:
        """Notes that it did not answer, or not as a debugger does."""
        self._failures[_key(debuggee)] += 1

    def give_up(self, debuggee: Debuggee) -> None:
        """Notes that it is tried no more."""
        self._failures[_key(debuggee)] = MOST_TRIES

    def taken(self, debuggee: Debuggee) -> None:
        """Notes that somebody else debugs it: it is tried again, ever more seldom."""
        key = _key(debuggee)
        pause = self._pauses.get(key, _FIRST_PAUSE)
        self._again[key] = self._clock() + pause
        self._pauses[key] = min(2 * pause, _LONGEST_PAUSE)


def _key(debuggee: Debuggee) -> tuple[str, int]:
    return debuggee.worker_id, debuggee.port
