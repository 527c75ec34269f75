"""Drivers that listen for debuggers before Ray knows of them: each says so in its job's metadata.

It is the job that writes its metadata, so that nothing in there is believed but numbers in their range: the
address is that of the node on which Ray started the driver.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone

from bootstrap.ray.state import Job

# As bootstrap/ray/hook/rayside_hook/scout.py writes it: {"port", "pid"}.
DRIVER = "rayside.driver"
_LONGEST = 100
_MOST_PID = 2**22  # of Linux


@dataclass(frozen=True)
class Announced:
    """A driver's debugger port, as its job's metadata has it; `since`: the start of the job, ISO 8601."""

    submission_id: str
    host: str
    port: int
    pid: int
    since: str

    @property
    def address(self) -> tuple[str, int]:
        return self.host, self.port

    @property
    def key(self) -> str:
        """A name for the process which no worker of Ray's has."""
        return f"driver {self.pid} of {self.submission_id}"


def announcing(jobs: Iterable[Job]) -> list[Job]:
    """Those that run and have such a driver."""
    return [job for job in jobs if job.status == "RUNNING" and _read(job) is not None]


def announced(jobs: Iterable[Job], nodes: Mapping[str, str]) -> list[Announced]:
    """Their drivers; `nodes`: the address of each live node, by its id."""
    drivers = []
    for job in announcing(jobs):
        port_and_pid, host = _read(job), nodes.get(job.node_id)
        if port_and_pid is not None and host:
            moment = datetime.fromtimestamp(job.started, tz=timezone.utc).isoformat(timespec="seconds")
            since = moment.replace("+00:00", "Z")
            drivers.append(Announced(job.submission_id, host, *port_and_pid, since))
    return drivers


def _read(job: Job) -> tuple[int, int] | None:
    """Port and pid; None where there is no such thing, or something else in its place."""
    text = job.metadata.get(DRIVER)
    if not isinstance(text, str) or len(text) > _LONGEST:
        return None
    try:
        document = json.loads(text)
    except ValueError:
        return None
    if not isinstance(document, dict):
        return None
    port, pid = document.get("port"), document.get("pid")
    if type(port) is not int or type(pid) is not int:
        return None
    return (port, pid) if 1024 <= port <= 65535 and 1 < pid <= _MOST_PID else None
