"""Tests `up --context` on a RayCluster of others, for one who may read pods and forward ports alone."""

from __future__ import annotations

import json
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from bootstrap.kube.api import CORE, RAY, Kube
from bootstrap.kube.rights import WORKSPACE_POD
from bootstrap.settings import RAY_VERSION, ROOT
from rayside.connection.heads import head_selector
from rayside.ray.state import Dashboard
from rayside.waiting import until
from tests.e2e.conftest import kube as kube_of
from tests.e2e.conftest import make_namespace, target, terminal, with_kubectl
from tests.e2e.test_kind_stack import allow, kubectl
from tests.e2e.test_kind_stack import user as client
from tests.integration.bootstrap.test_their_ray import both_stop, stop_where_asked
from tests.integration.conftest import Rayside, apart
from tests.integration.their_ray import PROGRAM
from tests.patience import PATIENCE

# Ray's image has debugpy: without its folder it is an image as others have.
WITHOUT_DEBUGPY = "rm -rf $(python -c 'import debugpy; print(debugpy.__path__[0])')"
RIGHTS = (
    ("", "pods", "list"),
    ("", "pods", "get"),
    ("", "pods/portforward", "get"),
    ("", "pods/portforward", "create"),
)


def ray_cluster(image: str, namespace: str) -> dict[str, Any]:
    """Returns a RayCluster as others write it: a head that runs no tasks, two workers, no token."""

    def group(container: str, cpus: str) -> dict[str, Any]:
        ready = {"httpGet": {"path": "/api/healthz", "port": 52365}, "periodSeconds": 1, "timeoutSeconds": 5}
        one = {
            "name": container,
            "image": image,
            "imagePullPolicy": "IfNotPresent",
            "readinessProbe": {**ready, "failureThreshold": 20},
            "resources": {"requests": {"cpu": "10m", "memory": "512Mi"}},
            # As root, or it could not remove what is in the image.
            "securityContext": {"runAsUser": 0},
            "lifecycle": {"postStart": {"exec": {"command": ["sh", "-c", WITHOUT_DEBUGPY]}}},
        }
        return {"rayStartParams": {"num-cpus": cpus}, "template": {"spec": {"containers": [one]}}}

    workers = {
        "groupName": "w",
        "replicas": 2,
        "minReplicas": 2,
        "maxReplicas": 2,
        **group("ray-worker", "1"),
    }
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": "theirs", "namespace": namespace},
        "spec": {
            "rayVersion": RAY_VERSION,
            "headGroupSpec": group("ray-head", "0"),
            "workerGroupSpecs": [workers],
        },
    }


@pytest.fixture(scope="module")
def theirs(up: Rayside) -> Iterator[Kube]:
    """Yields the API, in a namespace where a RayCluster `theirs` runs."""
    namespace = f"theirs-{secrets.token_hex(3)}"
    make_namespace(kube_of(up), namespace)
    kube = Kube(kube_of(up).kubeconfig, kube_of(up).context, namespace)
    kube.apply(ray_cluster(target(up).origin.images.ray, namespace))
    try:
        assert until(lambda: ready(kube), bool, 240), kube.pods("")
        yield kube
    finally:
        kube.delete(f"{RAY}/namespaces/{namespace}/rayclusters/theirs")
        kube.delete(f"{CORE}/namespaces/{namespace}")


def ready(kube: Kube) -> bool:
    statuses = [pod["status"].get("containerStatuses") or [{}] for pod in kube.pods("ray.io/cluster=theirs")]
    return len(statuses) == 3 and all(each[0].get("ready") for each in statuses)


def in_the_api(kube: Kube) -> dict[str, list[str]]:
    """Returns the names of all that is in the namespace, by kind."""
    kinds = ("configmaps", "pods", "secrets", "serviceaccounts", "services")
    path = f"{CORE}/namespaces/{kube.namespace}"
    return {kind: sorted(item["metadata"]["name"] for item in kube.items(f"{path}/{kind}")) for kind in kinds}


def package(user: Rayside, *words: str) -> subprocess.CompletedProcess[str]:
    """Runs the program `rayside` with the user's settings."""
    command = [sys.executable, "-m", "rayside.cli", *words]
    return subprocess.run(
        command, cwd=ROOT, env=user.environment, capture_output=True, text=True, timeout=300, check=False
    )


