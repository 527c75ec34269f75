"""Findings for failed jobs, tasks and actors: one each, the cause and not its consequences."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import replace

from bootstrap.diagnosis.causes import Cause, cause, why_no_runtime_env
from bootstrap.diagnosis.evidence import Evidence, Finding, Task, Weight
from bootstrap.diagnosis.raised import Failure, last_raised, last_words, of_actor, of_driver, of_task
from rayside.ray.outcome import explain_exit
from rayside.ray.records import Job

# Reasons that are no failure of an actor: its owner dropped it, ended, or killed it.
_MEANT = frozenset({"OUT_OF_SCOPE", "REF_DELETED", "OWNER_DIED", "RAY_KILL"})
# Errors of an actor's task that explain how the actor ended.
_TELLING = frozenset(
    {"ACTOR_DIED", "TASK_EXECUTION_EXCEPTION", "OUT_OF_MEMORY", "NODE_DIED", "RUNTIME_ENV_SETUP_FAILED"}
)


def failed_jobs(evidence: Evidence) -> Iterator[Finding]:
    for job in evidence.jobs:
        if job.status != "FAILED":
            continue
        log, error_type = (by.get(job.submission_id, "") for by in (evidence.logs, evidence.error_types))
        failure = _failure(job, log, evidence)
        if error_type == "RUNTIME_ENV_SETUP_FAILURE":
            why, hint = why_no_runtime_env(job.message)
            its_cause = Cause("runtime-env-failed", "its runtime_env could not be made", why, hint)
        else:
            its_cause = cause(failure) if failure else _unexplained(job, log, error_type)
        place = failure.place if failure else ""
        what, name = f"job {job.submission_id} failed: {its_cause.what}", job.submission_id
        yield _finding(replace(its_cause, what=what), place, Weight.FAILED, name, job.started)


def _failure(job: Job, log: str, evidence: Evidence) -> Failure | None:
    """Returns the failure that ended the driver; None if it printed no exception."""
    if job.exit_code is None and "low on memory" in job.message:
        # Ray killed the process that runs the driver.
        return Failure("OutOfMemoryError", job.message, job.message)
    # Python exits with 1 after an exception: with another exit code, exceptions in the log were handled.
    if job.exit_code not in (None, 1):
        return None
    # Ray's message has the last ten lines of the log, which may contain only a part of the exception.
    raised = last_raised(log) or last_raised(job.message)
    if raised is None:
        return None
    job_id = job.job_id or ""
    tasks = evidence.failed_tasks(job_id) if job_id else []
    actors = [actor for actor in evidence.actors if actor.job_id == job_id]
    unfinished = [task.name for task in evidence.unfinished_tasks(job_id)] if job_id else []
    return of_driver(raised, log, tasks, actors, unfinished)


def _unexplained(job: Job, log: str, error_type: str) -> Cause:
    return Cause(
        "job-failed",
        (explain_exit(job.exit_code) if job.exit_code is not None else error_type) or "Ray does not say why",
        last_words(log) or last_words(job.message),
        f"./invokew logs --job {shlex.quote(job.submission_id)} shows all of its output",
    )


# --- tasks and actors in jobs that continue, succeeded, or were not submitted ---------------


def failed_tasks(evidence: Evidence) -> Iterator[Finding]:
    """Yields one finding for all tasks of the same name and job that failed alike."""
    if not evidence.knows_attempts:
        return  # A failed task may have succeeded in a retry.
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
        place = f"job {name}, {failure.place}" if failure.place else f"job {name}"
        its_cause = replace(its_cause, why=its_cause.why + more)
        yield _finding(its_cause, place, Weight.PART_FAILED, name, tasks[0].since)


def dead_actors(evidence: Evidence) -> Iterator[Finding]:
    """Yields a finding for each actor that died by itself, unless one of its tasks explains that already."""
    explained_by_tasks = {
        (task.job_id, task.name.partition(".")[0])
        for task in evidence.tasks
        if task.state == "FAILED" and task.error_type in _TELLING
    }
    for actor in evidence.actors:
        by_job = _explained_by_job(evidence, actor.job_id)
        by_task = (actor.job_id, actor.name) in explained_by_tasks
        is_meant = actor.reason in _MEANT or "INTENDED" in actor.cause
        if actor.state != "DEAD" or is_meant or by_job or by_task:
            continue
        name = evidence.job_name(actor.job_id)
        yield _finding(cause(of_actor(actor)), f"job {name}", Weight.PART_FAILED, name)


def _finding(its: Cause, where: str, weight: Weight, job: str, at: float = 0.0) -> Finding:
    return Finding(its.id, its.what, where, its.why, its.hint, weight, at, job)


def _explained_by_job(evidence: Evidence, job_id: str) -> bool:
    job = evidence.by_job_id.get(job_id)
    return job is not None and job.status in ("FAILED", "STOPPED")
