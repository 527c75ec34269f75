"""Target `cluster`: an existing Ray cluster, which Rayside connects to and does not change."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from bootstrap.step import Step
from bootstrap.steps.debugpy_package import DebugpyPackage
from bootstrap.steps.machine_checks import Python, System
from bootstrap.steps.preflight import Preflight
from bootstrap.steps.state_folder import StateFolder
from bootstrap.steps.their_ray import TheirRay
from bootstrap.targets.on_this_machine import AccessFromHere, OnThisMachine
from rayside.ray import jobs


@dataclass(frozen=True)
class Cluster(OnThisMachine):
    """A Ray at an address; the relay and the workspace for it are processes of this machine."""

    shared_files: bool = False
    # Its dashboard and its client server are where they are, on this machine or on another.
    opens: tuple[str, ...] = ("relay", "workspace")

    def steps(self) -> list[Step]:
        return [
            *self.room,
            self.environment,
            # What can't work leaves nothing behind.
            self.preflight,
            StateFolder(self.instance, needs=("disk", "preflight", *self.bundle_steps)),
            *self.way,
            self.head,
            self.debugpy,
            *self.relay_steps,
            self.cluster_file,
            *self.workspace_steps,
        ]

    @property
    def way(self) -> list[Step]:
        """Returns the steps that lead to its dashboard; none where this machine reaches that by itself."""
        return []

    @property
    def relay_steps(self) -> list[Step]:
        return [self.relay]

    def machine(self) -> list[Step]:
        return [System(), Python(), self.memory, self.disk, *self.free_ports.each(), self.environment]

    @cached_property
    def access(self) -> ClusterAccess:
        return ClusterAccess(self)

    @cached_property
    def head(self) -> TheirRay:
        return TheirRay(self.instance, self.environment.programs, self.preflight)

    @cached_property
    def preflight(self) -> Preflight:
        return Preflight(lambda: nullcontext(self.instance.address), *self.tokens, self.instance.place)

    @property
    def tokens(self) -> tuple[str, Path]:
        """Returns the file of the token that the user named, and the one that an earlier `up` wrote."""
        return self.settings.token_file, self.instance.token_file

    @cached_property
    def debugpy(self) -> DebugpyPackage:
        return DebugpyPackage(self.shell, self.settings.cache_folder, self.head, wheels=self.wheels)


@dataclass(frozen=True)
class ClusterAccess(AccessFromHere):
    """Access to a Ray that others made, at its own address."""

    target: Cluster

    @property
    def cluster(self) -> str:
        return self.target.instance.place

    def completed(self, job: jobs.Submission) -> jobs.Submission:
        """Returns the job, as its user's; debugpy goes with one that is to be debugged."""
        job = replace(job, user=self.target.instance.user)
        if not job.debug:
            return job
        return replace(job, debug=replace(job.debug, packages=self.target.debugpy.packages))
