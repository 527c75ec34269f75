"""Kubectl contexts of the cluster: in a kubeconfig of our own, and in the user's kubeconfig."""

from __future__ import annotations

import base64
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bootstrap.kube.api import CORE, Kube
from bootstrap.kube.kubeconfig import entries
from bootstrap.steps.kind_cluster import KindCluster
from rayside.errors import ClusterUnreachable, CommandFailed, InvalidYaml
from rayside.private_file import write_private
from rayside.steps.step import Report, Status, missing, pending, ready
from rayside.system.shell import Shell


@dataclass(frozen=True)
class Kubeconfig:
    """A kubeconfig of our own, readable by its owner alone; the API responds and the node is ready."""

    shell: Shell
    cluster: KindCluster
    kube: Kube
    name: str = "kubeconfig"
    title: str = "Kubernetes API"
    needs: tuple[str, ...] = ("cluster",)
    patience: float = 120.0

    def check(self) -> Status:
        if not self.kube.kubeconfig.exists():
            return missing("no kubeconfig yet")
        entries, address = _entries(self.kube.kubeconfig, self.kube.context), self.cluster.address()
        if not address:
            return missing("the cluster's node does not run")
        if entries is None or entries["cluster"]["server"] != address:
            return missing(f"the kubeconfig does not lead to {address}")
        try:
            if not self.kube.is_ready():
                return pending("the API is coming up")
            nodes = self.kube.items(f"{CORE}/nodes")
        except ClusterUnreachable as error:
            return pending(error.message)
        conditions = [condition for node in nodes for condition in node["status"].get("conditions", [])]
        if not any(
            condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions
        ):
            return pending("the node is not ready yet")
        return ready(f"{self.kube.url}, context {self.kube.context}")

    def apply(self, report: Report) -> None:
        name = self.cluster.instance.name
        kubeconfig = self.shell.run(
            [self.cluster.kind, "get", "kubeconfig", "--name", name], env=self.cluster.environment()
        )
        write_private(self.kube.kubeconfig, kubeconfig.out.rstrip("\n") + "\n")

    def undo(self, report: Report) -> None:
        self.kube.kubeconfig.unlink(missing_ok=True)


@dataclass(frozen=True)
class UserContext:
    """A context in the user's kubeconfig, so that kubectl finds the cluster by name.

    It becomes the current one if there is none; the user's current one stays.
    """

    shell: Shell
    kubectl: Path
    kube: Kube
    name: str = "context"
    title: str = "context in your kubeconfig"
    needs: tuple[str, ...] = ("kubeconfig", "kubectl")

    def check(self) -> Status:
        own_entries, user_entries = _entries(self.kube.kubeconfig, self.kube.context), self._user_entries()
        if own_entries is None or user_entries != {
            **own_entries,
            "context": {**own_entries["context"], "namespace": self.kube.namespace},
        }:
            return missing(f"{self.kube.context} is not there, or is of an earlier cluster")
        return ready(f"{self.kube.context} in {_user_file()}")

    def apply(self, report: Report) -> None:
        """Adds it with kubectl, which locks the file and chooses among several files of KUBECONFIG."""
        own_entries = _entries(self.kube.kubeconfig, self.kube.context)
        if own_entries is None:
            raise ClusterUnreachable(
                f"{self.kube.kubeconfig} has no {self.kube.context}", hint="./invokew up"
            )
        name = self.kube.context
        with tempfile.TemporaryDirectory(prefix="rayside-") as folder:  # Its mode is 0700.
            files = {}
            for key, value in {**own_entries["cluster"], **own_entries["user"]}.items():
                if key.endswith("-data"):
                    files[key] = Path(folder, key)
                    files[key].write_bytes(base64.b64decode(value))
            server: list[str | Path] = ["--server", own_entries["cluster"]["server"], "--embed-certs"]
            ca: list[str | Path] = ["--certificate-authority", files["certificate-authority-data"]]
            client: list[str | Path] = [
                "--client-certificate",
                files["client-certificate-data"],
                "--embed-certs",
            ]
            self._config("set-cluster", name, *server, *ca)
            self._config("set-credentials", name, *client, "--client-key", files["client-key-data"])
        self._config(
            "set-context", name, "--cluster", name, "--user", name, "--namespace", self.kube.namespace
        )
        if not self.current():
            self.use()

    def undo(self, report: Report) -> None:
        user_entries, own_entries = self._user_entries(), _entries(self.kube.kubeconfig, self.kube.context)
        # A context of that name may belong to another cluster.
        if user_entries is None or own_entries is None or user_entries["cluster"] != own_entries["cluster"]:
            return
        report(f"removing the context {self.kube.context}")
        if self.current() == self.kube.context:
            self._config("unset", "current-context")
        for kind in ("context", "cluster", "user"):
            self._config(f"delete-{kind}", self.kube.context)

    def current(self) -> str:
        """Returns kubectl's current context, over all files of KUBECONFIG; empty if there is none."""
        return self._config("view", "--output", "jsonpath={.current-context}").strip()

    def use(self) -> None:
        """Makes it the current context."""
        self._config("use-context", self.kube.context)

    def _user_entries(self) -> dict[str, Any] | None:
        return _entries(_user_file(), self.kube.context)

    def _config(self, *arguments: str | Path) -> str:
        try:
            return self.shell.run([self.kubectl, "config", *arguments]).out
        except CommandFailed as error:
            raise ClusterUnreachable(
                f"your kubeconfig {_user_file()} can't be read or changed: {error.message.splitlines()[-1]}",
                hint=f"correct it, or set KUBECONFIG to another; {self.kube.kubeconfig} is Rayside's own",
            ) from None


def _user_file() -> Path:
    named = [part for part in os.environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    return Path(named[0]) if named else Path.home() / ".kube" / "config"


def _entries(file: Path, name: str) -> dict[str, Any] | None:
    """Returns the context of that name with its cluster and user; None if one is missing."""
    try:
        return entries(file, name)
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise InvalidYaml(
            f"the kubeconfig {file} can't be read: {error}", hint="correct or remove it"
        ) from None
