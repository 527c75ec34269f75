"""Records of a diagnosis: the evidence, gathered once, and the findings that explain it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from typing import Any

from rayside import plain
from rayside.dap.paused_task import PausedTask
from rayside.errors import RaysideError
from rayside.ray.records import Job

Row = Mapping[str, Any]
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
# Limit: characters of a finding's sentence, as exceptions quote whole data sets.
_LONGEST = 700
RUNNING = frozenset({"RUNNING", "RUNNING_IN_RAY_GET", "RUNNING_IN_RAY_WAIT"})


@dataclass(frozen=True)
class Task:
    """One attempt of a task; `since`: when it entered its state, in seconds since 1970."""

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
    """An actor; `reason` and `cause` say why it died, if it did."""

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
    """A node of a Ray cluster, with its total resources."""

    node_id: str
    address: str
    alive: bool
    message: str
    total: Mapping[str, float]
    ended: float


@dataclass(frozen=True)
class PlacementGroup:
    name: str
    job_id: str
    state: str
    bundles: Sequence[Mapping[str, float]]
    since: float


@dataclass(frozen=True)
class Evidence:
    """Everything that was read from a cluster at the time `now`, in seconds since 1970.

    Attributes:
        ray: the error if Ray does not respond; else None.
        jobs: oldest first.
        error_types: Ray's error type of a failed job, by submission id, as in RUNTIME_ENV_SETUP_FAILURE.
        tasks: attempts that have not finished or have failed, and finished attempts of retried tasks.
        used: resources in use by node, with the names of Ray's dashboard.
        logs: the end of a job's output, by submission id.
        head_log: the end of the output of Ray's head.
        raylet_errors: the ends of the nodes' raylet.err, with the output of workers that were starting.
        pods, events, rayjobs: Kubernetes objects as JSON; empty without Kubernetes.
        knows_attempts: whether the finished attempts of retried tasks are known.
        unread: what could not be read, with the reason; explainers that fail add themselves.
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
    raylet_errors: str = ""
    pods: Sequence[Row] = ()
    events: Sequence[Row] = ()
    rayjobs: Sequence[Row] = ()
    knows_attempts: bool = True
    unread: list[str] = field(default_factory=list)

    @cached_property
    def by_job_id(self) -> dict[str, Job]:
        """Returns the submitted jobs by Ray's job id; jobs whose driver has not started have none."""
        return {job.job_id: job for job in self.jobs if job.job_id}

    def job_name(self, job_id: str) -> str:
        """Returns the submission id of a job, or Ray's job id if it was not submitted."""
        job = self.by_job_id.get(job_id)
        return job.submission_id if job else job_id

    @cached_property
    def live_tasks(self) -> list[Task]:
        """Returns the tasks of jobs that have not ended: Ray lists others for 15 s more as live.

        That is its gcs_mark_task_failed_on_job_done_delay_ms.
        """
        return [task for task in self.tasks if not self.has_ended(task.job_id)]

    def has_ended(self, job_id: str) -> bool:
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
        last: dict[str, Task] = {}
        for task in self.tasks:
            known = last.get(task.task_id)
            if task.job_id == job_id and (known is None or task.attempt > known.attempt):
                last[task.task_id] = task
        return last.values()


def _ended_with_job(task: Task) -> bool:
    """Returns whether Ray only marked the task as failed because its job had ended."""
    # Ray gives no reason for a task that had not been started, or is about to be retried.
    unexplained = task.error_type == "WORKER_DIED" and not task.error
    return unexplained or "as driver exits" in task.error or "because its job has finished" in task.error


class Weight(IntEnum):
    """Order of findings: causes of other failures come first."""

    CLUSTER = 0  # Ray, or one of its nodes, is not available.
    POD = 1
    FAILED = 2  # A job has failed.
    STUCK = 3  # A job can't continue by itself.
    PART_FAILED = 4  # A task or an actor of a job that continues, or has succeeded.
    WAITING = 5  # It continues by itself, or when somebody resumes it.
    PAST = 6
    QUIET = 9


@dataclass(frozen=True)
class Finding:
    """One thing that ended or is stuck.

    Attributes:
        id: a stable name for programs, as in `task-out-of-memory`.
        what, where, why: a sentence each, in one line; `where` and `why` may be empty.
        hint: the one next thing to do, a command where there is one.
        weight: importance; among equals the latest, by `at` in seconds since 1970, comes first.
        job: the submission id, or Ray's job id, of the job that it is about; empty if it is about none.
        pod: the name of the pod that it is about.
    """

    id: str
    what: str
    where: str
    why: str
    hint: str
    weight: Weight
    at: float = 0.0
    job: str = ""
    pod: str = ""

    def __post_init__(self) -> None:
        # They contain names of jobs and pods, which could imitate our output with line breaks.
        for name in ("what", "where", "why", "hint"):
            object.__setattr__(self, name, sentence(getattr(self, name)))

    def document(self) -> dict[str, str]:
        return {"id": self.id, "what": self.what, "where": self.where, "why": self.why, "hint": self.hint}


def sentence(text: str) -> str:
    """Returns untrusted text as part of a sentence: one line, bounded, without escape sequences."""
    return plain.line(re.sub(r"\s+", " ", text).strip(), _LONGEST)
