"""Tries wrong passwords: two a minute and twelve more an hour are checked, as docs/security.md says."""

from __future__ import annotations

import time
from collections.abc import Callable

A_MINUTE, AN_HOUR = 2, 12
LIMITED = "Login rate limited"


def are_throttled(login: Callable[[str], str], password: str) -> None:
    """Asserts the limits of a workspace where nobody has tried yet; `login` returns its answer's text."""
    began, tried = time.monotonic(), 0
    while LIMITED not in login("wrong"):
        tried += 1
        elapsed = time.monotonic() - began
        # Each limit gives back, evenly, what it has taken.
        assert tried <= A_MINUTE + AN_HOUR + elapsed * A_MINUTE / 60 + elapsed * AN_HOUR / 3600
    assert tried >= A_MINUTE + AN_HOUR
    assert LIMITED in login(password)
