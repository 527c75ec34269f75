"""Says how what exists differs from what would be made now: in the words of every step that drifts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def difference(
    made_of: Mapping[str, Any], would_be: Mapping[str, Any], files: Mapping[str, str] | None = None
) -> str:
    """Says, for people, how what exists differs from what would be made now.

    `files` describes the keys that no setting decides but the files of this checkout and of the cache,
    as in `{"image": "its image"}`.
    """
    files = files or {}
    return "; ".join(
        f"{files[key]} was {made_of.get(key)}, from the files that are here now it would be {value}"
        if key in files
        else f"{key} is {made_of.get(key)}, the settings say {value}"
        for key, value in would_be.items()
        if made_of.get(key) != value
    )
