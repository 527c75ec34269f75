"""Tests that `up` brings back what died: the engine, the head's pod, the forwards, `up` at each step."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import docker
import psutil
import pytest

from rayside.waiting import until
from tests.e2e.conftest import NAME, forwarder, kube, target, traces
from tests.integration.conftest import Rayside

# Each step of the cluster as its lines begin. The cluster's own is told of while kind works.
STEPS = (
    "kind cluster:",
    "Kubernetes API:",
    "context in your kubeconfig:",
    "images in the nodes:",
    "password of the workspace:",
    "manifests of KubeRay 1.6.2:",
    "KubeRay 1.6.2:",
    f"RayCluster {NAME}:",
    "Ray's authentication token:",
    "port forwards:",
    "example job:",
)


def assert_mended(rayside: Rayside) -> None:
    done = rayside.run("up", timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert rayside.is_ready()


def test_up_killed_at_each_step_goes_on(kind: Rayside) -> None:
    """`down` leaves nothing, even when it is run twice; then one cluster is made in twelve pieces."""
    for _ in range(2):
        done = kind.run("down", timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        assert traces(kind) == []
    for beginning in STEPS:
        command = kind.start("up")
        assert command.stdout
        lines = []
        for line in command.stdout:
            lines.append(line)
            if line.startswith(beginning):
                break
        assert any(line.startswith(beginning) for line in lines), "".join(lines)
        command.send_signal(signal.SIGKILL)
        command.wait()
        command.stdout.close()
    assert_mended(kind)
    assert [task["task"] for task in kind.json("breakpoints")] == ["estimate"]


def test_the_forwards_killed(up: Rayside) -> None:
    process = forwarder(up)
    process.kill()
    process.wait(10)
    assert up.json("status")["ready"] is False
    assert_mended(up)
    assert forwarder(up).pid != process.pid


def test_the_heads_pod_deleted(up: Rayside) -> None:
    head, workers = (
        f"ray.io/cluster={NAME},ray.io/node-type={node_type}" for node_type in ("head", "worker")
    )
    was = kube(up).pods(head)[0]["metadata"]
    joined = uids(up, workers)
    pods = f"/api/v1/namespaces/{up.settings.namespace}/pods"
    kube(up).delete(f"{pods}/{was['name']}")
    heads = until(lambda: uids(up, head), lambda current: bool(current) and was["uid"] not in current, 120)
    assert heads and was["uid"] not in heads
    assert_mended(up)
    # Those that knew the earlier head would have taken longer and longer to find this one.
    assert len(joined) == up.settings.ray_workers
    assert joined.isdisjoint(uids(up, workers))
    # The forwards follow the pod by themselves, and the example is back at its breakpoint.
    assert [task["task"] for task in up.json("breakpoints")] == ["estimate"]


def uids(rayside: Rayside, selector: str) -> set[str]:
    """Returns the uids of the pods with these labels: a pod of the same name may be another pod."""
    return {pod["metadata"]["uid"] for pod in kube(rayside).pods(selector)}


def dockerd() -> psutil.Process:
    return next(process for process in psutil.process_iter(["name"]) if process.name() == "dockerd")


@pytest.mark.skipif(Path("/run/systemd/system").is_dir(), reason="systemd's engine is not ours to kill")
def test_the_engine_killed_and_started_again(up: Rayside) -> None:
    engine = dockerd()
    engine.kill()
    engine.wait(30)
    done = up.run("up", timeout=120)
    assert done.returncode == 3, done.stdout + done.stderr
    assert f"doctor --name {up.settings.name} --fix --target kind" in done.stderr
    assert up.run("doctor", "--fix", timeout=300).returncode == 0
    assert_mended(up)


@pytest.mark.skipif(Path("/run/systemd/system").is_dir(), reason="systemd's engine is not ours to kill")
def test_a_codespace_stopped_and_started(up: Rayside) -> None:
    """What its `postStartCommand` runs is there before the engine, and alone makes everything ready."""
    node, images = node_and_images(up)
    for process in (dockerd(), forwarder(up)):
        process.kill()
        process.wait(30)
    began = int(time.time())
    hook = up.start("up", "--wait-for-engine", "120")
    assert hook.stdout
    assert hook.stdout.readline() == "Waiting up to 120 s for the Docker engine\n"
    assert up.run("doctor", "--fix", timeout=300).returncode == 0
    output = hook.stdout.read()
    assert hook.wait(600) == 0, output
    hook.stdout.close()
    assert output.startswith("The Docker engine answers\n")
    assert up.is_ready()
    # Nothing was made anew, neither the node nor an image, nor anything for a while.
    assert node_and_images(up) == (node, images)
    client = docker.from_env()
    try:
        creations = {
            "type": ["container", "image"],
            "event": ["create", "build", "pull", "import", "commit", "load"],
        }
        events = client.events(since=began, until=int(time.time()) + 1, filters=creations, decode=True)
        assert list(events) == []
    finally:
        client.close()


def node_and_images(rayside: Rayside) -> tuple[str, set[str]]:
    """Returns the ids of the node's container and of all our images."""
    client = docker.from_env()
    try:
        node = client.containers.get(target(rayside).cluster.node)
        images = {image.id for image in client.images.list() if any("rayside/" in tag for tag in image.tags)}
        return str(node.id), images
    finally:
        client.close()
