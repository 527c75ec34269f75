"""Reads which drivers listen for debuggers before Ray knows of them: their jobs' metadata says so.

It is the job that writes its metadata, so that nothing in there is believed but numbers in their range: the
address is that of the node on which Ray started the driver.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone

from rayside.ray.metadata import DRIVER
from rayside.ray.records import Job

_LONGEST = 100
_MOST_PID = 2**22  # Linux allows no higher one.


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
        """Returns a name for the process, which no worker of Ray's has."""
        return f"driver {self.pid} of {self.submission_id}"


def announcing(jobs: Iterable[Job]) -> list[Job]:
    """Returns the jobs that run and have announced their driver."""
    return [job for job in jobs if job.status == "RUNNING" and _read(job) is not None]


def announced(jobs: Iterable[Job], nodes: Mapping[str, str]) -> list[Announced]:
    """Returns the announced drivers of `jobs`; `nodes` has the address of each live node, by its id."""
    drivers = []
    for job in announcing(jobs):
        port_and_pid, host = _read(job), nodes.get(job.node_id)
        if port_and_pid is not None and host:
            moment = datetime.fromtimestamp(job.started, tz=timezone.utc).isoformat(timespec="seconds")
            since = moment.replace("+00:00", "Z")
            drivers.append(Announced(job.submission_id, host, *port_and_pid, since))
    return drivers


def _read(job: Job) -> tuple[int, int] | None:
    """Returns the port and pid in a job's metadata; None where it has none, or something else instead."""
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
