"""Writes the file by which an editor finds the cluster: docs/workspace.md says what is in it."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bootstrap.settings import ROOT, Settings, as_environment
from bootstrap.step import Report, Status, missing, ready
from bootstrap.steps.state_folder import write_private

# By these settings a command of ours finds this cluster. Those that make it are not here: an `up` that
# refuses to change the cluster must not change what is said of it.
_FOUND_BY = (
    *("target", "kind_cluster", "namespace", "state_folder", "cache_folder"),
    *("dashboard_port", "relay_port", "workspace_port", "ray_client_port"),
)


@dataclass(frozen=True)
class ClusterFile:
    """The cluster's file; `shared_files` says whether this machine's editors see the workers' own files."""

    settings: Settings
    target: str
    folder: Path
    shared_files: bool
    name: str = "cluster-file"
    title: str = "file that tells editors of the cluster"
    needs: tuple[str, ...] = ("state-folder",)
    patience: float = 0.0

    @property
    def file(self) -> Path:
        return self.folder / "cluster.json"

    def document(self) -> dict[str, Any]:
        """Returns addresses, where the token is, and how to submit; nothing secret."""
        return {
            "dashboard": f"http://127.0.0.1:{self.settings.dashboard_port}",
            "relay": {"host": "127.0.0.1", "port": self.settings.relay_port},
            "token_file": str(self.folder / "token"),
            "submit": [str(ROOT / "invokew"), "submit"],
            "environment": self.environment,
            "shared_files": self.shared_files,
            "target": self.target,
        }

    @property
    def environment(self) -> dict[str, str]:
        """Returns the variables with which `./invokew` finds this cluster."""
        found_by = {name: getattr(self.settings, name) for name in _FOUND_BY}
        return as_environment(replace(Settings(**found_by), target=self.target))

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
