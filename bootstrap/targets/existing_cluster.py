"""Target `cluster`: an existing Ray cluster, which Rayside connects to; the workspace is on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from bootstrap.kube.api import Kube
from bootstrap.steps.machine_checks import Python, System
from bootstrap.targets.on_this_machine import AccessFromHere, OnThisMachine
from rayside.connection.access import of_user
from rayside.connection.connections import Connection, connection_to
from rayside.ray import jobs
from rayside.steps.existing_ray import ExistingRay
from rayside.steps.step import PortStep, Step


@dataclass(frozen=True)
class Cluster(OnThisMachine):
    """An existing Ray cluster, reached through the instance's `connection`."""

    shared_files: bool = False

    def steps(self) -> list[Step]:
        return [
            *self.room,
            *([self.environment] if self.has_workspace else []),
            *self.connection.steps(),
            self.cluster_file,
            *self.workspace_steps,
        ]

    def machine(self) -> list[Step]:
        return [System(), Python(), self.memory, self.disk, *self.free_ports.each(), self.environment]

    @cached_property
    def connection(self) -> Connection:
        return connection_to(
            *(self.instance, self.shell, self.settings, lambda: self.kube),
            ground=("disk", *self.bundle_steps),
            programs=self.environment.programs if self.has_workspace else None,
        )

    @cached_property
    def kube(self) -> Kube:
        return Kube(Path(self.instance.their_kubeconfig), self.instance.context, self.instance.namespace)

    @cached_property
    def access(self) -> ClusterAccess:
        return ClusterAccess(self)

    @property
    def head(self) -> ExistingRay:
        return self.connection.head

    @property
    def relay(self) -> PortStep:
        return self.connection.relay

    def present(self) -> bool:
        return self.connection.present() or super().present()

    @property
    def opens(self) -> tuple[str, ...]:
        """Returns the names of the ports of the cluster on this machine."""
        return (*self.connection.opens, "workspace")


@dataclass(frozen=True)
class ClusterAccess(AccessFromHere):
    """Access to an existing Ray cluster."""

    target: Cluster

    @property
    def cluster(self) -> str:
        return self.target.instance.place

    def completed(self, job: jobs.Submission) -> jobs.Submission:
        return of_user(job, self.target.instance, self.target.head.known.get("python", ""))
