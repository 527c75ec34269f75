"""Wrong passwords, as docs/security.md has it: two a minute, twelve more an hour; then the right one, too."""

from __future__ import annotations

import time
from collections.abc import Callable

A_MINUTE, AN_HOUR = 2, 12
LIMITED = "Login rate limited"


def are_throttled(login: Callable[[str], str], password: str) -> None:
    """Asserts it of a workspace where nobody has tried yet; `login` gives the text of its answer."""
    began, tried = time.monotonic(), 0
    while LIMITED not in login("wrong"):
        tried += 1
        elapsed = time.monotonic() - began
        # Each limit gives back, evenly, what it has taken.
        assert tried <= A_MINUTE + AN_HOUR + elapsed * A_MINUTE / 60 + elapsed * AN_HOUR / 3600
    assert tried >= A_MINUTE + AN_HOUR
    assert LIMITED in login(password)
