"""Cluster file, with which editors find the cluster; docs/internals/workspace.md describes its fields."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rayside.connection.instance import Instance
from rayside.private_file import write_private
from rayside.settings import environment_name
from rayside.steps.step import Report, Status, missing, ready


@dataclass(frozen=True)
class ClusterFile:
    """The cluster's file.

    Attributes:
        shared_files: whether this machine's editors see the workers' own files.
        verbs: the program that runs the verbs of a clone, with its first arguments; empty without a clone.
        submit: the command that submits a job.
        environment: the variables with which `submit` finds this cluster.
    """

    instance: Instance
    shared_files: bool
    verbs: tuple[str, ...]
    submit: tuple[str, ...]
    environment: Mapping[str, str]
    name: str = "cluster-file"
    title: str = "file that tells editors of the cluster"
    needs: tuple[str, ...] = ("state-folder",)

    @property
    def file(self) -> Path:
        return self.instance.cluster_file

    def document(self) -> dict[str, Any]:
        """Returns addresses, the token's file, the commands for verbs and `submit`; no secret."""
        return {
            "name": self.instance.name,
            "dashboard": self.instance.dashboard,
            "relay": {"host": "127.0.0.1", "port": self.instance.ports.relay},
            "token_file": str(self.instance.token_file),
            "verbs": [*self.verbs],
            "submit": [*self.submit],
            # The editor's folder may contain a pyproject.toml that names another cluster.
            "environment": {environment_name("name"): self.instance.name, **self.environment},
            "shared_files": self.shared_files,
            "target": self.instance.target,
            "user": self.instance.user,
        }

    def check(self) -> Status:
        if not self.file.exists():
            return missing("not written yet")
        if self.file.read_text() != self._text:
            return missing(f"{self.file} is of other settings")
        return ready(str(self.file))

    def apply(self, report: Report) -> None:
        write_private(self.file, self._text)

    def undo(self, report: Report) -> None:
        self.file.unlink(missing_ok=True)

    @property
    def _text(self) -> str:
        return json.dumps(self.document(), indent=2)
