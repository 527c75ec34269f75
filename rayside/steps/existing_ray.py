"""Existing Ray cluster: its token, its version and its authentication mode, recorded on this machine."""

from __future__ import annotations

import json
import secrets
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rayside.connection.instance import Instance
from rayside.errors import NotRunning
from rayside.private_file import write_private
from rayside.ray import authentication
from rayside.ray.state import Dashboard
from rayside.steps.preflight import Preflight
from rayside.steps.step import Report, Status, missing, ready


@dataclass(frozen=True)
class RecordedRay:
    """Existing Ray cluster, as recorded in files of this machine; `at`: another URL of its dashboard."""

    instance: Instance
    at: str = field(default="", kw_only=True)

    @property
    def url(self) -> str:
        return self.at or self.instance.dashboard

    @property
    def token(self) -> Path:
        """Returns the file of Ray's token, or of the relay's own token if this Ray requires none."""
        return self.instance.token_file

    @property
    def asks_for_token(self) -> bool:
        # A cluster that the bootstrapper made always requires one.
        is_ours = not self.instance.address
        return is_ours or self.known.get("authentication") == authentication.TOKEN

    @property
    def identity(self) -> dict[str, Any]:
        return {"address": self.instance.place, **self.known}

    @property
    def known(self) -> Mapping[str, str]:
        """Returns the last `up`'s record, a `Seen.document`; empty before the first `up`."""
        try:
            return dict(json.loads(self._record.read_text()))
        except (OSError, ValueError):
            return {}

    @property
    def _record(self) -> Path:
        return self.instance.folder / "ray.json"

    def dashboard(self) -> Dashboard:
        """Returns a client of its dashboard. Raises NotRunning before the first `up`."""
        try:
            token = self.token.read_text()
        except FileNotFoundError:
            raise NotRunning(
                f"nobody has looked at the Ray at {self.url} yet",
                hint=f"./invokew up{self.instance.verb_options} does",
            ) from None
        return Dashboard(self.url, token if self.asks_for_token else "")

    def require(self) -> Dashboard:
        """Returns the dashboard after it answered. Raises NotRunning."""
        dashboard = self.dashboard()
        dashboard.version()
        return dashboard


@dataclass(frozen=True)
class ExistingRay(RecordedRay):
    """Existing Ray cluster at the instance's address: a `RayBeside`, and the step that checks it."""

    preflight: Preflight
    name: str = "ray"
    title: str = "existing Ray cluster"
    needs: tuple[str, ...] = ("preflight", "state-folder")
    # Folder with a `python` of this machine, and a `ray` if one is installed.
    programs: Path = Path(sys.executable).parent

    def check(self) -> Status:
        """Compares the cluster with its record. Raises as `Preflight.look`."""
        if not self.known or not self.token.exists():
            return missing("nobody has looked at it yet")
        seen = self.preflight.look(self.url)
        if seen.document != self.known or (seen.token and seen.token != self.token.read_text()):
            return missing(f"it has changed: {seen}")
        return ready(f"{self.instance.place}, {seen}")

    def apply(self, report: Report) -> None:
        """Writes its token and its record. Raises as `Preflight.look`."""
        report(f"asking {self.instance.place}")
        seen = self.preflight.look(self.url)
        # If Ray requires no token, the relay still does: web pages in this machine's browsers reach it.
        kept = self.token.read_text() if self.token.exists() else ""
        write_private(self.token, seen.token or kept or secrets.token_urlsafe(32))
        write_private(self._record, json.dumps(seen.document))

    def undo(self, report: Report) -> None:
        for file in (self._record, self.token):
            file.unlink(missing_ok=True)
