"""Tests the kind cluster: how it is known as ours, how it is configured, what kind's failures mean."""

from __future__ import annotations

import os
import re
import socket
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bootstrap import docker_engine
from bootstrap.errors import ImageMissing, LowDisk
from bootstrap.instance import configured
from bootstrap.settings import KUBERNETES_VERSION, Settings
from bootstrap.sources.references import full_name
from bootstrap.steps import kind_cluster
from bootstrap.steps.kind_cluster import KindCluster, made_as
from rayside.errors import CommandFailed, NotReady, PortTaken
from rayside.system.shell import Shell

FOLDER = Path("/tmp/rayside-1000/rayside")
INSTANCE = configured(Settings(state_folder=FOLDER.parent), "kind")
STEP = KindCluster(Shell(), INSTANCE, Path("/kind"), "rayside/node:1", "packages")


def inspected(*mounts: tuple[str, str]) -> dict[str, object]:
    return {"Mounts": [{"Source": source, "Destination": target} for source, target in mounts]}


def test_the_mark_in_the_configuration_is_read_back_from_the_container() -> None:
    mount = STEP.configuration()["nodes"][0]["extraMounts"][0]
    assert mount["readOnly"] is True
    attributes = inspected(("/lib/modules", "/lib/modules"), (mount["hostPath"], mount["containerPath"]))
    assert made_as(attributes, FOLDER / "node") == {"kubernetes": KUBERNETES_VERSION, "source": "packages"}


def test_what_another_made_is_not_ours() -> None:
    assert made_as(inspected(("/lib/modules", "/lib/modules"))) is None
    mark = "/etc/rayside/kubernetes=1.34.4_source=packages"
    assert made_as(inspected(("/tmp/rayside-1-kind/node", mark)), FOLDER / "node") is None
    assert made_as(inspected(("/tmp/rayside-1-kind/node", mark))) is not None


def test_the_api_is_on_loopback_alone() -> None:
    assert STEP.configuration()["networking"]["apiServerAddress"] == "127.0.0.1"


@dataclass
class Network:
    """A network of the engine, with no container in it."""

    name: str
    removed: bool = False
    attrs: dict[str, Any] = field(default_factory=lambda: {"Containers": {}})

    def reload(self) -> None:
        pass

    def remove(self) -> None:
        self.removed = True


@pytest.mark.parametrize("name", ["rayside", "bridge", "kind"])
def test_its_network_has_a_name_that_no_network_of_the_users_has(name: str) -> None:
    step = replace(STEP, instance=configured(Settings(name=name), "kind"))
    assert step.environment()["KIND_EXPERIMENTAL_DOCKER_NETWORK"] == f"kind-{name}"


@pytest.mark.parametrize("ours", [False, True])
def test_down_removes_its_network_and_never_the_users(ours: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("rayside", "kind-rayside", "kind-rayside-2", "my-kind-rayside", "kind", "bridge")
    networks = [Network(name) for name in names]
    mark = STEP.configuration()["nodes"][0]["extraMounts"][0]
    node = SimpleNamespace(
        name="rayside-control-plane",
        attrs=inspected((mark["hostPath"], mark["containerPath"])),
        remove=lambda v, force: None,
    )

    def listed(names: list[str]) -> list[Network]:
        return [network for network in networks if any(re.search(name, network.name) for name in names)]

    containers = SimpleNamespace(list=lambda **_: [node] if ours else [])
    client = SimpleNamespace(containers=containers, networks=SimpleNamespace(list=listed))
    monkeypatch.setattr(docker_engine, "connected", lambda *_: nullcontext(client))
    STEP.undo(print)
    assert {network.name for network in networks if network.removed} == {"kind-rayside"}


@pytest.mark.parametrize(
    ("output", "error"),
    [
        ("ERROR: failed to create cluster: write: no space left on device", LowDisk),
        ('ERROR: failed to create cluster: failed to pull image "rayside/node:1"', ImageMissing),
        ("[kubelet-check] The kubelet is not healthy after 4m0s", NotReady),
    ],
)
def test_what_kind_says_becomes_an_error_with_one_action(output: str, error: type[Exception]) -> None:
    failed = CommandFailed(f"kind create cluster\nended with exit code 1\n{output}", hint="")
    explained = kind_cluster.explained(failed)
    assert type(explained) is error
    assert explained.hint


@pytest.mark.parametrize(
    "words",
    [
        "Error starting userland proxy: listen tcp4 127.0.0.1:{}: bind: address already in use",
        "Bind for 127.0.0.1:{} failed: port is already allocated",
        "failed to bind host port for 127.0.0.1:{}:172.18.0.2:6443/tcp: address already in use",
        "failed to bind host port 127.0.0.1:{}/tcp: address already in use",
    ],
)
def test_a_nodes_port_that_is_taken_is_told_with_who_has_it(words: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        error = kind_cluster.explained(CommandFailed(f"docker: {words.format(port)}", hint=""))
    assert isinstance(error, PortTaken)
    assert f"port {port} of this machine" in error.message
    assert f"(pid {os.getpid()})" in error.message
    assert kind_cluster.port_taken("driver failed") is None


def test_what_docker_answered_kind_is_in_the_error() -> None:
    output = (
        'ERROR: failed to create cluster: command "docker run" failed with error: exit status 125\n'
        "Command Output: 1c4ef8d00461\n"
        "docker: Error response from daemon: unable to apply caps: operation not permitted."
    )
    assert "unable to apply caps" in kind_cluster.explained(CommandFailed(output, hint="")).message


@pytest.mark.parametrize(
    ("reference", "full"),
    [
        ("ray:1", "docker.io/library/ray:1"),
        ("rayside/ray:1", "docker.io/rayside/ray:1"),
        ("quay.io/kuberay/operator:v1", "quay.io/kuberay/operator:v1"),
        ("localhost/ray:1", "localhost/ray:1"),
        ("127.0.0.1:5000/ray:1", "127.0.0.1:5000/ray:1"),
    ],
)
def test_names_are_as_containerd_has_them(reference: str, full: str) -> None:
    assert full_name(reference) == full
