"""Kind cluster: one container, made by kind, with a mount that marks it as ours."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from bootstrap import docker_engine
from bootstrap.errors import EngineNotPermitted, EngineNotRunning, ImageMissing, LowDisk, NotOurs
from bootstrap.instance import Instance
from bootstrap.settings import KUBERNETES_VERSION, ROOT
from bootstrap.steps.differences import difference
from rayside import yaml_file
from rayside.errors import CommandFailed, NotReady, PortTaken, RaysideError
from rayside.plain import line
from rayside.ports import port_holder
from rayside.private_file import write_private
from rayside.steps.step import Report, Status, drifted, missing, pending, ready
from rayside.system import marks, processes
from rayside.system.shell import Shell

if TYPE_CHECKING:
    from docker import DockerClient
    from docker.models.containers import Container

CONFIGURATION = ROOT / "k8s" / "kind.yaml"
# https://github.com/kubernetes-sigs/kind/blob/v0.33.0/pkg/cluster/internal/providers/docker/constants.go
LABEL = "io.x-k8s.kind.cluster"
# Label of a container's role: the load balancer before several control planes is no node.
_ROLE, _NODES = "io.x-k8s.kind.role", ("control-plane", "worker")
# Folder of a mount in the node. The mount exists from the container's start, so that even a killed command
# leaves a recognizable cluster; its name has the cluster's spec.
_MOUNTS = "/etc/rayside"
# Lines of kind's output with the reason of a failure: from kind, Docker and kubeadm.
_TELLING = re.compile(r"ERROR|error|Command Output:|docker:|\[kubelet-check\]|\s*- ")
# The engine's messages for a port of this machine that can't be published; they depend on its version, and
# on whether another container has the port.
_PORT = re.compile(
    r"(?:listen tcp4?|Bind for|bind host port(?: for)?) [\d.]+:(\d+)\b.*"
    r"(?:address already in use|port is already allocated)"
)
# File in the node, written when the cluster is complete.
_COMPLETE = "/kind/rayside-complete"
# With systemd's usual 100, a pod that used all CPUs stopped the kubelet, and so every port forward, for 15 s
# and more; with this, for 1 s (measured on two CPUs, Linux 6.18, cgroup v1).
_KUBELET_WEIGHT = 800


@dataclass(frozen=True)
class KindCluster:
    """The cluster; `kind` is the program, `image` the node's image, and `source` the origin of both."""

    shell: Shell
    instance: Instance
    kind: Path
    image: str
    source: str
    needs: tuple[str, ...] = ("kind", "node-image", "state-folder")
    name: str = "cluster"
    title: str = "kind cluster"
    # Timeout in seconds for a stopped node to restart.
    patience: float = 120.0

    @property
    def node(self) -> str:
        """Returns the container's name, as kind gives it."""
        return f"{self.instance.name}-control-plane"

    def address(self) -> str:
        """Returns the API's address on this machine, as Docker publishes the node's port; empty if none."""
        with docker_engine.connected(10) as client:
            for container in self._containers(client):
                ports = container.attrs["NetworkSettings"]["Ports"].get("6443/tcp") or []
                return "".join(f"https://127.0.0.1:{port['HostPort']}" for port in ports[:1])
        return ""

    def check(self) -> Status:
        with docker_engine.connected(10) as client:
            containers = self._containers(client)
            if not containers:
                return missing("there is none")
            container = containers[0]
            made_from = self._made_as(container.attrs)
            if made_from is None:
                raise NotOurs(
                    f"there is a kind cluster {self.instance.name} that Rayside did not make",
                    hint="./invokew up --name another-name makes one beside it",
                )
            if self._being_made():
                return pending("kind is making it")
            if container.status != "running":
                return missing(f"its node {self.node} is {container.status}")
            if container.exec_run(["test", "-e", _COMPLETE]).exit_code != 0:
                return missing("it was not made to its end")
            spec = self.spec
            if made_from != spec:
                return drifted(difference(made_from, spec))
        return ready(f"{self.node}, Kubernetes {KUBERNETES_VERSION}, images from {self.source}")

    def apply(self, report: Report) -> None:
        import docker.errors

        self._end_kind()
        with docker_engine.connected(60) as client:
            for container in self._containers(client):
                if container.status != "running":
                    report(f"starting {self.node}")
                    try:
                        container.start()
                    except docker.errors.APIError as error:
                        raise port_taken(str(error)) or error from None
                if container.exec_run(["test", "-e", _COMPLETE]).exit_code == 0:
                    return
                report("removing what an interrupted command left")
                container.remove(v=True, force=True)
        self._create(report)

    def undo(self, report: Report) -> None:
        self._end_kind()
        # Fails without an engine, which may have the cluster: then the cluster's files stay.
        self.check_ours()
        with docker_engine.connected(60) as client:
            for container in self._containers(client):
                report(f"removing {container.name}")
                container.remove(v=True, force=True)
            for network in client.networks.list(names=[f"^{self._network}$"]):
                network.reload()
                if not network.attrs["Containers"]:
                    network.remove()

    def check_ours(self) -> None:
        """Checks that the cluster is ours. Raises NotOurs if the cluster of that name is foreign."""
        with docker_engine.connected(10) as client:
            for container in self._containers(client):
                if self._made_as(container.attrs) is None:
                    raise NotOurs(
                        f"the kind cluster {self.instance.name} was not made by Rayside",
                        hint=f"kind delete cluster --name {self.instance.name} removes it",
                    )

    def configuration(self) -> dict[str, Any]:
        """Returns kind's configuration, with the marking mount."""
        document = dict(yaml_file.read(CONFIGURATION))
        mark = {"hostPath": str(self._marks), "containerPath": self._mount(self.spec), "readOnly": True}
        document["nodes"] = [{**node, "extraMounts": [mark]} for node in document["nodes"]]
        return document

    def _create(self, report: Report) -> None:
        import yaml

        self._marks.mkdir(mode=0o700, exist_ok=True)
        file = self.instance.folder / "kind.yaml"
        write_private(file, yaml.safe_dump(self.configuration()))
        self.instance.kubeconfig.unlink(missing_ok=True)
        command: list[str | Path] = [
            self.kind,
            "create",
            "cluster",
            "--name",
            self.instance.name,
            "--image",
            self.image,
        ]
        try:
            self.shell.run(
                [*command, "--config", file, "--kubeconfig", self.instance.kubeconfig],
                env=self.environment(),
                on_line=lambda line: report(line.strip(" •✓")) if line.startswith((" •", " ✓")) else None,
            )
        except CommandFailed as error:
            raise explained(error) from None
        self.instance.kubeconfig.chmod(0o600)
        with docker_engine.connected(60) as client:
            node = client.containers.get(self.node)
            weight = ["systemctl", "set-property", "kubelet.service", f"CPUWeight={_KUBELET_WEIGHT}"]
            refused, output = node.exec_run(weight)
            if refused:
                said = line(output.decode(errors="replace"), 200)
                report(f"forwards may stand still while a pod takes all processors: systemd says {said}")
            node.exec_run(["touch", _COMPLETE])

    def environment(self) -> dict[str, str]:
        """Returns kind's environment, with the cluster's own network: kind's usual one would stay."""
        return {
            **os.environ,
            "KIND_EXPERIMENTAL_DOCKER_NETWORK": self._network,
            "KIND_EXPERIMENTAL_PROVIDER": "docker",
            marks.KIND: self.instance.mark,
        }

    @property
    def _network(self) -> str:
        # A user's network may have the cluster's name.
        return self.instance.context

    @property
    def _marks(self) -> Path:
        return self.instance.folder / "node"

    @property
    def spec(self) -> dict[str, str]:
        """Returns its spec; a cluster with another spec has drifted."""
        return {"kubernetes": KUBERNETES_VERSION, "source": self.source}

    @staticmethod
    def _mount(spec: Mapping[str, str]) -> str:
        return f"{_MOUNTS}/{'_'.join(f'{key}={value}' for key, value in spec.items())}"

    def _made_as(self, attributes: Mapping[str, Any]) -> dict[str, str] | None:
        return made_as(attributes, self._marks)

    def _containers(self, client: DockerClient) -> list[Container]:
        return containers(client, self.instance.name)

    def _being_made(self) -> bool:
        return bool(self._kind_processes())

    def _kind_processes(self) -> list[psutil.Process]:
        return processes.marked(marks.KIND, self.instance.mark)

    def _end_kind(self) -> None:
        processes.end(self._kind_processes, patience=2)


