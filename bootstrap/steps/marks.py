"""Knows the marks in the environment of processes that outlive the command: they tell which are ours.

So it is found without a record, and none is ever ended that is not ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

FORWARDS = "RAYSIDE_FORWARDS"
RAY = "RAYSIDE_STATE"
RELAY = "RAYSIDE_RELAY"
WORKSPACE = "RAYSIDE_WORKSPACE_PROCESS"
# Each mark has its target, and the part of its cluster.
_PARTS = {
    FORWARDS: ("kind", "port forwards"),
    RAY: ("local", "Ray"),
    RELAY: ("local", "debug relay"),
    WORKSPACE: ("local", "workspace"),
}


@dataclass(frozen=True)
class Owner:
    """The part of a cluster of ours that a process is, the cluster's target, and the folder of its files."""

    part: str
    target: str
    folder: str


def owner(environment: Mapping[str, str]) -> Owner | None:
    """Returns the owner of a process with this environment; None where it is none of ours."""
    for mark, (target, part) in _PARTS.items():
        if folder := environment.get(mark):
            return Owner(part, target, folder)
    return None
