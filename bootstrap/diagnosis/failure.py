"""Describes a failure of a driver, a task or an actor, whichever of Ray's records tells of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bootstrap.diagnosis.evidence import Actor, Task
from bootstrap.diagnosis.ray_errors import Raised, raised_in_task

# Ray's table of tasks calls a failure so (ErrorType of common.proto), its exceptions (ray/exceptions.py) so.
_EXCEPTIONS = {
    "WORKER_DIED": "WorkerCrashedError",
    "ACTOR_DIED": "ActorDiedError",
    "ACTOR_CREATION_FAILED": "ActorDiedError",
    "ACTOR_UNAVAILABLE": "ActorUnavailableError",
    "TASK_CANCELLED": "TaskCancelledError",
    "RUNTIME_ENV_SETUP_FAILED": "RuntimeEnvSetupError",
    "OBJECT_LOST": "ObjectLostError",
    "OBJECT_FREED": "ObjectFreedError",
    "OBJECT_FETCH_TIMED_OUT": "ObjectFetchTimedOutError",
    "OWNER_DIED": "OwnerDiedError",
    "LOCAL_RAYLET_DIED": "LocalRayletDiedError",
    "NODE_DIED": "NodeDiedError",
    "TASK_PLACEMENT_GROUP_REMOVED": "TaskPlacementGroupRemoved",
    "ACTOR_PLACEMENT_GROUP_REMOVED": "ActorPlacementGroupRemoved",
    "TASK_UNSCHEDULABLE_ERROR": "TaskUnschedulableError",
    "ACTOR_UNSCHEDULABLE_ERROR": "ActorUnschedulableError",
    "OUT_OF_DISK_ERROR": "OutOfDiskError",
    "OUT_OF_MEMORY": "OutOfMemoryError",
}


@dataclass(frozen=True)
class Failure:
    """A failure that `causes` explains.

    Attributes:
        name: the class of the exception by which Ray, or Python, tells of it, without the module.
        message: its own words.
        cause: an exception within it, as a line; empty where there is none.
        subject: who failed, as in `task parse`, `actor Model` or `the driver`.
        place: the user's line, as in `train.py:12, in load`; empty where none is known.
        text: all that was printed of it, and around it.
        attempts: how often a task was tried; 1 where it was not tried again.
        restarts: how often an actor was started again.
        alike: whether it failed in the same way each time that it was tried.
        unfinished: the names of the job's tasks that had not finished when it ended.
        task: what Ray's table has of it, where it is a task's.
    """

    name: str
    message: str
    cause: str
    subject: str
    place: str
    text: str
    attempts: int = 1
    restarts: int = 0
    alike: bool = True
    unfinished: Sequence[str] = ()
    task: Task | None = None


def of_driver(
    raised: Raised, log: str, tasks: Sequence[Task], actors: Sequence[Actor], unfinished: Sequence[str]
) -> Failure:
    """Returns the failure of a job whose driver ended with an exception.

    `tasks` are the job's failed tasks, the latest first, and `actors` the job's.
    """
    # Ray's own exceptions don't say which task or actor they are of; its tables do.
    of_its_kind = [task for task in tasks if _EXCEPTIONS.get(task.error_type) == raised.name]
    names = raised.tasks
    if raised.is_tasks and not names:
        # Of a task's exception group Ray does not print the task, but its table has the group's end.
        names = tuple(task.name for task in tasks if _ends_alike(task, raised))[:1]
    named = [task for task in tasks if names and task.name == names[-1]]
    task = next(iter([*named, *of_its_kind]), None)
    actor = next((actor for actor in actors if actor.actor_id in raised.text), None)
    if actor and raised.name in ("ActorDiedError", "ActorUnavailableError"):
        subject = f"actor {actor.name}"
    elif names:
        subject = f"task {names[-1]}"
    elif of_its_kind and task:
        subject = f"task {task.name}"
    else:
        subject = "a task" if raised.is_tasks else "the driver"
    return Failure(
        name=raised.name,
        message=raised.message,
        cause=raised.cause,
        subject=subject,
        place=raised.place,
        text="\n".join([raised.text, task.error if task else "", log]),
        attempts=task.attempt + 1 if task else 1,
        restarts=actor.restarts if actor else 0,
        alike=task.alike if task else True,
        unfinished=unfinished,
        task=task,
    )


def _ends_alike(task: Task, raised: Raised) -> bool:
    told = raised_in_task(task.error)
    return told is not None and told.parts[-1:] == raised.parts[-1:]


def of_task(task: Task) -> Failure:
    """Returns the failure of a task, as Ray's table has it."""
    raised = raised_in_task(task.error)
    name = _EXCEPTIONS.get(task.error_type, "")
    if not name and raised:
        name = raised.name
    return Failure(
        name=name or task.error_type or "Exception",
        message=raised.message if raised and task.error_type not in _EXCEPTIONS else task.error,
        cause=f"{raised.name}: {raised.message}" if raised else "",
        subject=f"task {task.name}",
        place=raised.place if raised else "",
        text=task.error,
        attempts=task.attempt + 1,
        task=task,
        alike=task.alike,
    )