def exists(name: str) -> bool:
    """Returns whether that kind cluster has a container, in any state; False without an engine."""
    try:
        with docker_engine.connected(10) as client:
            return bool(containers(client, name))
    except (EngineNotRunning, EngineNotPermitted):
        return False


def source_in_use(name: str) -> str | None:
    """Returns our cluster's source; None without a cluster. Raises EngineNotRunning."""
    with docker_engine.connected(10) as client:
        for container in containers(client, name):
            if spec := made_as(container.attrs):
                return spec.get("source")
    return None


def containers(client: DockerClient, name: str) -> list[Container]:
    """Returns the nodes of that kind cluster, stopped ones too."""
    return list(client.containers.list(all=True, filters={"label": f"{LABEL}={name}"}))


def nodes_behind(address: str) -> tuple[str, tuple[str, ...]] | None:
    """Returns the kind cluster whose API this machine's engine publishes at `address`, and its nodes.

    Both are names of containers of that engine, also of a foreign cluster. Returns None if there is none, or
    without an engine. `address` as in a kubeconfig: https://127.0.0.1:40123.
    """
    with contextlib.suppress(EngineNotRunning, EngineNotPermitted), docker_engine.connected(10) as client:
        for container in client.containers.list(filters={"label": LABEL}):
            name = container.labels[LABEL]
            if address in _published(container):
                nodes = [each for each in containers(client, name) if each.labels.get(_ROLE) in _NODES]
                return name, tuple(sorted(str(node.name) for node in nodes))
    return None


