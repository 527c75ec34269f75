"""Registry configuration of a kind cluster's nodes: CA bundles and mirrors."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bootstrap import docker_engine
from bootstrap.errors import RegistryRefused
from bootstrap.registry.address import Address
from bootstrap.registry.login import Login
from bootstrap.steps.kind_cluster import containers
from rayside.steps.step import Report, Status, missing, ready

# Folder of containerd's registry configuration, in kind's node image of any source:
# https://github.com/containerd/containerd/blob/v1.6.20/docs/hosts.md
_FOLDER = Path("/etc/containerd/certs.d")


@dataclass(frozen=True)
class Trusted:
    """A registry with its CA bundle."""

    address: Address
    ca_file: Path

    @property
    def host(self) -> str:
        return self.address.host

    def files(self) -> dict[str, bytes]:
        # For the server itself, which containerd asks after the hosts that are named before it.
        text = f'server = "https://{self.host}"\nca = "{_FOLDER / self.host}/ca.crt"\n'
        return {"hosts.toml": text.encode(), "ca.crt": self.ca_file.read_bytes()}


@dataclass(frozen=True)
class StandIn:
    """A mirror, at `address`, of the public registry `host`, which is asked before it.

    `login` returns None if it needs none. A registry that gives tokens for a login is asked without.
    """

    host: str
    address: Address
    ca_file: Path | None
    login: Callable[[], Login | None]

    def files(self) -> dict[str, bytes]:
        """Returns the files by name. Raises RegistryRefused if the login can't be read."""
        # override_path: the registry's path precedes the image's name in each request.
        url = f"https://{self.address.host}/v2/{self.address.path}".rstrip("/")
        lines = [f'[host."{url}"]', 'capabilities = ["pull", "resolve"]', "override_path = true"]
        files = {}
        if self.ca_file:
            lines.append(f'ca = "{_FOLDER / self.host}/ca.crt"')
            files["ca.crt"] = self.ca_file.read_bytes()
        if login := self.login():
            lines += [f'[host."{url}".header]', f'Authorization = "{login.basic}"']
        return {"hosts.toml": "\n".join([*lines, ""]).encode(), **files}


@dataclass(frozen=True)
class NodeRegistries:
    """Each node's containerd is configured for these registries; its other configuration stays."""

    # Name of the kind cluster.
    cluster: str
    registries: Sequence[Trusted | StandIn]
    name: str = "node-registries"
    needs: tuple[str, ...] = ("cluster",)

    @property
    def title(self) -> str:
        return f"registries that the nodes know: {', '.join(each.host for each in self.registries)}"

    def check(self) -> Status:
        """Checks. Raises RegistryRefused if a login can't be read and nodes have no earlier configuration."""
        try:
            files = self._files()
        except RegistryRefused:
            if not self._were_told():
                raise
            return ready("as they were told before")
        with docker_engine.connected() as client:
            nodes = containers(client, self.cluster)
            for node in nodes:
                for name, content in files.items():
                    told = node.exec_run(["cat", str(_FOLDER / name)])
                    if told.exit_code != 0 or told.output != content:
                        return missing(f"the node {node.name} does not know {name.partition('/')[0]}")
        return ready(f"{len(self.registries)} in {_FOLDER}") if nodes else missing("there is no cluster yet")

    def apply(self, report: Report) -> None:
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as tar:
            for name, content in self._files().items():
                entry = tarfile.TarInfo(f"{_FOLDER.name}/{name}")
                # It may contain a login.
                entry.size, entry.mode = len(content), 0o600
                tar.addfile(entry, io.BytesIO(content))
        with docker_engine.connected() as client:
            for node in containers(client, self.cluster):
                node.put_archive(str(_FOLDER.parent), archive.getvalue())

    def _were_told(self) -> bool:
        """Returns whether each node has some configuration of each registry."""
        named = [str(_FOLDER / each.host / "hosts.toml") for each in self.registries]
        with docker_engine.connected() as client:
            nodes = containers(client, self.cluster)
            return bool(nodes) and all(node.exec_run(["ls", *named]).exit_code == 0 for node in nodes)

    def _files(self) -> Mapping[str, bytes]:
        """Returns the contents by path in the nodes' folder. Raises RegistryRefused."""
        return {
            f"{each.host}/{name}": content
            for each in self.registries
            for name, content in each.files().items()
        }
