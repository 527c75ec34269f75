"""Explains tasks and actors that failed in jobs that go on, ended well, or were not submitted."""

from __future__ import annotations

from collections.abc import Iterator

from bootstrap.diagnosis.causes import cause
from bootstrap.diagnosis.evidence import Actor, Evidence, Task
from bootstrap.diagnosis.failure import Failure, of_task
from bootstrap.diagnosis.finding import Finding, Weight, sentence

# Who made an actor lets it go, or ends, or kills it: that is no failure of the actor.
_MEANT = frozenset({"OUT_OF_SCOPE", "REF_DELETED", "OWNER_DIED", "RAY_KILL"})

# A task of an actor that failed so tells how its actor ended.
_TELLING = frozenset(
    {"ACTOR_DIED", "TASK_EXECUTION_EXCEPTION", "OUT_OF_MEMORY", "NODE_DIED", "RUNTIME_ENV_SETUP_FAILED"}
)


def failed_tasks(evidence: Evidence) -> Iterator[Finding]:
    """Yields one finding for tasks of one name and job that failed alike, how many there may be."""
    if not evidence.knows_attempts:
        return  # What failed once may have gone well when it was tried again.
    alike: dict[tuple[str, str, str, str], list[Task]] = {}
    for job_id in dict.fromkeys(task.job_id for task in evidence.tasks):
        if _explained_by_job(evidence, job_id):
            continue
        for task in evidence.failed_tasks(job_id):
            failure = of_task(task)
            alike.setdefault((job_id, task.name, cause(failure).id, failure.name), []).append(task)
    for (job_id, *_), tasks in alike.items():
        failure = of_task(tasks[0])
        its_cause = cause(failure)
        more = f"; {len(tasks)} tasks of this name failed so" if len(tasks) > 1 else ""
        name = evidence.job_name(job_id)
        yield Finding(
            its_cause.id,
            sentence(its_cause.what),
            sentence(f"job {name}, {failure.place}" if failure.place else f"job {name}"),
            sentence(its_cause.why + more),
            sentence(its_cause.hint),
            Weight.PART_FAILED,
            at=tasks[0].since,
            job=name,
        )


def dead_actors(evidence: Evidence) -> Iterator[Finding]:
    """Yields a finding for each actor that died by itself, unless a task of it tells that already."""
    explained_by_tasks = {
        (task.job_id, task.name.partition(".")[0])
        for task in evidence.tasks
        if task.state == "FAILED" and task.error_type in _TELLING
    }
    for actor in evidence.actors:
        by_job = _explained_by_job(evidence, actor.job_id)
        by_task = (actor.job_id, actor.name) in explained_by_tasks
        if actor.state != "DEAD" or not _failed(actor) or by_job or by_task:
            continue
        failure = _of_actor(actor)
        its_cause = cause(failure)
        name = evidence.job_name(actor.job_id)
        yield Finding(
            its_cause.id,
            sentence(its_cause.what),
            sentence(f"job {name}"),
            sentence(its_cause.why),
            sentence(its_cause.hint),
            Weight.PART_FAILED,
            job=name,
        )


def _failed(actor: Actor) -> bool:
    return actor.reason not in _MEANT and "INTENDED" not in actor.cause


def _of_actor(actor: Actor) -> Failure:
    names = {"oom": "OutOfMemoryError", "runtime_env_failed": "RuntimeEnvSetupError"}
    unschedulable = {"actor_unschedulable": "ActorUnschedulableError"}
    return Failure(
        name={**names, **unschedulable}.get(actor.reason, "ActorDiedError"),
        message=actor.cause,
        cause="",
        subject=f"actor {actor.name}",
        place="",
        text=actor.cause,
        restarts=actor.restarts,
    )


def _explained_by_job(evidence: Evidence, job_id: str) -> bool:
    job = evidence.by_job_id.get(job_id)
    return job is not None and job.status in ("FAILED", "STOPPED")
