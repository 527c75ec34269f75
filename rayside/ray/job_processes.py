"""Live processes of a job, an actor or a worker: from Ray's tables, and drivers that these don't list yet.

The job's metadata announce a driver that listens for debuggers before Ray lists it. The job writes them, so
they are untrusted: only numbers in their range are accepted, and the host is the node on which Ray started
the driver.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from rayside.errors import JobNotFound, NotAttachable
from rayside.ray.metadata import DRIVER as ANNOUNCED
from rayside.ray.records import ENDED, Job, job_of_driver
from rayside.ray.state import Dashboard

DRIVER, TASK, ACTOR = "driver", "task", "actor"
_LONGEST_ANNOUNCED = 100
_MOST_PID = 2**22  # Linux allows no higher one.


@dataclass(frozen=True)
class JobProcess:
    """Live worker, or driver, of a job.

    `name` is the name of its task, or of its actor's class. Other jobs find its actor by `actor_name` and
    `namespace`, which are empty for an unnamed actor. `port` is its debugger's; 0 without one.
    """

    worker_id: str
    pid: int
    node_id: str
    node_ip: str
    job_id: str
    kind: str
    name: str
    actor_id: str = ""
    actor_name: str = ""
    namespace: str = ""
    port: int = 0


def processes_of(dashboard: Dashboard, id: str) -> list[JobProcess]:
    """Returns the live processes of a job (by its submission id, or Ray's own), an actor or a worker.

    Ray's task table is up to `LAG` late. Raises JobNotFound if no running process has that id, and
    NotAttachable for a running job that has no process in Ray yet.
    """
    jobs = {row["submission_id"]: row for row in dashboard.job_rows()}
    of_job = jobs.get(id, {}).get("job_id") or id
    running = _all(dashboard)
    chosen = [
        process for process in running if id in (process.job_id, process.actor_id, process.worker_id)
    ] or [process for process in running if process.job_id == of_job]
    if not chosen:
        if id in jobs and (status := jobs[id]["status"]) not in ENDED:
            raise NotAttachable(
                f"job {id} is {status}, and has not joined Ray yet: its program has not come to ray.init",
                hint="attach once it has; ./invokew submit --debug opens a job from its start",
            )
        hint = "./invokew status lists the jobs; Ray's dashboard lists actors and workers"
        raise JobNotFound(f"nothing that runs now is of a job, an actor or a worker {id!r}", hint=hint)
    return chosen


def is_open(dashboard: Dashboard, job_id: str) -> bool:
    """Returns whether the job has a process with an open debugger that is not paused in it already."""
    paused = {worker.worker_id for worker in dashboard.debuggable() if worker.paused}
    open_ones = [process for process in _all(dashboard) if process.port and process.job_id == job_id]
    return any(process.worker_id not in paused for process in open_ones)


def _all(dashboard: Dashboard) -> list[JobProcess]:
    workers = dashboard.table("workers", is_alive="True")
    tasks = dashboard.running_tasks()
    actors = {(row["node_id"], row["pid"]): row for row in dashboard.table("actors", state="ALIVE")}
    processes = []
    for row in workers:
        actor = actors.get((row["node_id"], row["pid"]))
        running = tasks.get(row["worker_id"], [])
        if row["worker_type"] == "DRIVER":
            processes.append(_process(row, job_of_driver(row["worker_id"]), DRIVER, "driver"))
        elif actor:
            processes.append(_process(row, actor["job_id"], ACTOR, actor["class_name"], actor))
        elif running:
            processes.append(_process(row, running[0].job_id, TASK, running[0].name))
    return processes


def _process(
    row: dict[str, Any], job_id: str, kind: str, name: str, actor: dict[str, Any] | None = None
) -> JobProcess:
    known = actor or {}
    return JobProcess(
        worker_id=row["worker_id"],
        pid=int(row["pid"]),
        node_id=row["node_id"],
        node_ip=row["ip"],
        job_id=job_id,
        kind=kind,
        name=name,
        actor_id=str(known.get("actor_id") or ""),
        actor_name=str(known.get("name") or ""),
        namespace=str(known.get("ray_namespace") or ""),
        port=int(row.get("debugger_port") or 0),
    )


# --- drivers before their `ray.init` ---------------------------------------------------------


@dataclass(frozen=True)
class Announced:
    """Driver's debugger port from its job's metadata; `since` is the start of the job, ISO 8601."""

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
        """Returns an id for the process that no worker of Ray's has."""
        return f"driver {self.pid} of {self.submission_id}"


def announcing(jobs: Iterable[Job]) -> list[Job]:
    """Returns the running jobs that have announced their driver."""
    return [job for job in jobs if job.status == "RUNNING" and _read(job) is not None]


def announced(jobs: Iterable[Job], nodes: Mapping[str, str]) -> list[Announced]:
    """Returns the announced drivers of `jobs`; `nodes` are the addresses of the live nodes, by id."""
    drivers = []
    for job in announcing(jobs):
        port_and_pid, host = _read(job), nodes.get(job.node_id)
        if port_and_pid is not None and host:
            moment = datetime.fromtimestamp(job.started, tz=timezone.utc).isoformat(timespec="seconds")
            since = moment.replace("+00:00", "Z")
            drivers.append(Announced(job.submission_id, host, *port_and_pid, since))
    return drivers


def _read(job: Job) -> tuple[int, int] | None:
    """Returns the port and pid in a job's metadata; None if they are missing or invalid."""
    text = job.metadata.get(ANNOUNCED)
    if not isinstance(text, str) or len(text) > _LONGEST_ANNOUNCED:
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
