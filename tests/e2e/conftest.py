"""One real kind cluster for all tests that need one, of their own name, beside whatever else is up."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import docker
import psutil
import pytest

from bootstrap import processes
from bootstrap.kube.api import Kube
from bootstrap.settings import ROOT
from bootstrap.step import until
from bootstrap.steps import marks
from bootstrap.targets.kind import Kind
from tests import npm
from tests.integration.conftest import Rayside, apart
from tests.targets import kind_target

NAME = "rayside-test"


@pytest.fixture(scope="session")
def kind() -> Iterator[Rayside]:
    """Nothing is up yet; whatever the tests bring up is gone at the end, without a trace."""
    folder = Path(tempfile.mkdtemp(prefix="rs-", dir="/tmp"))
    one = Rayside(apart(folder / "state", target="kind", source="packages", name=NAME))
    one.environment_too["KUBECONFIG"] = str(folder / "users-kubeconfig")
    # What is cold is built first, and behind what the other lanes do meanwhile.
    prepared = subprocess.run(
        ["nice", "-n", "10", ROOT / "invokew", "prepare"],
        env=one.environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=3600,
        check=False,
    )
    assert prepared.returncode == 0, prepared.stdout + prepared.stderr
    yield one
    done = one.run("down", timeout=300)
    left = traces(one)
    shutil.rmtree(folder, ignore_errors=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert left == []


@pytest.fixture(scope="session")
def node() -> Path:
    """The folder of `node` and `npm`."""
    return npm.programs()


@pytest.fixture(scope="session")
def up(kind: Rayside) -> Rayside:
    """The cluster is up, the example is paused in it."""
    done = kind.run("up", timeout=3600)
    assert done.returncode == 0, done.stdout + done.stderr
    return kind


def target(one: Rayside) -> Kind:
    """The plan's view of it."""
    return kind_target(one.settings)


def kube(one: Rayside) -> Kube:
    return target(one).kube


def make_namespace(cluster: Kube, name: str) -> None:
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    # Without its account, which Kubernetes makes a moment later, no pod can be made in it.
    assert until(lambda: cluster.get(f"/api/v1/namespaces/{name}/serviceaccounts/default"), bool, 30)


def traces(one: Rayside) -> list[str]:
    """What a cluster can leave: containers, networks, volumes, processes, ports, files, a context."""
    found: list[str] = []
    client = docker.from_env()
    try:
        name = one.settings.name
        named = {"label": f"io.x-k8s.kind.cluster={name}"}
        found += [f"container {one.name}" for one in client.containers.list(all=True, filters=named)]
        found += [f"network {one.name}" for one in client.networks.list(names=[f"^{name}$"])]
        found += [f"volume {one.name}" for one in client.volumes.list(filters={"dangling": True})]
    finally:
        client.close()
    folder = target(one).instance.folder
    for mark in (marks.FORWARDS, marks.KIND):
        found += [f"process {process.pid}" for process in processes.marked(mark, str(folder))]
    for port in (one.settings.dashboard_port, one.settings.workspace_port, one.settings.relay_port):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                found.append(f"port {port}")
    if folder.exists():
        found.append(f"folder {folder}")
    users = Path(one.environment_too["KUBECONFIG"])
    if users.exists() and name in users.read_text():
        found.append(f"context in {users}")
    return found


def forwarder(one: Rayside) -> psutil.Process:
    """The process of the port forwards."""
    return target(one).forwards.leftovers()[0]
