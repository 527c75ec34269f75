"""Says what is left of a price; somebody has carried this package here."""

from __future__ import annotations


def reduced(cents: int) -> int:
    """Returns nine tenths of a price."""
    return cents * 9 // 10
