"""Marks in the environment of our background processes, which outlive the command.

They identify a process without a record, and no other process is ever ended.
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
# kind continues when the command that started it is killed.
KIND = "RAYSIDE_KIND"
_PARTS = {FORWARDS: "port forwards", RAY: "Ray", RELAY: "debug relay", WORKSPACE: "workspace"}


@dataclass(frozen=True)
class Owner:
    """Owner of a background process: a part of one of our clusters, and the folder of its files."""

    part: str
    folder: Path


def owner(environment: Mapping[str, str]) -> Owner | None:
    """Returns the owner of a process with this environment; None if it isn't one of ours."""
    for mark, part in _PARTS.items():
        if folder := environment.get(mark):
            return Owner(part, Path(folder))
    return None
