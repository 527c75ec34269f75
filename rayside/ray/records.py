"""Records of jobs, tasks and workers, read from the rows of Ray's dashboard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from rayside.ray.metadata import user_of
from rayside.users import sees

ENDED = frozenset({"SUCCEEDED", "FAILED", "STOPPED"})


@dataclass(frozen=True)
class WaitingTask:
    """Task whose worker waits for a debugger and listens on `host`:`port`.

    Connect there only to debug: after one connect-and-close, no debugger can attach to the task
    (microsoft/debugpy #974).
    `task` is empty, or the worker's previous task, for about a second after the pause, until Ray's
    task table has caught up (`LAG`).
    `since` is when it began to run, ISO 8601 in UTC, whole seconds: Ray does not record when it paused.
    """

    worker_id: str
    pid: int
    job_id: str
    task: str
    since: str
    host: str
    port: int


@dataclass(frozen=True)
class DebuggableWorker:
    """Live process of Ray whose debugger listens on `node_ip`:`port`, with or without a client.

    `job_id` is known for a driver only: a worker's row does not contain its job. `since` is when the
    process was ready, ISO 8601 in UTC. `paused`: whether it waits for a debugger in a `breakpoint()`.
    """

    worker_id: str
    node_ip: str
    port: int
    pid: int
    driver: bool
    job_id: str
    since: str
    paused: bool = False


@dataclass(frozen=True)
class RunningTask:
    """Running task in Ray's task table, which lists it about a second after its start."""

    name: str
    job_id: str
    since: str


@dataclass(frozen=True)
class Job:
    """Job in the Jobs API; `submission_id` is empty if it was started without a submission."""

    submission_id: str
    job_id: str | None
    status: str
    entrypoint: str
    message: str
    exit_code: int | None
    started: float
    metadata: dict[str, str]
    runtime_env: dict[str, Any]
    node_id: str = ""  # the node on which its driver was started

    @property
    def ended(self) -> bool:
        return self.status in ENDED

    @property
    def user(self) -> str:
        """Returns the job's user name (unauthenticated); empty without one."""
        return user_of(self.metadata, self.runtime_env)


def jobs_for(user: str, jobs: Sequence[Job]) -> list[Job]:
    """Returns the jobs that a user sees, by `users.sees`."""
    return [job for job in jobs if sees(user, job.user)]


def read_job(row: Mapping[str, Any]) -> Job:
    """Returns the job of a row of `Dashboard.job_rows`."""
    return Job(
        submission_id=row.get("submission_id") or "",
        job_id=row.get("job_id"),
        status=row["status"],
        entrypoint=row["entrypoint"],
        message=row.get("message") or "",
        exit_code=row.get("driver_exit_code"),
        started=(row.get("start_time") or 0) / 1000,
        metadata=row.get("metadata") or {},
        runtime_env=row.get("runtime_env") or {},
        node_id=row.get("driver_node_id") or "",
    )


def read_debuggable(row: Mapping[str, Any]) -> DebuggableWorker:
    """Returns the worker, or driver, in a row of the table `workers` with an open debugger."""
    driver = row["worker_type"] == "DRIVER"
    return DebuggableWorker(
        worker_id=row["worker_id"],
        node_ip=row["ip"],
        port=row["debugger_port"],
        pid=row["pid"],
        driver=driver,
        job_id=job_of_driver(row["worker_id"]) if driver else "",
        since=utc_time(row["start_time_ms"]),
        paused=bool(row.get("num_paused_threads")),
    )


def tasks_of(worker: Mapping[str, Any], tasks: Mapping[str, Sequence[RunningTask]]) -> Sequence[RunningTask]:
    """Returns the running tasks of a row of the table `workers`, from all by worker; a driver is its own."""
    if worker["worker_type"] == "DRIVER":
        return [RunningTask("driver", job_of_driver(worker["worker_id"]), "")]
    return tasks.get(worker["worker_id"], [])


def read_waiting(worker: Mapping[str, Any], task: RunningTask) -> WaitingTask:
    """Returns the waiting task in a row of the table `workers` with paused threads."""
    return WaitingTask(
        worker_id=worker["worker_id"],
        pid=worker["pid"],
        job_id=task.job_id or "",
        task=task.name or "",
        since=task.since or utc_time(worker["start_time_ms"]),
        host=worker["ip"],
        port=worker["debugger_port"],
    )


def utc_time(milliseconds: int) -> str:
    """Returns a time, in milliseconds since 1970, as ISO 8601 in UTC with whole seconds."""
    moment = datetime.fromtimestamp(milliseconds / 1000, tz=timezone.utc)
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")


def job_of_driver(worker_id: str) -> str:
    """Returns Ray's id of the job whose driver has this worker id.

    Inverse of ComputeDriverIdFromJob in Ray's C++ core: the job's four bytes, then ones (seen on 2.60).
    """
    return worker_id[:8]
