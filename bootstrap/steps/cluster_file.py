"""Writes the file by which an editor finds the cluster: docs/internals/workspace.md says what is in it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bootstrap.instance import Instance
from bootstrap.settings import ROOT, Settings, as_environment
from bootstrap.step import Report, Status, missing, ready
from rayside.private_file import write_private


@dataclass(frozen=True)
class ClusterFile:
    """The cluster's file; `shared_files` says whether this machine's editors see the workers' own files."""

    settings: Settings
    instance: Instance
    shared_files: bool
    name: str = "cluster-file"
    title: str = "file that tells editors of the cluster"
    needs: tuple[str, ...] = ("state-folder",)

    @property
    def file(self) -> Path:
        return self.instance.cluster_file

    def document(self) -> dict[str, Any]:
        """Returns addresses, where the token is, how to run verbs and to submit; nothing secret."""
        return {
            "name": self.instance.name,
            "dashboard": self.instance.dashboard,
            "relay": {"host": "127.0.0.1", "port": self.instance.ports.relay},
            "token_file": str(self.instance.token_file),
            "verbs": [str(ROOT / "invokew")],
            "submit": [str(ROOT / "invokew"), "submit"],
            "environment": self.environment,
            "shared_files": self.shared_files,
            "target": self.instance.target,
            "user": self.instance.user,
        }

    @property
    def environment(self) -> dict[str, str]:
        """Returns the variables with which `./invokew` finds this cluster.

        The settings that make it are not among them: an `up` that refuses to change the cluster must not
        change what is said of it.
        """
        # The record has the ports. Named here, they would be taken for those of another cluster, too.
        return as_environment(
            Settings(
                name=self.instance.name,
                target=self.instance.target,
                namespace=self.instance.namespace,
                state_folder=self.settings.state_folder,
                cache_folder=self.settings.cache_folder,
            )
        )

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
