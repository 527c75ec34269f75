"""Tests, on the real node, pitfalls besides pulls: a low disk, an evicted pod, a taken port."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator
from typing import Any

import docker
import pytest
import yaml
from docker.models.containers import Container

from bootstrap.delivery.loaded import listed_in
from bootstrap.kube.api import CORE, Kube, path_of
from bootstrap.sources.references import full_name
from rayside.system.shell import Shell
from rayside.waiting import until
from tests.e2e.conftest import target
from tests.e2e.test_kind_faults import assert_mended
from tests.e2e.test_rayjob import placed, pod
from tests.integration.conftest import Rayside
from tests.patience import PATIENCE

KUBELET = "/var/lib/kubelet/config.yaml"
# `diagnose` looks at Ray's pods alone: they have a label of its own.
RAYS = "ray.io/pitfalls"


@pytest.fixture
def client() -> Iterator[docker.DockerClient]:
    client = docker.from_env()
    yield client
    client.close()


@pytest.fixture
def node(up: Rayside, client: docker.DockerClient) -> Container:
    return client.containers.get(target(up).cluster.node)


@pytest.fixture
def kube(up: Rayside) -> Kube:
    return target(up).kube


@contextlib.contextmanager
def running(kube: Kube, *documents: dict[str, Any]) -> Iterator[None]:
    """Has these pods of Ray's in the cluster's namespace."""
    try:
        for document in documents:
            document["metadata"]["labels"][RAYS] = "yes"
            kube.apply(placed(document, kube))
        yield
    finally:
        for document in documents:
            kube.delete(path_of(placed(document, kube)), gracePeriodSeconds="0")
        names = {document["metadata"]["name"] for document in documents}
        assert until(lambda: names & present(kube), lambda left: not left, PATIENCE) == set()


def present(kube: Kube) -> set[str]:
    return {str(each["metadata"]["name"]) for each in kube.pods(RAYS)}


def found(up: Rayside, wanted: Callable[[dict[str, str]], bool]) -> dict[str, str]:
    """Returns the finding of `diagnose` that is wanted, once there is one."""

    def told() -> list[dict[str, str]]:
        document = up.json("diagnose", timeout=60)
        return [each for each in document["findings"] if wanted(each)]

    findings = until(told, bool, PATIENCE)
    assert findings, up.json("diagnose", timeout=60)
    return findings[0]


def run(node: Container, *command: str) -> str:
    code, output = node.exec_run(list(command))
    assert code == 0, output
    return str(output.decode())


# --- images stay -------------------------------------------------------------------------


def test_the_kubelet_collects_no_image_and_containerd_knows_ours_as_pinned(up: Rayside, kube: Kube) -> None:
    name = target(up).cluster.node
    document = kube.get(f"{CORE}/nodes/{name}/proxy/configz")
    assert document
    told = document["kubeletconfig"]
    # A disk is never fuller than that; and no image is too old, nor does a low disk have any removed.
    assert (told["imageGCHighThresholdPercent"], told["imageMaximumGCAge"]) == (100, "0s")
    assert set(told["evictionHard"].values()) == {"0%"}
    assert "evictionSoft" not in told
    images = target(up).origin.images
    listed = listed_in(Shell(), name)
    assert {full_name(each) for each in (images.ray, images.workspace, images.operator)} <= listed.pinned


def test_an_image_that_is_pinned_no_more_is_pinned_again(up: Rayside, node: Container) -> None:
    image = full_name(target(up).origin.images.workspace)
    run(node, "ctr", "--namespace", "k8s.io", "images", "label", image, "io.cri-containerd.pinned=")
    steps = {step["name"]: step["detail"] for step in up.json("status")["steps"]}
    assert "may remove rayside/workspace:" in steps["images"]
    done = up.run("up", "--no-example", timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert image in listed_in(Shell(), target(up).cluster.node).pinned


# --- what the node says ------------------------------------------------------------------


@pytest.fixture
def low_disk(up: Rayside, node: Container, kube: Kube) -> Iterator[None]:
    """Has the node say that its disk is low: its kubelet wants nearly all of it, and evicts late."""
    before = run(node, "cat", KUBELET)
    more = {
        "evictionSoft": {"nodefs.available": "99%"},
        "evictionSoftGracePeriod": {"nodefs.available": "1h"},
        "evictionPressureTransitionPeriod": "1s",
    }
    configure(node, yaml.safe_dump({**yaml.safe_load(before), **more}))
    try:
        assert until(lambda: has_low_disk(kube), bool, PATIENCE)
        yield
    finally:
        configure(node, before)
        assert until(lambda: has_low_disk(kube), lambda low: not low, PATIENCE) is False
        assert_mended(up)


def configure(node: Container, text: str) -> None:
    run(node, "sh", "-c", f'printf %s "$1" > {KUBELET}; systemctl restart kubelet', "sh", text)


def has_low_disk(kube: Kube) -> bool:
    (node,) = kube.items(f"{CORE}/nodes")
    conditions = {each["type"]: each["status"] for each in node["status"]["conditions"]}
    tainted = any(each["key"].endswith("disk-pressure") for each in node["spec"].get("taints", []))
    return tainted or conditions["DiskPressure"] == "True"


def test_a_node_whose_disk_is_low_takes_no_pod(up: Rayside, kube: Kube, low_disk: None) -> None:
    with running(kube, pod("waits-for-disk", target(up).origin.images.ray)):
        told = found(up, lambda each: each["what"] == "no node takes pod waits-for-disk")
    assert "the disk of a node is low, and it takes no more pods (DiskPressure)" in told["why"]
    assert "has the taint {node.kubernetes.io/disk-pressure: }" in told["why"]
    assert "--root-dir" in told["hint"]


def test_an_evicted_pod_is_told(up: Rayside, kube: Kube) -> None:
    fill = "head -c 30000000 /dev/zero > /tmp/full; sleep 600"
    limits = {"limits": {"ephemeral-storage": "5Mi"}}
    image = target(up).origin.images.ray
    # KubeRay names a cluster's pods so, and removes those that were evicted.
    name = f"{up.settings.name}-workers-worker-gone1"
    with running(kube, pod(name, image, "sh", "-c", fill, resources=limits)):
        there = found(up, lambda each: each["what"] == f"pod {name} was evicted from its node")
    # They would be told to other tests for an hour.
    events = f"{CORE}/namespaces/{kube.namespace}/events"
    for event in kube.items(events, fields=f"involvedObject.name={name}"):
        kube.delete(f"{events}/{event['metadata']['name']}")
    assert "exceeds the total limit of containers 5Mi" in there["why"]
    assert there["hint"].startswith("raise resources.limits.ephemeral-storage")


# --- a port of this machine --------------------------------------------------------------


def test_a_node_whose_port_was_taken_while_it_stood_still_is_told_by_whom(
    up: Rayside, node: Container
) -> None:
    (published,) = node.attrs["NetworkSettings"]["Ports"]["6443/tcp"]
    node.stop(timeout=5)
    try:
        with socket.create_server(("127.0.0.1", int(published["HostPort"]))):
            refused = up.run("up", timeout=120)
    finally:
        assert_mended(up)
    assert f"error[port-taken]: port {published['HostPort']} of this machine" in refused.stderr
    assert "is taken by python" in refused.stderr
