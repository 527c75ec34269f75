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
    """A task whose worker waits for a debugger, which listens on `host`:`port`.

    Never connect there but to debug: one connect-and-close and the task can't be attached any more
    (microsoft/debugpy #974).
    `task` is empty, or what the worker ran before, for about a second after the pause, until Ray's
    task table has caught up (`LAG`).
    `since` is when it began to run, ISO 8601 in UTC and of whole seconds: Ray does not record when it paused.
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
    """A live process of Ray's whose debugger listens on `node_ip`:`port`, attached to or not.

    `job_id` is known of a driver only: a worker's row does not say whose tasks it runs. `since` is when
    the process was ready, ISO 8601 in UTC. `paused`: whether it waits for a debugger in a `breakpoint()`.
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
    """A task, as Ray's task table has it about a second after the task began."""

    name: str
    job_id: str
    since: str


@dataclass(frozen=True)
class Job:
    """A job, as the Jobs API describes it; `submission_id` is empty of one that nobody submitted."""

    submission_id: str
    job_id: str | None
    status: str
    entrypoint: str
    message: str
    exit_code: int | None
    started: float
    metadata: dict[str, str]
    runtime_env: dict[str, Any]
    node_id: str = ""  # It is the node on which its driver was started.

    @property
    def ended(self) -> bool:
        return self.status in ENDED

    @property
    def user(self) -> str:
        """Returns the name of the user whose job it says it is; empty where it says none."""
        return user_of(self.metadata, self.runtime_env)


def jobs_for(user: str, jobs: Sequence[Job]) -> list[Job]:
    """Returns the jobs that a user sees, as `users.sees`."""
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
    """Returns the worker, or driver, of a row of the table `workers` whose debugger has been opened."""
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
    """Returns the tasks of a row of the table `workers`, of all that run by worker; a driver is its own."""
    if worker["worker_type"] == "DRIVER":
        return [RunningTask("driver", job_of_driver(worker["worker_id"]), "")]
    return tasks.get(worker["worker_id"], [])


def read_waiting(worker: Mapping[str, Any], task: RunningTask) -> WaitingTask:
    """Returns the task of a row of the table `workers` that has paused threads."""
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
    """Returns a moment, in milliseconds since 1970, as ISO 8601 in UTC and of whole seconds."""
    moment = datetime.fromtimestamp(milliseconds / 1000, tz=timezone.utc)
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")


def job_of_driver(worker_id: str) -> str:
    """Returns Ray's id of the job whose driver has this worker's id.

    It is ComputeDriverIdFromJob of Ray's C++ core: the job's four bytes, then ones (seen on 2.60).
    """
    return worker_id[:8]
