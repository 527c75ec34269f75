"""Findings of all explainers, the most important first."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from bootstrap.diagnosis import failed, pending, unhealthy
from bootstrap.diagnosis.evidence import RUNNING, Evidence, Finding, Weight, sentence
from rayside.ray.outcome import explain_exit

EXPLAINERS: tuple[Callable[[Evidence], Iterable[Finding]], ...] = (
    unhealthy.ray_unreachable,
    unhealthy.dead_nodes,
    unhealthy.troubled_pods,
    unhealthy.restarted_containers,
    unhealthy.failed_rayjobs,
    failed.failed_jobs,
    pending.paused,
    pending.pending_jobs,
    pending.pending_tasks,
    pending.pending_groups,
    failed.failed_tasks,
    failed.dead_actors,
)


def findings(evidence: Evidence, *, job: str = "", pod: str = "") -> list[Finding]:
    """Returns at least one finding, the most important first.

    An explainer that fails, as for a malformed row, is added to `evidence.unread`.

    Args:
        job: submission id, for findings of this job and of the whole cluster.
        pod: name, for findings of this pod.
    """
    collected: list[Finding] = []
    for explain in EXPLAINERS:
        try:
            collected.extend(explain(evidence))
        # It reads untrusted text from jobs: an error in one explainer must not end the others.
        except Exception as error:
            odd = f"{explain.__name__} can't explain what it sees: {type(error).__name__}: {error}"
            evidence.unread.append(sentence(odd))
    if job:
        collected = [each for each in collected if each.job == job or each.weight is Weight.CLUSTER]
    if pod:
        collected = [each for each in collected if each.pod == pod]
    collected = collected or [_quiet(evidence, job, pod)]
    return sorted(collected, key=lambda each: (each.weight, -each.at))


def _quiet(evidence: Evidence, job: str, pod: str) -> Finding:
    running = [each for each in evidence.jobs if not each.ended and job in ("", each.submission_id)]
    live = [task for task in evidence.live_tasks if task.state in RUNNING]
    names = [task.name for task in live if job in ("", evidence.job_name(task.job_id))]
    ended = next((each for each in evidence.jobs if each.submission_id == job), None)
    if pod:
        statuses = [each.get("status") for each in evidence.pods if each["metadata"]["name"] == pod]
        why = f"pod {pod} is {((statuses or [None])[0] or {}).get('phase', '')}"
    elif job and ended and not running:
        why = f"job {job} has ended: {ended.status}"
        why += f", {explain_exit(ended.exit_code)}" if ended.exit_code is not None else ""
    elif running or (job and names):  # The driver of a job may have been started by hand.
        jobs = ", ".join(each.submission_id for each in running[-5:]) or job
        tasks = f"; in them tasks: {', '.join(dict.fromkeys(names))} ({len(names)} in all)" if names else ""
        why = f"running: job {jobs}{tasks}"
    else:
        why = f"nothing of job {job} runs" if job else "no job runs"
    what = "nothing wrong in what could be read" if evidence.unread else "nothing failed and nothing is stuck"
    hint = (
        "./invokew logs --follow" if running else "./invokew submit --help says how to run your own program"
    )
    return Finding("nothing-wrong", what, "", why, hint, Weight.QUIET, job=job, pod=pod)
