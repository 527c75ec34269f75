"""Describes a task that stands still, as the relay lists it (`pausedTasks`)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class PausedTask:
    """A task that stands still: its worker waits for a debugger, or the relay holds it for one (`held`).

    `task` is empty, or what the worker ran before, for about a second after the pause, until Ray's
    task table has caught up.
    `since` is, ISO 8601 in UTC, when the task stopped where it is held, else when it began to run: Ray does
    not record when it paused.
    `user` is the name of the user whose job it says it is; empty where it says none, or Ray none yet.
    """

    worker_id: str
    node_ip: str
    pid: int
    job_id: str
    task: str
    since: str
    held: bool = False
    user: str = ""

    def row(self) -> dict[str, Any]:
        """Returns it as `pausedTasks` lists it."""
        return asdict(self)

    def document(self) -> dict[str, Any]:
        """Returns it as `breakpoints --json` lists it."""
        row = self.row()
        del row["held"]
        if not self.user:  # So it is on a Ray that is one person's.
            del row["user"]
        return row
