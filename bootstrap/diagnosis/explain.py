"""Asks each explainer, and puts what they find in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from bootstrap.diagnosis.evidence import RUNNING, Evidence
from bootstrap.diagnosis.explainers import broken_parts, cluster, ended_jobs, paused, pods, waiting
from bootstrap.diagnosis.finding import Finding, Weight, sentence

EXPLAINERS: tuple[Callable[[Evidence], Iterable[Finding]], ...] = (
    cluster.ray_unreachable,
    cluster.dead_nodes,
    pods.troubled_pods,
    pods.restarted_containers,
    pods.failed_rayjobs,
    ended_jobs.failed_jobs,
    ended_jobs.stopped_jobs,
    paused.paused,
    waiting.pending_jobs,
    waiting.pending_tasks,
    waiting.pending_groups,
    waiting.full_object_store,
    broken_parts.failed_tasks,
    broken_parts.dead_actors,
)


def findings(evidence: Evidence, *, job: str = "", pod: str = "") -> list[Finding]:
    """Returns what is found, the most important first, and at least one finding.

    Args:
        job: the submission id of the one job that is meant; what the whole cluster suffers from is told, too.
        pod: the name of the one pod that is meant.
    """
    found = [finding for explain in EXPLAINERS for finding in explain(evidence)]
    if pod and (gone := pods.gone_pod(evidence, pod)):
        found.append(gone)
    if job:
        found = [each for each in found if each.job == job or each.weight is Weight.CLUSTER]
    if pod:
        found = [each for each in found if each.pod == pod]
    found = found or [_quiet(evidence, job, pod)]
    return sorted(found, key=lambda each: (each.weight, -each.at))


def _quiet(evidence: Evidence, job: str, pod: str) -> Finding:
    """Returns that nothing is wrong, with what runs."""
    running = [each for each in evidence.jobs if not each.ended and job in ("", each.submission_id)]
    names = [
        task.name
        for task in evidence.live_tasks
        if task.state in RUNNING and _is_of(evidence, task.job_id, job)
    ]
    if pod:
        phase = next(
            (each["status"].get("phase") for each in evidence.pods if each["metadata"]["name"] == pod), ""
        )
        why = f"pod {pod} is {phase}"
    elif job and not running:
        ended = next((each.status for each in evidence.jobs if each.submission_id == job), "")
        why = f"job {job} has ended: {ended}"
    elif running:
        jobs = ", ".join(each.submission_id for each in running[-5:])
        tasks = f"; in them tasks: {', '.join(dict.fromkeys(names))} ({len(names)} in all)" if names else ""
        why = f"running: job {jobs}{tasks}"
    else:
        why = "no job runs"
    return Finding(
        "nothing-wrong",
        "nothing failed and nothing is stuck"
        if not evidence.unread
        else "nothing wrong in what could be read",
        "",
        sentence(why),
        "./invokew submit --help says how to run your own program"
        if not running
        else "./invokew logs --follow",
        Weight.QUIET,
        job=job,
        pod=pod,
    )


def _is_of(evidence: Evidence, job_id: str, job: str) -> bool:
    return not job or evidence.job_name(job_id) == job
