"""Paused task, as the relay lists it (`pausedTasks`)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class PausedTask:
    """Paused task: its worker waits for a debugger, or the relay holds it for one (`held`).

    `task` is empty, or the worker's previous task, for about a second after the pause, because Ray's task
    table lags.
    `since` (ISO 8601 in UTC) is the time of the stop if the task is held, else of its start: Ray does not
    record the time of a pause.
    `user` is the user that the job reports (unauthenticated); empty if it reports none, or none yet.
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
        """Returns the task's row in `pausedTasks`."""
        return asdict(self)

    def document(self) -> dict[str, Any]:
        """Returns the task's row in `breakpoints --json`."""
        row = self.row()
        del row["held"]
        if not self.user:  # Clusters of one person have no user names.
            del row["user"]
        return row
