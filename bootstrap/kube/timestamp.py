"""Reads times as Kubernetes writes them: RFC 3339, as in 2026-11-27T09:00:00Z."""

from __future__ import annotations

from datetime import datetime


def timestamp(text: str) -> datetime | None:
    """Returns the time, with its offset; None where it is none, or has no offset."""
    try:
        # Python reads Z from 3.11 on.
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return None
    return moment if moment.tzinfo else None
