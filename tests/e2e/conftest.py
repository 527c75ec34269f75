"""Provides one real kind cluster for all tests that need one, under a name of its own."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import docker
import psutil
import pytest
from docker.models.containers import Container
from docker.models.volumes import Volume

from bootstrap.kube.api import Kube
from bootstrap.settings import ROOT, Settings
from bootstrap.steps.kind_cluster import LABEL, made_as
from bootstrap.targets.kind import Kind
from rayside.system import marks, processes
from rayside.system.lock import alone
from rayside.waiting import until
from tests import npm
from tests.integration.conftest import Rayside, apart
from tests.targets import kind_target

NAME = "rayside-test"
FOLDER = "/tmp/rs-"
# The volumes that no container had before the tests.
STRANGERS: set[str] = set()


@pytest.fixture(scope="session")
def kind() -> Iterator[Rayside]:
    """Provides settings for a cluster that is not up yet; removes at the end whatever the tests bring up."""
    with alone(Settings().cache_folder / "tests-with-kind.lock", another_run):
        remove_what_a_killed_run_left()
        yield from _kind()


def another_run() -> None:
    pytest.fail("another run of these tests has the kind cluster; wait for its end", pytrace=False)


def remove_what_a_killed_run_left() -> None:
    """Removes every kind cluster of ours whose files are in a folder of tests, and our own's network."""
    names = {NAME}
    client = docker.from_env()
    try:
        for container in client.containers.list(all=True, filters={"label": LABEL}):
            sources = [mount["Source"] for mount in container.attrs["Mounts"]]
            if made_as(container.attrs) is not None and any(source.startswith(FOLDER) for source in sources):
                names.add(container.labels[LABEL])
                container.remove(v=True, force=True)
        for network in client.networks.list(names=[f"^kind-{name}$" for name in names]):
            network.reload()
            if not network.attrs["Containers"]:
                network.remove()
        STRANGERS.update(volume.name for volume in volumes(client))
    finally:
        client.close()


def volumes(client: docker.DockerClient) -> list[Volume]:
    """Returns the volumes that no container has."""
    return list(client.volumes.list(filters={"dangling": True}))


def _kind() -> Iterator[Rayside]:
    folder = Path(tempfile.mkdtemp(prefix=Path(FOLDER).name, dir="/tmp"))
    rayside = Rayside(apart(folder / "state", target="kind", source="packages", name=NAME))
    rayside.environment_too["KUBECONFIG"] = str(folder / "users-kubeconfig")
    # `./invokew test` has built what is cold before; a single test may be run without it.
    prepared = subprocess.run(
        [ROOT / "invokew", "prepare"],
        env=rayside.environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=3600,
        check=False,
    )
    assert prepared.returncode == 0, prepared.stdout + prepared.stderr
    yield rayside
    done = rayside.run("down", timeout=300)
    left = traces(rayside)
    shutil.rmtree(folder, ignore_errors=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert left == []


@pytest.fixture(scope="session")
def node() -> Path:
    """Returns the folder of `node` and `npm`."""
    return npm.programs()


@pytest.fixture(scope="session")
def up(kind: Rayside) -> Rayside:
    """Provides a cluster that is up, with the example paused in it."""
    done = kind.run("up", timeout=3600)
    assert done.returncode == 0, done.stdout + done.stderr
    return kind


def target(rayside: Rayside) -> Kind:
    """Returns the plan's view of the cluster."""
    return kind_target(rayside.settings)


def with_kubectl(rayside: Rayside) -> dict[str, str]:
    """Returns the PATH of somebody who has kubectl, as whoever has a context does."""
    return {"PATH": f"{target(rayside).kubectl.parent}{os.pathsep}{os.environ['PATH']}"}


def terminal(**more: str) -> list[str]:
    """Returns the beginning of a command that has the environment of a terminal in a workspace's pod."""
    variables = {
        "HOME": "/home/ray",
        "INVOKE_RAYSIDE_STATE_FOLDER": "/home/ray/rayside/.state",
        "PATH": "/opt/ray/bin:/usr/bin:/bin",
        "RAYSIDE_PROGRAMS": "/opt/ray/bin",
        "RAY_AUTH_TOKEN_PATH": "/run/ray/auth_token",
        **more,
    }
    return ["env", *(f"{name}={value}" for name, value in variables.items())]


def kube(rayside: Rayside) -> Kube:
    return target(rayside).kube


def make_namespace(cluster: Kube, name: str) -> None:
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    # Without its account, which Kubernetes makes a moment later, no pod can be made in it.
    assert until(lambda: cluster.get(f"/api/v1/namespaces/{name}/serviceaccounts/default"), bool, 60)


@contextmanager
def node_of(rayside: Rayside) -> Iterator[Container]:
    """Provides the container of the cluster's node."""
    client = docker.from_env()
    try:
        yield client.containers.get(target(rayside).cluster.node)
    finally:
        client.close()


def gateway_of(rayside: Rayside) -> str:
    """Returns the address at which the node, and its pods, reach this machine."""
    client = docker.from_env()
    try:
        (node,) = client.containers.list(filters={"name": target(rayside).cluster.node})
        networks = node.attrs["NetworkSettings"]["Networks"].values()
        return next(str(network["Gateway"]) for network in networks if network["Gateway"])
    finally:
        client.close()


def traces(rayside: Rayside) -> list[str]:
    """Returns what a cluster can leave: containers, networks, volumes, processes, ports, files, a context."""
    left: list[str] = []
    client = docker.from_env()
    try:
        name = rayside.settings.name
        named = {"label": f"{LABEL}={name}"}
        left += [f"container {rayside.name}" for rayside in client.containers.list(all=True, filters=named)]
        left += [f"network {rayside.name}" for rayside in client.networks.list(names=[f"^(kind-)?{name}$"])]
        left += [f"volume {volume.name}" for volume in volumes(client) if volume.name not in STRANGERS]
    finally:
        client.close()
    folder = target(rayside).instance.folder
    for mark in (marks.FORWARDS, marks.KIND):
        left += [f"process {process.pid}" for process in processes.marked(mark, str(folder))]
    for port in (
        rayside.settings.dashboard_port,
        rayside.settings.workspace_port,
        rayside.settings.relay_port,
    ):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                left.append(f"port {port}")
    if folder.exists():
        left.append(f"folder {folder}")
    users = Path(rayside.environment_too["KUBECONFIG"])
    if users.exists() and name in users.read_text():
        left.append(f"context in {users}")
    return left


def forwarder(rayside: Rayside) -> psutil.Process:
    """Returns the process that keeps the ports, and starts kubectl behind them."""
    return psutil.Process(target(rayside).forwards.process.pid)
