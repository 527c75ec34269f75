"""Target `cluster` with `--workspace`: the workspace is a pod beside an existing RayCluster."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from bootstrap.delivery.theirs import Delivery, delivery
from bootstrap.kube import rights
from bootstrap.settings import BUNDLED
from bootstrap.sources.extensions import Extensions
from bootstrap.sources.source import Source
from bootstrap.steps import workspace_pod
from bootstrap.steps.engine import Engine
from bootstrap.steps.machine_checks import Disk, Python
from bootstrap.steps.pull_secret import PullSecret
from bootstrap.steps.ray_cluster import RELAY_PORT, WORKSPACE_PORT
from bootstrap.steps.workspace_pod import WorkspacePod, WorkspaceSecret
from bootstrap.targets.existing_cluster import Cluster, ClusterAccess
from rayside.connection.connections import ByContext
from rayside.steps.head_forward import HeadForward
from rayside.steps.step import Step
from rayside.system import marks


@dataclass(frozen=True)
class ClusterWithWorkspace(Cluster):
    """An existing RayCluster, with our pod beside it for the workspace and the relay."""

    @property
    def has_workspace(self) -> bool:
        return True

    @cached_property
    def connection(self) -> PodConnection:
        known = self.shell, self.settings, self.instance, ("disk", *self.bundle_steps)
        return PodConnection(*known, self.environment.programs, kube=self.kube, target=self)

    @property
    def pod_steps(self) -> list[Step]:
        """Returns the steps that make the pod."""
        return [
            *self._engine,
            *self._made_available,
            self.delivery.step,
            self._login,
            self.password,
            self.secret,
            self.pod,
        ]

    @property
    def workspace_steps(self) -> list[Step]:
        return [self.workspace]

    def cacheable(self, *, engine: bool) -> list[Step]:
        return [*self._engine, Python(), self.memory, self.disk, self.environment, *self._made_available]

    @cached_property
    def access(self) -> BesideAccess:
        return BesideAccess(self)

    @cached_property
    def secret(self) -> WorkspaceSecret:
        return WorkspaceSecret(
            self.instance, self.kube, self.head, self.connection.dashboard_port, self.password
        )

    @cached_property
    def pod(self) -> WorkspacePod:
        images, masked = self.delivery.images, self.masking
        needs = ("workspace-secret", "images", self._login.name)
        return WorkspacePod(self.instance, self.kube, self.head, self.secret, images, masked, needs=needs)

    @property
    def workspace(self) -> HeadForward:
        return self.connection.workspace

    # --- the image -----------------------------------------------------------------------

    @cached_property
    def extensions(self) -> Extensions:
        return self.extensions_for()

    @cached_property
    def origin(self) -> Source:
        return self.origin_with(lambda: self.extensions, nodes_pull=True)

    @cached_property
    def delivery(self) -> Delivery:
        """Returns the delivery of the workspace's image to that cluster's nodes."""
        return delivery(
            *(self.settings, self.shell, self.origin, self.kube),
            names=("workspace",),
            ground="preflight",
            pull_secret=self._registry_secret if self.settings.login_in_pods else "",
        )

    @property
    def _registry_secret(self) -> str:
        # Other users may have a workspace in the same namespace.
        return f"{self.instance.workspace_pod}-registry"

    @property
    def _login(self) -> Step:
        """Returns the step for our pod's login to the mirror; without one, it removes an earlier login."""
        return PullSecret(
            *(self.instance, self.kube),
            self.origin.registry if self.delivery.images.pull_secret else "",
            self._registry_secret,
            needs=("state-folder",),
        )

    @property
    def wheels(self) -> Path | None:
        return self.origin.wheels if self.instance.source in BUNDLED else None

    @property
    def _made_available(self) -> list[Step]:
        artifacts = [*filter(self.origin.gives, ("wheels", *self.delivery.artifacts))]
        # The tag of the image depends on its extensions, even if built elsewhere; a bundle's does not.
        return [*self.origin.steps_for(*artifacts)] if artifacts else [self.extensions]

    @property
    def _engine(self) -> list[Step]:
        return [Engine(self.shell, installs=False)] if self.delivery.takes_engine else []

    @cached_property
    def disk(self) -> Disk:
        # A build here needs disk space for all its inputs.
        setting = "kind_min_disk_gib" if self.delivery.takes_engine else "min_disk_gib"
        return Disk(self.settings, setting, self.present)


@dataclass(frozen=True)
class PodConnection(ByContext):
    """Connection through a context, with the relay in the target's pod instead of an actor."""

    target: ClusterWithWorkspace = field(kw_only=True)

    @property
    def relay_steps(self) -> list[Step]:
        return [*self.target.pod_steps, self.relay]

    def require_rights(self) -> None:
        if self.target.delivery.refusal:
            raise self.target.delivery.refusal
        rights.require(self.target.kube, rights.WORKSPACE_POD)

    def selector(self, port_name: str) -> str:
        return (
            super().selector(port_name)
            if port_name == "dashboard"
            else workspace_pod.selector(self.target.instance)
        )

    @property
    def relay(self) -> HeadForward:
        port = self.instance.ports.relay
        return self.forward("relay", port, lambda: RELAY_PORT, "dap", marks.RELAY, self.target.pod.name)

    @property
    def workspace(self) -> HeadForward:
        """Returns the step of the port forward to the pod's workspace."""
        port, pod = self.instance.ports.workspace, self.target.pod.name
        return self.forward("workspace", port, lambda: WORKSPACE_PORT, "http", marks.WORKSPACE, pod)


@dataclass(frozen=True)
class BesideAccess(ClusterAccess):
    """Access to that Ray cluster; its workspace has its own pod's files."""

    def open_folder(self) -> str:
        return workspace_pod.FOLDER
