"""Target `pod`: the cluster of a workspace on Kubernetes, for verbs that run in the workspace.

`image/workspace/bring-verbs` writes its record. Another machine made the cluster, and runs `up` and `down`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from bootstrap.errors import OtherTarget
from bootstrap.instance import Instance
from bootstrap.steps.machine_checks import Python
from bootstrap.steps.workspace import head_folder
from bootstrap.targets.target import Access, Target
from rayside.errors import NotRunning
from rayside.ray import jobs
from rayside.ray.state import Dashboard
from rayside.steps.step import Report, Status, Step, ready
from rayside.system.shell import Shell


@dataclass(frozen=True)
class PodsRay:
    """The Ray cluster of this pod: a `RayBeside`, and a step that can only be checked here."""

    instance: Instance
    name: str = "ray"
    title: str = "Ray of this workspace"
    needs: tuple[str, ...] = ()

    @property
    def asks_for_token(self) -> bool:
        # The entrypoint sets Ray's own variable for all terminals.
        return os.environ.get("RAY_AUTH_MODE", "token") == "token"

    @property
    def url(self) -> str:
        return self.instance.dashboard

    @property
    def token(self) -> Path:
        return self.instance.token_file

    @property
    def programs(self) -> Path:
        return Path(os.environ.get("RAYSIDE_PROGRAMS", "/usr/bin"))

    @property
    def identity(self) -> dict[str, str]:
        return {"address": self.url}

    def dashboard(self) -> Dashboard:
        """Returns a client of its dashboard. Raises NotRunning if no cluster is beside this workspace."""
        try:
            token = self.token.read_text().strip()
        except OSError:
            raise NotRunning(
                "there is no Ray beside this workspace: it has no token",
                hint="./invokew up, where Rayside was cloned, makes one",
            ) from None
        return Dashboard(self.url, token if self.asks_for_token else "")

    def require(self) -> Dashboard:
        dashboard = self.dashboard()
        dashboard.version()
        return dashboard

    def check(self) -> Status:
        return ready(f"Ray {self.dashboard().version()['ray_version']} at {self.url}")

    def undo(self, report: Report) -> None:
        raise OtherTarget(
            "the cluster that this workspace is in can't be removed from inside",
            hint="./invokew down, where it was made",
        )


@dataclass(frozen=True)
class Pod(Target):
    @cached_property
    def access(self) -> PodAccess:
        return PodAccess(self.shell, PodsRay(self.instance))

    def steps(self) -> list[Step]:
        return [PodsRay(self.instance)]

    def cacheable(self, *, engine: bool) -> list[Step]:
        return []

    def machine(self) -> list[Step]:
        return [Python()]

    def present(self) -> bool:
        return True


@dataclass(frozen=True)
class PodAccess(Access):
    """Access to this pod's Ray cluster, at addresses that all its containers share."""

    shell: Shell
    head: PodsRay

    @property
    def identity(self) -> Instance:
        return self.head.instance

    @property
    def asks_for_token(self) -> bool:
        return self.head.asks_for_token

    @property
    def cluster(self) -> str:
        return os.environ.get("RAY_CLUSTER_NAME", self.head.instance.name)

    def urls(self) -> dict[str, str | None]:
        relay = f"tcp://127.0.0.1:{self.head.instance.ports.relay}"
        return {"workspace": None, "dashboard": self.head.url, "relay": relay}

    def dashboard(self) -> Dashboard:
        return self.head.dashboard()

    def completed(self, job: jobs.Submission) -> jobs.Submission:
        """Returns the job; for an existing Ray cluster, with its user and the debugger."""
        user = self.head.instance.user
        job = replace(job, user=user)
        if not user or not job.debug:
            return job
        return replace(job, debug=replace(job.debug, packages=self._packages))

    @property
    def _packages(self) -> tuple[str, ...]:
        """Returns the paths of the debugger's packages in the workspace's own Ray environment."""
        find = (
            "from importlib.util import find_spec\n"
            "for package in map(find_spec, ('bytecode', 'debugpy')):\n"
            "    print(*(package.submodule_search_locations if package else ()))"
        )
        output = self.shell.run([str(self.head.programs / "python"), "-c", find]).out
        return tuple(filter(None, output.split("\n")))

    def open_folder(self) -> str:
        return head_folder(self.require().jobs())