@pytest.mark.gate
@pytest.mark.timeout(900)
def test_one_who_may_only_forward_debugs_two_pods_and_leaves_nothing(
    up: Rayside, theirs: Kube, tmp_path: Path
) -> None:
    folder = Path(tempfile.mkdtemp(prefix="rs-", dir="/tmp"))
    folder.rmdir()
    user = Rayside(apart(folder, workspace=False))
    # It may do nothing, then find pods, then reach them.
    allow(up, theirs.namespace)
    few = client(
        up, tmp_path, kubectl(up, "create", "token", "few", "-n", theirs.namespace), theirs.namespace
    )
    user.environment_too.update(with_kubectl(up), KUBECONFIG=str(few.kubeconfig))
    bring = ["up", "--context", "few", "--namespace", theirs.namespace]
    done = user.run(*bring)
    assert (done.returncode, 'resources: ["pods"], verbs: ["list"]' in done.stderr) == (4, True), done.stderr
    connect = ["connect", "--context", "few", "--namespace", theirs.namespace]
    done = package(user, *connect)
    assert (done.returncode, 'resources: ["pods"], verbs: ["list"]' in done.stderr) == (4, True), done.stderr
    allow(up, theirs.namespace, *RIGHTS[:2])
    assert until(lambda: "pods/portforward" in user.run(*bring).stderr, bool, 60)
    assert not folder.exists()
    allow(up, theirs.namespace, *RIGHTS)
    done = user.run(*bring, "--ray-cluster", "others")
    assert "no RayCluster others runs" in done.stderr and "but theirs" in done.stderr, done.stderr
    before = in_the_api(theirs)
    try:
        assert until(lambda: user.run(*bring, timeout=300).returncode == 0, bool, 60), user.run(*bring).stderr
        assert "Nothing to change" in user.run("up").stdout
        stop_where_asked(user, tmp_path)
    finally:
        done = user.run("down")
    assert done.returncode == 0, done.stdout + done.stderr
    assert not folder.exists()
    assert in_the_api(theirs) == before
    # The package does the same, by the user's kubectl.
    try:
        done = package(user, *connect)
        assert done.returncode == 0, done.stdout + done.stderr
        document = both_stop(user, tmp_path)
        dashboard = Dashboard(user.json("status")["urls"]["dashboard"], "")
        pods = {row["worker_id"]: row["ip"] for row in dashboard.table("workers")}
        assert len({pods[stop["worker_id"]] for stop in document["stopped"]}) == 2
        actors = dashboard.table("actors", ("state", "DEAD"))
        assert [actor["name"].startswith("rayside-relay-") for actor in actors] == [True]
    finally:
        done = package(user, "disconnect")
    assert done.returncode == 0, done.stdout + done.stderr
    assert not folder.exists()
    assert in_the_api(theirs) == before
    head = theirs.pods(head_selector("theirs"))[0]["metadata"]["name"]
    listing = kubectl(
        up, "-n", theirs.namespace, "exec", head, "--", "ray", "list", "actors", "--filter", "state!=DEAD"
    )
    assert "rayside-relay" not in listing
    shutil.rmtree(folder, ignore_errors=True)


# It is written in the workspace's pod, and submitted from there.
IN_THE_POD = """\
mkdir -p /home/ray/mine && cd /home/ray/mine && cat > main.py && cd /home/ray/rayside \
&& ./invokew submit --debug --working-dir /home/ray/mine --entrypoint "python main.py" --json \
&& echo --- && ./invokew debug --timeout 200 --break /home/ray/mine/main.py:6 --evaluate n --json \
&& ./invokew logs >&2
"""
CONNECTS = "import socket; print([socket.socket().connect_ex(('{ip}', port)) for port in (8443, 5678, 9)])"


@pytest.mark.timeout(900)
def test_the_workspace_is_a_pod_beside_their_cluster_that_only_forwards_reach(
    up: Rayside, theirs: Kube, tmp_path: Path
) -> None:
    folder = Path(tempfile.mkdtemp(prefix="rs-", dir="/tmp"))
    folder.rmdir()
    user = Rayside(apart(folder, source="packages"))
    allow(up, theirs.namespace, *RIGHTS)
    token = kubectl(up, "create", "token", "few", "-n", theirs.namespace)
    few = client(up, tmp_path, token, theirs.namespace)
    user.environment_too.update(with_kubectl(up), KUBECONFIG=str(few.kubeconfig))
    bring = ["up", "--context", "few", "--namespace", theirs.namespace, "--workspace"]
    done = user.run(*bring)
    assert (done.returncode, "create, patch, delete pods" in done.stderr) == (4, True), done.stderr
    assert not folder.exists()
    allow(
        up,
        theirs.namespace,
        *((rule.group, rule.resource, verb) for rule in WORKSPACE_POD for verb in rule.verbs),
    )
    before = in_the_api(theirs)
    try:
        assert until(lambda: user.run(*bring, timeout=600).returncode == 0, bool, 60), user.run(*bring).stderr
        assert "Nothing to change" in user.run("up").stdout
        both_stop(user, tmp_path)
        urls = user.json("status")["urls"]
        assert Dashboard(urls["dashboard"], "").table("actors", ("state", "DEAD")) == []
        (pod,) = theirs.pods("rayside.dev/workspace")
        address, head = pod["status"]["podIP"], theirs.pods(head_selector("theirs"))[0]["metadata"]["name"]
        reached = ["exec", head, "--", "python", "-c", CONNECTS.format(ip=address)]
        refused, refused_too, nobody = json.loads(kubectl(up, "-n", theirs.namespace, *reached))
        assert refused == refused_too == nobody != 0
        assert requests.get(f"{urls['workspace']}/login", timeout=PATIENCE).status_code == 200
        # A job from there is debugged there, with the files of that pod.
        command = ["-n", theirs.namespace, "exec", "-i", pod["metadata"]["name"], "-c", "workspace", "--"]
        output = kubectl(up, *command, *terminal(), "bash", "-c", IN_THE_POD, feed=PROGRAM)
        submitted, debugged = map(json.loads, output.split("---\n"))
        assert submitted["cluster"] == "theirs"
        assert sorted(stop["evaluated"]["n"] for stop in debugged["stopped"]) == ["1", "2"]
    finally:
        done = user.run("down")
    assert done.returncode == 0, done.stdout + done.stderr
    assert not folder.exists()
    assert in_the_api(theirs) == before
    shutil.rmtree(folder, ignore_errors=True)
