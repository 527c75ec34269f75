"""The composition root: the steps of each target, in order."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bootstrap.ray import jobs
from bootstrap.ray.state import Dashboard
from bootstrap.settings import Settings
from bootstrap.shell import Shell
from bootstrap.step import Step, Timing
from bootstrap.steps.example_job import ExampleJob
from bootstrap.steps.local_ray import RayHead, RayToken, StateFolder, write_private
from bootstrap.steps.machine import Machine
from bootstrap.steps.ray_environment import RayEnvironment


@dataclass(frozen=True)
class Local:
    """Ray as processes of this machine."""

    settings: Settings
    shell: Shell
    reason: str
    target: str = "local"
    # Ray comes from PyPI, by way of the lock file.
    source: str = "packages"

    def cluster(self) -> list[Step]:
        """What has to be true of the cluster."""
        return [
            self._machine,
            self.environment,
            self._state_folder,
            self._token,
            self.head,
        ]

    def with_example(self) -> list[Step]:
        """The cluster, and the example paused on it."""
        return [
            *self.cluster(),
            ExampleJob(self.head.dashboard, self.submit, needs=("ray",)),
        ]

    def cacheable(self) -> list[Step]:
        """What can be made ahead without starting anything."""
        return [Machine(self.settings, self.head.present, ports=()), self.environment]

    @property
    def lock(self) -> Path:
        """Held while the cluster is changed; in the cache, as the state folder comes and goes."""
        name = hashlib.sha256(str(self.settings.state_folder).encode()).hexdigest()[:12]
        return self.settings.cache_folder / f"local-{name}.lock"

    def urls(self) -> dict[str, str | None]:
        return {"workspace": None, "dashboard": self.head.url, "relay": None}

    def require(self) -> Dashboard:
        """The dashboard of the cluster. Raises NotRunning, RayDied."""
        return self.head.require()

    def submit(self, job: jobs.Submission, submission_id: str) -> None:
        ray, env = self.environment.programs / "ray", self.head.environment()
        jobs.submit(self.shell, ray, self.head.url, env, job, submission_id)

    def remember(self, timings: Sequence[Timing]) -> None:
        """Keeps the timing of the last `up` that changed something, for `status`."""
        document = [timing.document() for timing in timings]
        write_private(self._timings, json.dumps(document))

    def timings(self) -> list[dict[str, Any]]:
        """What `remember` kept; nothing where there was no `up`."""
        try:
            return list(json.loads(self._timings.read_text()))
        except (FileNotFoundError, ValueError):
            return []

    # --- the steps -----------------------------------------------------------------------

    @property
    def _timings(self) -> Path:
        return self.settings.state_folder / "up.json"

    @property
    def environment(self) -> RayEnvironment:
        return RayEnvironment(self.shell, self.settings.cache_folder)

    @property
    def head(self) -> RayHead:
        return RayHead(self.shell, self.settings, self.environment.programs, self._token.file)

    @property
    def _machine(self) -> Machine:
        return Machine(self.settings, self.head.present, ports=("dashboard_port", "ray_client_port"))

    @property
    def _state_folder(self) -> StateFolder:
        return StateFolder(self.settings.state_folder)

    @property
    def _token(self) -> RayToken:
        return RayToken(self.settings.state_folder)


def choose(settings: Settings, shell: Shell) -> Local:
    """The target that the settings ask for, with the reason for the choice, for people."""
    reason = "as asked" if settings.target == "local" else "auto: Ray as processes of this machine"
    return Local(settings, shell, reason)
