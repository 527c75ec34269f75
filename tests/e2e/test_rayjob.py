"""Tests, on the real cluster, that failed pods are explained, and that no submission waits in vain."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bootstrap.errors import ImageMissing, NamespaceTerminating, PodFailed, WrongArchitecture
from bootstrap.kube import trouble
from bootstrap.kube.api import RAY, Kube
from bootstrap.kube.rayjob.document import for_standing_cluster, own_head_selector, problem
from bootstrap.kube.rayjob.kubectl_ray import KubectlRay
from bootstrap.settings import ROOT
from bootstrap.steps.package_index import PackageIndex, rayjob_with_it
from rayside.connection.heads import to_pod
from rayside.errors import NotReady, RaysideError, SubmissionFailed
from rayside.ray import jobs
from rayside.ray.metadata import WORKING_DIR
from rayside.ray.state import Dashboard
from rayside.reach.supervisor import forwarded
from rayside.waiting import until
from tests.e2e.conftest import make_namespace, target
from tests.failures.pods import FOREIGN
from tests.instances import instance
from tests.integration.conftest import Rayside
from tests.patience import PATIENCE

ABSENT = "rayside/absent:none"
INDEX = "https://pypi.test/simple/"


@pytest.fixture(scope="module")
def cluster(up: Rayside) -> Kube:
    return target(up).kube


@pytest.fixture(scope="module")
def kube(cluster: Kube) -> Iterator[Kube]:
    """Provides a namespace for these tests alone."""
    name = f"rayside-test-{secrets.token_hex(3)}"
    make_namespace(cluster, name)
    yield replace(cluster, namespace=name)
    cluster.delete(f"/api/v1/namespaces/{name}")


def placed(document: dict[str, Any], kube: Kube) -> dict[str, Any]:
    """Returns the same document in that namespace."""
    return {**document, "metadata": {**document["metadata"], "namespace": kube.namespace}}


@pytest.fixture(scope="module")
def image(cluster: Kube) -> str:
    """Returns the Ray image that the node has; it has a shell."""
    names: list[str] = [
        name
        for node in cluster.items("/api/v1/nodes")
        for entry in node["status"].get("images", [])
        # Null where a tag has moved on: Kubernetes writes this list even when it has nothing in it.
        for name in entry.get("names") or []
    ]
    return next(name for name in names if "rayside/ray:" in name)


def pod(name: str, image: str, *command: str, **container: Any) -> dict[str, Any]:
    spec = {
        "name": "main",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": list(command) or ["sleep", "600"],
        **container,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"test": name}},
        "spec": {"containers": [spec], "terminationGracePeriodSeconds": 0},
    }


@pytest.fixture(scope="module")
def pods(kube: Kube, image: str) -> None:
    """Makes all of them at once, because each takes its time to fail."""
    code = [{"name": "code", "mountPath": "/code"}]
    foreign = pod("foreign", image, "/code/foreign", volumeMounts=code)
    foreign["spec"]["initContainers"] = [
        {"name": "make", "image": image, "command": ["sh", "-c", FOREIGN], "volumeMounts": code}
    ]
    foreign["spec"]["volumes"] = [{"name": "code", "emptyDir": {}}]
    unmounted = pod("unmounted", image)
    unmounted["spec"]["volumes"] = [{"name": "code", "configMap": {"name": "nowhere"}}]
    unmounted["spec"]["containers"][0]["volumeMounts"] = code
    secret = {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "nowhere", "key": "key"}}}
    fill = "head -c 30000000 /dev/zero > /tmp/full; sleep 600"
    tainted = pod("tainted", image)
    tainted["spec"]["nodeSelector"] = {"nowhere": "true"}
    for document in (
        pod("absent", ABSENT),
        pod("never", ABSENT, imagePullPolicy="Never"),
        pod("misnamed", "Ray::latest"),
        foreign,
        pod("greedy", image, "tail", "/dev/zero", resources={"limits": {"memory": "20Mi"}}),
        pod("huge", image, resources={"requests": {"cpu": "1000"}}),
        tainted,
        pod("secretless", image, env=[secret]),
        unmounted,
        pod("crashing", image, "sh", "-c", "echo no such luck; exit 3"),
        pod("programless", image, "/no/such/program"),
        pod("full", image, "sh", "-c", fill, resources={"limits": {"ephemeral-storage": "5Mi"}}),
    ):
        kube.apply(placed({"apiVersion": "v1", "kind": "Pod", **document}, kube))


def explained(kube: Kube, name: str) -> RaysideError:
    problem = until(
        lambda: trouble.first_problem(kube, f"test={name}"), lambda error: error is not None, patience=120
    )
    assert problem is not None, kube.pods(f"test={name}")
    return problem


@pytest.mark.parametrize(
    ("name", "error", "message_part"),
    [
        ("absent", ImageMissing, f"container main of pod absent has no image {ABSENT}"),
        ("never", ImageMissing, "never"),
        ("misnamed", ImageMissing, "impossible image name, 'Ray::latest'"),
        ("foreign", WrongArchitecture, "exec format error"),
        ("greedy", PodFailed, "was killed: "),
        ("huge", PodFailed, "Insufficient cpu"),
        ("tainted", PodFailed, "no node takes pod tainted"),
        ("secretless", PodFailed, 'secret "nowhere" not found'),
        ("unmounted", PodFailed, 'configmap "nowhere" not found'),
        ("crashing", PodFailed, "exit code 3 (as the program chose): no such luck"),
        ("programless", PodFailed, "can't be started: "),
        ("full", PodFailed, "pod full was evicted from its node: "),
    ],
)
def test_a_pod_that_fails_is_explained(
    kube: Kube, pods: None, name: str, error: type[RaysideError], message_part: str
) -> None:
    problem = explained(kube, name)
    assert type(problem) is error
    assert message_part in problem.message


# --- submissions -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def kubectl(up: Rayside, kube: Kube) -> KubectlRay:
    return replace(target(up).access.kubectl_ray, kube=kube)


def own_cluster(name: str, image: str, **container: Any) -> dict[str, Any]:
    head = {
        "name": "ray-head",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "resources": {"requests": {"cpu": "50m", "memory": "256Mi"}},
        **container,
    }
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": {"name": name},
        "spec": {
            "submissionMode": "InteractiveMode",
            "rayClusterSpec": {
                "rayVersion": "2.60.0",
                "authOptions": {"mode": "token"},
                "headGroupSpec": {"rayStartParams": {}, "template": {"spec": {"containers": [head]}}},
            },
        },
    }


def submit(kubectl: KubectlRay, document: dict[str, Any], folder: Path, name: str = "test-1") -> float:
    """Submits where nothing listens, so it has to fail before that; returns the seconds that it took."""
    job = jobs.prepare(
        working_dir=str(ROOT / "example" / "working_dir"), py_modules=[], entrypoint="python sample_code.py"
    )
    began = time.monotonic()
    kubectl.submit(document, job, name, url="http://127.0.0.1:9", token_file=folder / "token")
    return time.monotonic() - began


def gone(kube: Kube, name: str) -> bool:
    return until(lambda: kube.ray("rayjobs", name), lambda document: document is None, 60) is None


def test_a_cluster_whose_image_is_missing(kubectl: KubectlRay, tmp_path: Path) -> None:
    began = time.monotonic()
    with pytest.raises(ImageMissing, match=ABSENT):
        submit(kubectl, own_cluster("absent", ABSENT), tmp_path)
    assert time.monotonic() - began < 60  # half of kubectl-ray's own patience
    assert gone(kubectl.kube, "absent")
    # The token came before the pods.
    assert len((tmp_path / "token").read_text()) > 20
    assert (tmp_path / "token").stat().st_mode & 0o777 == 0o600


def test_a_cluster_that_no_node_has_room_for(kubectl: KubectlRay, tmp_path: Path, image: str) -> None:
    huge = own_cluster("huge", image, resources={"requests": {"cpu": "1000"}})
    with pytest.raises(PodFailed, match="Insufficient cpu"):
        submit(kubectl, huge, tmp_path)
    assert gone(kubectl.kube, "huge")


def test_a_rayjob_that_no_operator_takes_up(kubectl: KubectlRay, tmp_path: Path, image: str) -> None:
    """kubectl-ray by itself would wait forever."""
    document = own_cluster("ignored", image)
    document["spec"]["managedBy"] = "kueue.x-k8s.io/multikueue"
    with pytest.raises(NotReady, match="gave RayJob ignored no cluster within 20 s"):
        submit(kubectl, document, tmp_path)
    assert gone(kubectl.kube, "ignored")


def test_a_suspended_rayjob_is_waited_for_and_its_queue_named(kubectl: KubectlRay, tmp_path: Path) -> None:
    """Its image is absent, so nothing runs once it is admitted, as Kueue would admit it."""
    kube = kubectl.kube
    document = own_cluster("queued", ABSENT)
    document["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "mornings"}
    document["spec"] |= {"suspend": True, "shutdownAfterJobFinishes": True}
    job = jobs.prepare(
        working_dir=str(ROOT / "example" / "working_dir"), py_modules=[], entrypoint="python sample_code.py"
    )
    reported: list[str] = []
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(
            kubectl.submit,
            document,
            job,
            "queued-1",
            url="http://127.0.0.1:9",
            token_file=tmp_path / "token",
            report=reported.append,
        )
        assert until(lambda: any("mornings" in text for text in reported), bool, PATIENCE), reported
        assert not waiting.done()
        rayjob = f"{RAY}/namespaces/{kube.namespace}/rayjobs/queued"
        kube.patch(rayjob, [{"op": "replace", "path": "/spec/suspend", "value": False}])
        with pytest.raises(ImageMissing, match=ABSENT):
            waiting.result(PATIENCE)
    assert gone(kube, "queued")


def test_a_rayjob_that_kuberay_refuses(kubectl: KubectlRay, tmp_path: Path, image: str) -> None:
    document = own_cluster("refused", image)
    document["spec"]["activeDeadlineSeconds"] = -1
    with pytest.raises(SubmissionFailed, match="activeDeadlineSeconds must be a positive integer"):
        submit(kubectl, document, tmp_path)
    assert gone(kubectl.kube, "refused")


def test_a_standing_cluster_that_is_not_there(kubectl: KubectlRay, tmp_path: Path) -> None:
    with pytest.raises(NotReady, match="RayCluster of this RayJob is gone"):
        submit(kubectl, for_standing_cluster("lost-1", instance("nowhere")), tmp_path, "lost-1")
    assert gone(kubectl.kube, "lost-1")


def test_a_rayjob_of_that_name_is_left_alone(kubectl: KubectlRay, tmp_path: Path) -> None:
    kube = kubectl.kube
    document = for_standing_cluster("taken", instance("nowhere"))
    kube.apply(placed(document, kube))
    with pytest.raises(SubmissionFailed, match="there is a RayJob taken already"):
        submit(kubectl, document, tmp_path)
    assert kube.ray("rayjobs", "taken") is not None


def test_a_namespace_that_is_being_deleted(cluster: Kube, kubectl: KubectlRay, tmp_path: Path) -> None:
    name = f"rayside-test-{secrets.token_hex(3)}"
    make_namespace(cluster, name)
    metadata = {"name": "held", "namespace": name}
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    cluster.apply({**config_map, "metadata": {**metadata, "finalizers": ["rayside.dev/test"]}})
    cluster.delete(f"/api/v1/namespaces/{name}")
    try:
        with pytest.raises(NamespaceTerminating, match=name):
            other = replace(kubectl, kube=replace(cluster, namespace=name))
            submit(other, for_standing_cluster("late-1", instance("nowhere")), tmp_path)
    finally:
        cluster.apply(config_map)


@pytest.fixture
def forward(kube: Kube, up: Rayside) -> Iterator[str]:
    """Provides the address of a forward to the dashboard of the cluster that the RayJob `whole` makes."""
    with forwarded(to_pod(kube, target(up).kubectl, own_head_selector("whole")), 8265) as port:
        yield f"http://127.0.0.1:{port}"


def test_a_job_on_its_own_cluster_runs_and_is_submitted_once(
    kubectl: KubectlRay, tmp_path: Path, image: str, forward: str
) -> None:
    (tmp_path / "code" / "words").mkdir(parents=True)
    (tmp_path / "code" / "words" / "__init__.py").write_text("HELLO = 'hello'\n")
    (tmp_path / "code" / "run.py").write_text(
        "import os, sys, ray, words\n"
        "@ray.remote\n"
        "def say(told):\n"
        "    return words.HELLO, os.environ['KEY'], os.environ['INSIDE'], told\n"
        "print(open(os.environ['PIP_CONFIG_FILE']).read())\n"
        "print(ray.get(say.remote(sys.argv[1:])))\n"
    )
    (tmp_path / "env.yaml").write_text("env_vars: {KEY: hunter2, INSIDE: told}\n")
    job = jobs.prepare(
        working_dir=str(tmp_path / "code"),
        py_modules=[str(tmp_path / "code" / "words")],
        entrypoint="""python run.py 'a b' "it's #1" """,
        runtime_env=tmp_path / "env.yaml",
    )
    PackageIndex(instance("rayside"), kubectl.kube, INDEX).apply(lambda _: None)
    document = rayjob_with_it(own_cluster("whole", image), kubectl.kube, instance("rayside"))
    url, token = forward, tmp_path / "token"
    reported: list[str] = []
    kubectl.submit(document, job, "whole-1", url=url, token_file=token, report=reported.append)
    dashboard = Dashboard(url, token.read_text())
    ended = until(lambda: dashboard.job("whole-1"), lambda job: job.ended, 180)
    assert ended.status == "SUCCEEDED", dashboard.output("whole-1")
    assert "('hello', 'hunter2', 'told', ['a b', \"it's #1\"])" in dashboard.output("whole-1")
    assert f"index-url = {INDEX}" in dashboard.output("whole-1")
    assert ended.metadata[WORKING_DIR] == str(tmp_path / "code")
    assert reported
    # KubeRay agrees.
    agreed = until(
        lambda: kubectl.kube.ray("rayjobs", "whole") or {},
        lambda rayjob: rayjob.get("status", {}).get("jobStatus") == "SUCCEEDED",
        180,
    )
    assert agreed["status"]["jobDeploymentStatus"] == "Complete"
    assert problem(agreed) is None
    # A try that was thought to have failed finds the job, and changes nothing.
    kubectl.submit(document, job, "whole-1", url=url, token_file=token)
    assert len(dashboard.jobs()) == 1
    submitted = kubectl.kube.ray("rayjobs", "whole")
    assert submitted is not None
    assert submitted["metadata"]["uid"] == agreed["metadata"]["uid"]
    # On that cluster, a standing one now: what a submission that was killed left is taken up again.
    second_job = for_standing_cluster("again-1", instance(agreed["status"]["rayClusterName"]))
    left = {**second_job, "spec": {**second_job["spec"], "jobId": "again-1"}}
    kubectl.kube.apply(placed(left, kubectl.kube))
    kubectl.submit(second_job, job, "again-1", url=url, token_file=token)
    ended = until(lambda: dashboard.job("again-1"), lambda job: job.ended, 60)
    assert ended.status == "SUCCEEDED", dashboard.output("again-1")
