"""What dies comes back by `up`: the engine, the head's pod, the forwards, `up` at each of its steps."""

from __future__ import annotations

import signal
from pathlib import Path

import psutil
import pytest

from bootstrap.step import until
from tests.e2e.conftest import forwarder, kube, traces
from tests.integration.conftest import Rayside

# Each step of the cluster as its lines begin. The cluster's own is told of while kind works.
STEPS = (
    "kind cluster:",
    "Kubernetes API:",
    "context in your kubeconfig:",
    "images in the node:",
    "password of the workspace:",
    "manifests of KubeRay 1.6.2:",
    "KubeRay 1.6.2:",
    "RayCluster rayside:",
    "Ray's authentication token:",
    "port forwards:",
    "example job:",
)


def assert_mended(one: Rayside) -> None:
    done = one.run("up", timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert one.json("status")["ready"] is True


def test_up_killed_at_each_step_goes_on(kind: Rayside) -> None:
    """`down` leaves nothing, also when it is run twice; then one cluster is made in twelve pieces."""
    for _ in range(2):
        done = kind.run("down", timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        assert traces(kind) == []
    for beginning in STEPS:
        command = kind.start("up")
        assert command.stdout
        seen = []
        for line in command.stdout:
            seen.append(line)
            if line.startswith(beginning):
                break
        assert any(line.startswith(beginning) for line in seen), "".join(seen)
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
    head = "ray.io/cluster=rayside,ray.io/node-type=head"
    was = kube(up).pods(head)[0]["metadata"]
    pods = f"/api/v1/namespaces/{up.settings.namespace}/pods"
    kube(up).delete(f"{pods}/{was['name']}")
    gone = until(
        lambda: kube(up).pods(head),
        lambda found: bool(found) and was["uid"] not in {pod["metadata"]["uid"] for pod in found},
        120,
    )
    assert gone
    assert_mended(up)
    # The forwards follow the pod by themselves, and the example is back at its breakpoint.
    assert [task["task"] for task in up.json("breakpoints")] == ["estimate"]


def dockerd() -> psutil.Process:
    return next(process for process in psutil.process_iter(["name"]) if process.name() == "dockerd")


@pytest.mark.skipif(Path("/run/systemd/system").is_dir(), reason="systemd's engine is not ours to kill")
def test_the_engine_killed_and_started_again(up: Rayside) -> None:
    engine = dockerd()
    engine.kill()
    engine.wait(30)
    done = up.run("up", timeout=120)
    assert done.returncode == 3, done.stdout + done.stderr
    assert "doctor --fix --target kind" in done.stderr
    assert up.run("doctor", "--fix", timeout=300).returncode == 0
    assert_mended(up)
