"""Defines the evidence of a diagnosis, gathered once, and reads it from the tables of Ray and Kubernetes.

The columns are those of Ray's State API (ray/util/state/common.py) and of its Jobs API, of Ray 2.60.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from bootstrap.dap.paused import PausedTask
from bootstrap.errors import RaysideError
from bootstrap.ray.state import Job

Row = Mapping[str, Any]
# Ray's supervisors of jobs are actors in this namespace, and nobody's but Ray's.
_SUPERVISORS = "SUPERVISOR_ACTOR_RAY_NAMESPACE"
PENDING = frozenset(
    {
        "PENDING_ARGS_AVAIL",
        "PENDING_NODE_ASSIGNMENT",
        "PENDING_OBJ_STORE_MEM_AVAIL",
        "PENDING_ARGS_FETCH",
        "PENDING_ACTOR_TASK_ARGS_FETCH",
        "PENDING_ACTOR_TASK_ORDERING_OR_CONCURRENCY",
    }
)
RUNNING = frozenset({"RUNNING", "RUNNING_IN_RAY_GET", "RUNNING_IN_RAY_WAIT"})


@dataclass(frozen=True)
class Task:
    """One attempt to run a task; `since` is when it came into its state, in seconds since 1970."""

    task_id: str
    attempt: int
    name: str
    job_id: str
    kind: str
    state: str
    error_type: str
    error: str
    required: Mapping[str, float]
    worker_id: str
    node_id: str
    since: float
    runtime_env: str = ""


@dataclass(frozen=True)
class Actor:
    """An actor; `reason` and `cause` say why it died, where it did."""

    actor_id: str
    name: str
    job_id: str
    state: str
    required: Mapping[str, float]
    restarts: int
    reason: str
    cause: str


@dataclass(frozen=True)
class Node:
    """A node of Ray's, with what it has in all."""

    node_id: str
    address: str
    head: bool
    alive: bool
    message: str
    total: Mapping[str, float]
    ended: float


@dataclass(frozen=True)
class PlacementGroup:
    """A placement group, with the resources of each of its bundles."""

    name: str
    job_id: str
    state: str
    bundles: Sequence[Mapping[str, float]]
    since: float


@dataclass(frozen=True)
class Evidence:
    """All that was read of a cluster at the moment `now`, in seconds since 1970.

    Attributes:
        ray: why Ray does not answer; None where it does.
        jobs: oldest first.
        error_types: what Ray calls a job's failure, by submission id, as in RUNTIME_ENV_SETUP_FAILURE.
        tasks: those that have not finished, and the last attempts of those that were tried again.
        used: by node, how much of each resource is in use; the names are as Ray's dashboard writes them.
        logs: the end of what a job printed, by submission id.
        head_log: the end of what Ray's head printed.
        pods, events, rayjobs: of Kubernetes, in its own JSON; empty where there is none.
        unread: what could not be read, with the reason.
    """

    now: float
    ray: RaysideError | None = None
    jobs: Sequence[Job] = ()
    error_types: Mapping[str, str] = field(default_factory=dict)
    tasks: Sequence[Task] = ()
    actors: Sequence[Actor] = ()
    nodes: Sequence[Node] = ()
    groups: Sequence[PlacementGroup] = ()
    used: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    paused: Sequence[PausedTask] = ()
    logs: Mapping[str, str] = field(default_factory=dict)
    head_log: str = ""
    pods: Sequence[Row] = ()
    events: Sequence[Row] = ()
    rayjobs: Sequence[Row] = ()
    unread: Sequence[str] = ()

    @cached_property
    def by_job_id(self) -> dict[str, Job]:
        """Returns the submitted jobs by Ray's own id; those whose driver has not started have none."""
        return {job.job_id: job for job in self.jobs if job.job_id}

    def job_name(self, job_id: str) -> str:
        """Returns the submission id of a job, or its own id where it was not submitted."""
        job = self.by_job_id.get(job_id)
        return job.submission_id if job else job_id

    @cached_property
    def live_tasks(self) -> list[Task]:
        """Returns the tasks whose job has not ended: of others Ray says for 15 s more that they run or wait.

        That is its gcs_mark_task_failed_on_job_done_delay_ms.
        """
        return [task for task in self.tasks if not self.has_ended(task.job_id)]

    def has_ended(self, job_id: str) -> bool:
        """Returns whether that job was submitted and has ended."""
        job = self.by_job_id.get(job_id)
        return job is not None and job.ended

    def failed_tasks(self, job_id: str) -> list[Task]:
        """Returns the job's tasks whose last attempt failed by itself, the latest first."""
        last = self._last_attempts(job_id)
        failed = [task for task in last if task.state == "FAILED" and not _ended_with_job(task)]
        return sorted(failed, key=lambda task: task.since, reverse=True)

    def unfinished_tasks(self, job_id: str) -> list[Task]:
        """Returns the tasks that an ended job left unfinished."""
        return [
            task
            for task in self._last_attempts(job_id)
            if _ended_with_job(task) or task.state not in ("FAILED", "FINISHED")
        ]

    def _last_attempts(self, job_id: str) -> Iterable[Task]:
        """Returns the last attempt of each task of the job."""
        last: dict[str, Task] = {}
        for task in self.tasks:
            known = last.get(task.task_id)
            if task.job_id == job_id and (known is None or task.attempt > known.attempt):
                last[task.task_id] = task
        return last.values()


