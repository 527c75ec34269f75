"""Checks lab 20: a worker comes for tasks that wait, no more than may, and goes when it has nothing to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from bootstrap.kube.api import RAY, Kube
from bootstrap.kube.rayjob import document
from bootstrap.labs.exercise import PATIENCE, Exercise
from rayside.ray import jobs
from rayside.ray.state import Dashboard
from rayside.waiting import until

TARGETS = ("kind",)

_HERE = Path(__file__).parent
_NAME = "bakery-check"
# An idle worker that stays longer than this is not worth waiting for.
_LONGEST_IDLE = 30


def solve(exercise: Exercise) -> None:
    exercise.write_answers(state="PENDING_NODE_ASSIGNMENT", workers=1)


def verify(exercise: Exercise) -> None:
    answers = {name: exercise.answer(name) for name in ("state", "workers")}
    kubernetes = exercise.target.kubernetes
    assert kubernetes
    rayjob = document.load(exercise.folder / "ray-job.yaml", kubernetes.kube.namespace)
    rayjob["metadata"] = {**rayjob["metadata"], "name": _NAME}
    _check_options(exercise, rayjob["spec"].get("rayClusterSpec") or {})
    with _job(exercise, rayjob) as (dashboard, cluster, name):
        seen = _watch(exercise, dashboard, kubernetes.kube, cluster, name)
        _check_workers(exercise, seen)
        idle = until(lambda: _workers(kubernetes.kube, cluster), lambda pods: not pods, PATIENCE)
        exercise.require(
            not idle,
            f"{len(idle)} worker is still there, and has had nothing to do",
            "minReplicas workers stay, whatever they do",
        )
    exercise.require(
        answers["state"] in seen.states,
        f"no task was {answers['state']} while the cluster had no worker",
        "list the tasks before the first worker is ready",
    )
    exercise.require(
        answers["workers"] == seen.most,
        f"there were not {answers['workers']} worker pods at most",
        "kubectl get pods --watch shows each that comes",
    )


def _check_options(exercise: Exercise, cluster: Mapping[str, Any]) -> None:
    """Checks what would otherwise have the job, or the check, wait in vain. Raises NotSolved."""
    exercise.require(
        cluster.get("enableInTreeAutoscaling") is True,
        "no autoscaler runs beside the head, and so nobody makes a worker",
        "enableInTreeAutoscaling is a field of rayClusterSpec",
    )
    groups = cluster.get("workerGroupSpecs") or [{}]
    exercise.require(
        any(int(group.get("maxReplicas") or 0) >= 1 for group in groups),
        "no group of workers may have a worker",
        "maxReplicas is how many a group may have at most",
    )
    idle = (cluster.get("autoscalerOptions") or {}).get("idleTimeoutSeconds", 60)
    exercise.require(
        isinstance(idle, int) and idle <= _LONGEST_IDLE,
        f"a worker that is idle stays for {idle} s",
        "autoscalerOptions.idleTimeoutSeconds says how long; make it 10",
    )


@contextmanager
def _job(exercise: Exercise, rayjob: dict[str, Any]) -> Iterator[tuple[Dashboard, str, str]]:
    """Runs the program as the learner's RayJob; yields its dashboard, RayCluster and submission id."""
    kubernetes = exercise.target.kubernetes
    assert kubernetes
    submission = jobs.prepare(working_dir=str(_HERE), py_modules=[], entrypoint="python main.py")
    name = jobs.new_submission_id(submission.entrypoint)
    exercise.report(f"submitting the RayJob {_NAME}")
    try:
        yield (*kubernetes.submit_rayjob(rayjob, submission, name, exercise.report, lambda: None), name)
    finally:
        exercise.report(f"removing the RayJob {_NAME}")
        kubernetes.kube.delete(f"{RAY}/namespaces/{kubernetes.kube.namespace}/rayjobs/{_NAME}")
        kubernetes.lead_to(exercise.target.instance.ray_cluster)


class _Seen(NamedTuple):
    """What was seen of a job: the states of its tasks while there was no worker, and the most workers."""

    states: set[str]
    most: int
    output: str


def _watch(exercise: Exercise, dashboard: Dashboard, kube: Kube, cluster: str, name: str) -> _Seen:
    """Returns what was seen until the job had ended. Raises NotSolved where it does not succeed."""
    states: set[str] = set()
    counts = [0]

    def look() -> bool:
        job = dashboard.job(name)
        counts.append(len(_workers(kube, cluster)))
        if counts[-1] > max(counts[:-1]):
            exercise.report(f"worker pods: {counts[-1]}")
        if job.job_id and dashboard.live_nodes() == 1:
            states.update(task["state"] for task in dashboard.table("tasks", job_id=job.job_id))
        return job.ended

    until(look, bool, PATIENCE)
    job, output = dashboard.job(name), dashboard.output(name)
    exercise.require(
        job.status == "SUCCEEDED",
        f"the job is {job.status}: {output.strip().splitlines()[-1]}",
        "./invokew logs shows what it printed",
    )
    return _Seen(states, max(counts), output)


def _check_workers(exercise: Exercise, seen: _Seen) -> None:
    exercise.require(
        "processors at the beginning: 0" in seen.output,
        "the cluster had a worker before there was any task",
        "replicas and minReplicas are both 0",
    )
    exercise.require(
        seen.most == 1 and "baked 4 loaves on 1 node" in seen.output,
        f"there were {seen.most} workers, and one is to be the most",
        "maxReplicas is how many a group may have at most",
    )


def _workers(kube: Kube, cluster: str) -> list[dict[str, Any]]:
    """Returns the worker pods that are not being removed."""
    pods = kube.pods(f"ray.io/cluster={cluster},ray.io/node-type=worker")
    return [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
