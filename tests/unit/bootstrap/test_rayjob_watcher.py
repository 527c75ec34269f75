"""Tests when kubectl-ray's wait is in vain, and the token of a RayJob's own cluster."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any, cast

import pytest

from bootstrap.errors import ImageMissing, NamespaceTerminating, OperatorNotRunning, PodFailed
from bootstrap.kube.rayjob import watcher as watcher_module
from bootstrap.kube.rayjob.watcher import Watcher
from rayside.errors import ClusterUnreachable, NotReady, RaysideError, SubmissionFailed
from tests.unit.scripted_rayjob import ACTIVE, JOB, NAMESPACE, Scripted, existing_rayjob, scripted


def watcher(script: dict[str, Any], token_file: Path | None = None) -> Watcher:
    return Watcher(scripted(script), "mine", "m-1", token_file)


def after_twenty_seconds(watching: Watcher) -> RaysideError | None:
    """Returns what is found when KubeRay has given the RayJob no cluster for so long."""
    watching.look(100)
    return watching.look(120)


OPERATORS = "/apis/apps/v1/deployments?app.kubernetes.io/name in (kuberay,kuberay-operator)"
OPERATORS_SPEC = {"template": {"spec": {"containers": [{"image": "operator:v1.6.2"}]}}}
SUSPENDED = "RayJob mine is suspended;"
OPERATORS_PODS = "app.kubernetes.io/component=kuberay-operator"
PODS = f"{NAMESPACE}/pods?ray.io/cluster=mine-x"
CLUSTER = "/apis/ray.io/v1/namespaces/default/rayclusters/mine-x"
CLUSTER_EVENTS = f"{NAMESPACE}/events?involvedObject.kind=RayCluster,involvedObject.name=mine-x"


def pod(state: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    status = {"name": "ray-head", "image": "rayside/ray:current", "ready": False, "state": state}
    conditions = [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "False"}]
    return {
        "metadata": {"name": "head", "uid": "u", **metadata},
        "spec": {"containers": [{"name": "ray-head"}]},
        "status": {"phase": "Pending", "conditions": conditions, "containerStatuses": [status]},
    }


def no_events(kind: str, name: str, namespace: str = "default") -> str:
    path = f"/api/v1/namespaces/{namespace}/events"
    return f"{path}?involvedObject.kind={kind},involvedObject.name={name}"


# A RayJob whose cluster's pod is on its way.
COMING: dict[str, Any] = {
    JOB: existing_rayjob(rayClusterName="mine-x"),
    PODS: [pod({"running": {}})],
    no_events("Pod", "head"): [],
}


@pytest.mark.parametrize(
    "job",
    [
        None,
        existing_rayjob("other-1", jobDeploymentStatus="Failed"),
        # Ray has it.
        existing_rayjob(jobDeploymentStatus="Failed", jobStatus="FAILED", reason="AppFailed"),
    ],
)
def test_a_rayjob_that_is_not_made_yet_or_anothers_or_rays_is_left_alone(job: Any) -> None:
    assert watcher({JOB: job}).look(100) is None


def test_an_operator_that_is_not_there_is_told_after_some_time() -> None:
    watching = watcher({JOB: existing_rayjob(), OPERATORS: []})
    assert [watching.look(now) for now in (100, 119.9)] == [None, None]
    problem = watching.look(120)
    assert isinstance(problem, OperatorNotRunning)
    assert "has no KubeRay operator" in problem.message
    assert "./invokew up" in problem.hint


def test_an_operator_that_does_not_run_is_explained_by_its_pod() -> None:
    metadata = {"namespace": "kuberay-system", "generation": 1}
    operator = {"metadata": metadata, "spec": OPERATORS_SPEC, "status": {"replicas": 1}}
    waits = pod({"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling"}})
    watching = watcher(
        {
            JOB: existing_rayjob(),
            OPERATORS: [operator],
            f"/api/v1/namespaces/kuberay-system/pods?{OPERATORS_PODS}": [waits],
            no_events("Pod", "head", "kuberay-system"): [],
        }
    )
    problem = after_twenty_seconds(watching)
    assert isinstance(problem, OperatorNotRunning)
    assert "nothing becomes of RayJob mine" in problem.message
    assert "Back-off pulling" in problem.message


def test_an_operator_that_runs_and_does_nothing_is_told_with_the_last_event() -> None:
    running = {"observedGeneration": 1, "availableReplicas": 1}
    metadata = {"namespace": "default", "generation": 1}
    operator = {"metadata": metadata, "spec": OPERATORS_SPEC, "status": running}
    event = {
        "message": "the webhook timed out",
        "lastTimestamp": "2026-01-01T00:00:00Z",
        "involvedObject": {"uid": "u-mine"},
    }
    # The one of that name that was there before was refused.
    earlier = {
        "message": "the name is too long",
        "lastTimestamp": "2026-01-01T00:00:01Z",
        "involvedObject": {"uid": "u-earlier"},
    }
    events = no_events("RayJob", "mine")
    watching = watcher({JOB: existing_rayjob(), OPERATORS: [operator], events: [event, earlier]})
    problem = after_twenty_seconds(watching)
    assert isinstance(problem, NotReady)
    assert problem.message.endswith("within 20 s: the webhook timed out")
    watching.kube.script[events] = [earlier]  # type: ignore[attr-defined]
    problem = after_twenty_seconds(watching)
    assert problem and problem.message.endswith("within 20 s")


def queued(**status: str) -> dict[str, Any]:
    job = existing_rayjob(**status)
    labels = {"kueue.x-k8s.io/queue-name": "user-queue"}
    return {
        **job,
        "metadata": {**job["metadata"], "labels": labels},
        "spec": {**job["spec"], "suspend": True},
    }


def test_a_suspended_rayjob_waits_for_its_queue() -> None:
    # KubeRay names a cluster for a moment, which it does not make.
    watching = watcher({JOB: queued(rayClusterName="mine-x", jobDeploymentStatus="Initializing")})
    reports: list[str] = []
    watching.report = reports.append
    for now in (100, 200, 10_000):
        assert watching.look(now) is None
    assert watching.suspended
    (report,) = reports
    assert report == f"{SUSPENDED} it waits in the queue user-queue until its spec has suspend: false"
    # Once admitted it has as long as any other; KubeRay may not have noticed yet.
    watching.kube.script[JOB] = existing_rayjob(jobDeploymentStatus="Suspended")  # type: ignore[attr-defined]
    assert watching.look(10_019) is None
    assert not watching.suspended
    watching.kube.script[OPERATORS] = []
    assert isinstance(watching.look(10_020), OperatorNotRunning)


def test_a_suspended_rayjob_without_a_queue_says_so() -> None:
    job = queued()
    del job["metadata"]["labels"]
    watching, reports = waits(job)
    watching.look(100)
    (report,) = reports
    assert report == f"{SUSPENDED} it names no queue, and waits until its spec has suspend: false"


@pytest.mark.parametrize("job", [queued, existing_rayjob])
def test_a_rayjob_that_kuberay_refuses_is_seen_at_once_suspended_or_not(job: Any) -> None:
    refused = job(jobDeploymentStatus="ValidationFailed", message="not allowed to be suspended")
    problem = watcher({JOB: refused}).look(100)
    assert isinstance(problem, SubmissionFailed) and "not allowed to be suspended" in problem.message


class Steps(Scripted):
    """Has the RayJob in one state after the other, one each time that it is asked for."""

    def _call(self, method: str, path: str, *more: Any) -> dict[str, Any] | None:
        if path == JOB:
            state = self.script["states"].pop(0)
            if isinstance(state, RaysideError):
                raise state
            return cast("dict[str, Any] | None", state)
        return super()._call(method, path, *more)


def waits(*states: Any) -> tuple[Watcher, list[str]]:
    script = {"states": list(states), NAMESPACE: ACTIVE, PODS: [], CLUSTER: None}
    reports: list[str] = []
    kube = Steps(Path("/k/config"), "kind-rayside", script=script)
    return Watcher(kube, "mine", "m-1", None, reports.append), reports


@pytest.fixture
def _looks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher_module, "_PAUSE", 0.005)


@pytest.mark.usefixtures("_looks_at_once")
def test_it_waits_until_the_cluster_is_ready() -> None:
    admitted = existing_rayjob(rayClusterName="mine-x", jobDeploymentStatus="Initializing")
    ready = existing_rayjob(rayClusterName="mine-x", jobDeploymentStatus="Waiting")
    unreachable = ClusterUnreachable("the API does not answer", hint="")
    # It is evicted in between, when its cluster is just ready.
    evicted = queued(rayClusterName="mine-x", jobDeploymentStatus="Waiting")
    watching, reports = waits(queued(), unreachable, admitted, evicted, admitted, ready)
    watching.wait()
    assert watching.kube.script["states"] == []  # type: ignore[attr-defined]
    assert [report.split(";")[0] for report in reports] == [
        "RayJob mine is suspended",
        "the API does not answer",
        "RayJob mine is suspended",
    ]


@pytest.mark.usefixtures("_looks_at_once")
def test_it_waits_no_more_for_what_is_gone() -> None:
    watching, _ = waits(queued(), None)
    with pytest.raises(SubmissionFailed, match="somebody has removed RayJob mine"):
        watching.wait()


def test_a_cluster_that_does_not_come_up_is_given_ten_minutes() -> None:
    watching = watcher(COMING)
    assert [watching.look(now) for now in (100, 699)] == [None, None]
    problem = watching.look(700)
    assert problem
    assert problem.message.endswith("not ready after 600 s: pod head: ray-head is starting")


def test_a_namespace_that_goes_is_seen_at_once() -> None:
    watching = watcher({JOB: existing_rayjob(), NAMESPACE: {"status": {"phase": "Terminating"}}})
    assert isinstance(watching.look(100), NamespaceTerminating)


def test_a_pod_that_can_not_run_is_told_once_that_lasts() -> None:
    sick = pod({"waiting": {"reason": "ErrImagePull", "message": "not found"}})
    watching = watcher({**COMING, PODS: [sick]})
    assert [watching.look(now) for now in (100, 104)] == [None, None]
    assert isinstance(watching.look(105), ImageMissing)
    # A container that was started again, and runs, starts the count anew.
    other = watcher(COMING)
    for now, pods in ((100, [sick]), (104, COMING[PODS]), (105, [sick])):
        other.kube.script[PODS] = pods  # type: ignore[attr-defined]
        assert other.look(now) is None


def test_a_cluster_without_pods_is_explained_by_its_events() -> None:
    event = {
        "type": "Warning",
        "reason": "FailedToCreateHeadPod",
        "message": "Failed to create head Pod default/, pods is forbidden: exceeded quota",
        "lastTimestamp": "2026-01-01T00:00:00Z",
        "involvedObject": {"uid": "u-cluster"},
    }
    script = {**COMING, PODS: [], CLUSTER_EVENTS: [event]}
    watching = watcher({**script, CLUSTER: {"metadata": {"name": "mine-x", "uid": "u-cluster"}}})
    watching.look(100)
    problem = watching.look(105)
    assert isinstance(problem, PodFailed)
    assert "exceeded quota" in problem.message
    # An earlier cluster of that name was refused, not this one.
    for now in (None, {"metadata": {"name": "mine-x", "uid": "u-other"}}):
        watching = watcher({**script, CLUSTER: now})
        assert [watching.look(at) for at in (100, 105)] == [None, None]


def test_what_the_pods_wait_for_is_told_once() -> None:
    watching = watcher(COMING)
    reports: list[str] = []
    watching.report = reports.append
    watching.look(100)
    watching.look(101)
    assert reports == ["pod head: ray-head is starting"]
    assert "pod head: ray-head is starting" in watching.not_ready().message


def secret(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "data": {"auth_token": base64.b64encode(b"s3cret").decode()}}


def test_the_token_of_the_jobs_own_cluster_is_kept_for_its_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("stale")
    by_label = f"{NAMESPACE}/secrets?ray.io/cluster=mine-x"
    watching = watcher({**COMING, by_label: []}, file)
    watching.look(100)
    assert file.read_text() == "stale"
    watching.kube.script[by_label] = [{"metadata": {"name": "other"}}, secret("mine-x")]  # type: ignore[attr-defined]
    watching.look(101)
    assert file.read_text() == "s3cret"
    assert file.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["token"]
    # Kept once: what is not scripted any more is not asked for.
    del watching.kube.script[by_label]  # type: ignore[attr-defined]
    watching.look(102)


def test_an_evicted_rayjob_gets_another_cluster_and_its_token(tmp_path: Path) -> None:
    file, by_label = tmp_path / "token", f"{NAMESPACE}/secrets?ray.io/cluster=mine-"
    script: dict[str, Any] = {f"{by_label}x": [secret("mine-x")], f"{by_label}y": []}
    for name in "xy":
        script[f"{NAMESPACE}/pods?ray.io/cluster=mine-{name}"] = COMING[PODS]
    watching = watcher({**COMING, **script}, file)

    def look(job: dict[str, Any]) -> bool:
        watching.kube.script[JOB] = job  # type: ignore[attr-defined]
        assert watching.look(100) is None
        return watching.ready

    assert look(existing_rayjob(rayClusterName="mine-x", jobDeploymentStatus="Waiting"))
    assert file.read_text() == "s3cret"
    assert not look(queued(jobDeploymentStatus="Suspended"))
    ready = existing_rayjob(rayClusterName="mine-y", jobDeploymentStatus="Waiting")
    assert not look(ready)
    other = {"auth_token": base64.b64encode(b"another").decode()}
    watching.kube.script[f"{by_label}y"] = [{**secret("mine-y"), "data": other}]  # type: ignore[attr-defined]
    assert look(ready)
    assert file.read_text() == "another"


def test_a_token_secret_that_the_file_names_is_read_by_its_name(tmp_path: Path) -> None:
    job = existing_rayjob(rayClusterName="mine-x")
    job["spec"]["rayClusterSpec"] = {"authOptions": {"mode": "token", "secretName": "given"}}
    script = {**COMING, JOB: job, f"{NAMESPACE}/secrets/given": secret("given")}
    watcher(script, tmp_path / "token").look(100)
    assert (tmp_path / "token").read_text() == "s3cret"
