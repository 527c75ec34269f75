"""Differences between what an object was made of and what would be made now."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

# An annotation of what we make in Kubernetes.
SPEC = "rayside.dev/spec"


def made_of(document: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what an object of ours says that it was made of; nothing where it does not say so."""
    return dict(json.loads(document["metadata"].get("annotations", {}).get(SPEC, "{}")))


def difference(
    made_of: Mapping[str, Any], would_be: Mapping[str, Any], files: Mapping[str, str] | None = None
) -> str:
    """Says, for people, how what exists differs from what would be made now.

    `files` describes the keys that no setting decides but the files of this checkout and of the cache,
    as in `{"image": "its image"}`. A key that one of the two lacks is not set there.
    """
    files = files or {}
    unset = "not set"
    changed = {
        key: (made_of.get(key, unset), would_be.get(key, unset))
        for key in dict.fromkeys([*would_be, *made_of])
        if made_of.get(key, unset) != would_be.get(key, unset)
    }
    return "; ".join(
        f"{files[key]} was {was}, from the files that are here now it would be {now}"
        if key in files
        else f"{key} is {was}, the settings say {now}"
        for key, (was, now) in changed.items()
    )