def _published(container: Container) -> set[str]:
    """Returns the API's URLs that the engine publishes for a node, or for a load balancer before several."""
    ports = container.attrs["NetworkSettings"]["Ports"].get("6443/tcp") or []
    hosts = {port["HostIp"].replace("0.0.0.0", "127.0.0.1") for port in ports}
    return {f"https://{host}:{port['HostPort']}" for host in hosts for port in ports}


def made_as(attributes: Mapping[str, Any], marks: Path | None = None) -> dict[str, str] | None:
    """Returns the spec in a container's mounts (`docker inspect`); None if not ours, or of another folder."""
    for mount in attributes["Mounts"]:
        path = Path(mount["Destination"])
        if str(path.parent) == _MOUNTS and marks in (None, Path(mount["Source"])):
            return dict(pair.split("=", 1) for pair in path.name.split("_"))
    return None


def explained(error: CommandFailed) -> RaysideError:
    """Returns the error for kind's output."""
    output = error.message
    if taken := port_taken(output):
        return taken
    if "no space left" in output.lower():
        return LowDisk("the disk filled up while the cluster was made", hint="free some, then ./invokew up")
    if "failed to pull image" in output:
        return ImageMissing(
            "the Docker engine lost the node's image before kind used it", hint="./invokew up makes it again"
        )
    telling = [line for line in output.splitlines() if _TELLING.match(line)]
    return NotReady(
        "\n".join(["kind could not make the cluster", *(telling or output.splitlines())[-8:]]),
        hint="./invokew doctor --target kind shows what the machine lacks",
    )


def port_taken(words: str) -> PortTaken | None:
    """Returns the error for the engine's message that the node's port on this machine is taken; else None."""
    found = _PORT.search(words)
    if found is None:
        return None
    port = int(found[1])
    holder = port_holder(port)
    return PortTaken(
        f"port {port} of this machine, by which the cluster's node is reached, is taken"
        + (f" by {holder.words}" if holder else ""),
        hint="end that program, then ./invokew up; or ./invokew down, then ./invokew up, takes another port",
    )
