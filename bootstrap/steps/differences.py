"""Differences between an existing object's inputs and the current inputs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

# Annotation with the inputs of an object that we create in Kubernetes.
SPEC = "rayside.dev/spec"


def made_of(document: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the recorded inputs of an object of ours; empty without a record."""
    return dict(json.loads(document["metadata"].get("annotations", {}).get(SPEC, "{}")))


def difference(
    made_of: Mapping[str, Any], would_be: Mapping[str, Any], files: Mapping[str, str] | None = None
) -> str:
    """Returns a description of the differences between an existing object and the current settings.

    `files` describes the keys that depend on files of this checkout and of the cache instead of settings,
    as in `{"image": "its image"}`. A missing key means not set.
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