def _ended_with_job(task: Task) -> bool:
    """Returns whether Ray only marked the task as failed because its job had ended."""
    # It gives no reason for one that had not been started, or is about to be tried again.
    unexplained = task.error_type == "WORKER_DIED" and not task.error
    return unexplained or "as driver exits" in task.error or "because its job has finished" in task.error


def read_tasks(rows: Iterable[Row]) -> list[Task]:
    """Returns the tasks of Ray's table, without the supervisors of jobs."""
    return [_task(row) for row in rows if not str(row.get("name")).startswith("JobSupervisor.")]


def _task(row: Row) -> Task:
    events = row.get("events") or []
    since = events[-1].get("created_ms") if events else row.get("creation_time_ms")
    environment = (row.get("runtime_env_info") or {}).get("serialized_runtime_env") or ""
    return Task(
        task_id=row["task_id"],
        attempt=int(row.get("attempt_number") or 0),
        name=row.get("name") or "",
        job_id=row.get("job_id") or "",
        kind=row.get("type") or "",
        state=row.get("state") or "",
        error_type=row.get("error_type") or "",
        error=row.get("error_message") or "",
        required=row.get("required_resources") or {},
        worker_id=row.get("worker_id") or "",
        node_id=row.get("node_id") or "",
        since=(since or 0) / 1000,
        runtime_env="" if environment == "{}" else environment,
    )


def read_actors(rows: Iterable[Row]) -> list[Actor]:
    """Returns the actors of Ray's table, without the supervisors of jobs."""
    return [_actor(row) for row in rows if row.get("ray_namespace") != _SUPERVISORS]


def _actor(row: Row) -> Actor:
    # It is a protobuf's oneof: one key, as `oom_context`, with the details below it.
    (kind, context), *_ = (row.get("death_cause") or {"": {}}).items()
    return Actor(
        actor_id=row["actor_id"],
        name=row.get("class_name") or "",
        job_id=row.get("job_id") or "",
        state=row.get("state") or "",
        required=row.get("required_resources") or {},
        restarts=int(row.get("num_restarts") or 0),
        reason=context.get("reason") or kind.removesuffix("_context"),
        cause=context.get("error_message") or "",
    )


def read_nodes(rows: Iterable[Row]) -> list[Node]:
    """Returns the nodes of Ray's table."""
    return [
        Node(
            node_id=row["node_id"],
            address=row.get("node_ip") or "",
            head=bool(row.get("is_head_node")),
            alive=row.get("state") == "ALIVE",
            message=row.get("state_message") or "",
            total=row.get("resources_total") or {},
            ended=(row.get("end_time_ms") or 0) / 1000,
        )
        for row in rows
    ]


def read_groups(rows: Iterable[Row]) -> list[PlacementGroup]:
    """Returns the placement groups of Ray's table."""
    return [
        PlacementGroup(
            name=row.get("name") or row["placement_group_id"],
            job_id=row.get("creator_job_id") or "",
            state=row.get("state") or "",
            bundles=[bundle.get("unit_resources") or {} for bundle in row.get("bundles") or []],
            since=int((row.get("stats") or {}).get("creation_request_received_ns") or 0) / 1e9,
        )
        for row in rows
    ]


def read_used(status: Row) -> dict[str, dict[str, float]]:
    """Returns how much of each resource is in use, by node, from what `/api/cluster_status` says."""
    report = ((status.get("data") or {}).get("clusterStatus") or {}).get("loadMetricsReport") or {}
    return {
        node: {name: float(amounts[0]) for name, amounts in usage.items()}
        for node, usage in (report.get("usageByNode") or {}).items()
    }
