"""Marks in the environment of processes that outlive the command: they tell which are ours.

So it is found without a record, and none is ever ended that is not ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

# The value of each is `Instance.mark`, the folder of the cluster's files.
FORWARDS = "RAYSIDE_FORWARDS"
RAY = "RAYSIDE_STATE"
RELAY = "RAYSIDE_RELAY"
WORKSPACE = "RAYSIDE_WORKSPACE_PROCESS"
# kind goes on when the command that started it is killed.
KIND = "RAYSIDE_KIND"
_PARTS = {FORWARDS: "port forwards", RAY: "Ray", RELAY: "debug relay", WORKSPACE: "workspace"}


@dataclass(frozen=True)
class Owner:
    """The part of a cluster of ours that a process is, and the folder of that cluster's files."""

    part: str
    folder: Path


def owner(environment: Mapping[str, str]) -> Owner | None:
    """Returns the owner of a process with this environment; None where it is none of ours."""
    for mark, part in _PARTS.items():
        if folder := environment.get(mark):
            return Owner(part, Path(folder))
    return None
