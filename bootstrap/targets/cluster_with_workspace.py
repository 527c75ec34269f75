"""Target `cluster` with `--workspace`: the workspace of a RayCluster of others is a pod beside it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from bootstrap.delivery.theirs import Delivery, delivery
from bootstrap.kube import rights
from bootstrap.kube.api import head_selector
from bootstrap.settings import BUNDLED
from bootstrap.sources.extensions import Extensions
from bootstrap.sources.source import Source
from bootstrap.step import Step
from bootstrap.steps import marks, workspace_pod
from bootstrap.steps.engine import Engine
from bootstrap.steps.forwards import HeadForward
from bootstrap.steps.machine_checks import Disk, Python
from bootstrap.steps.pull_secret import PullSecret
from bootstrap.steps.ray_cluster import RELAY_PORT, WORKSPACE_PORT
from bootstrap.steps.workspace_pod import WorkspacePod, WorkspaceSecret
from bootstrap.targets.cluster_by_head import ClusterByContext
from bootstrap.targets.existing_cluster import ClusterAccess


@dataclass(frozen=True)
class ClusterWithWorkspace(ClusterByContext):
    """A RayCluster of others; two ports lead to a pod of ours, which has the relay in place of an actor."""

    @property
    def has_workspace(self) -> bool:
        return True

    @property
    def relay_steps(self) -> list[Step]:
        return [
            *self._engine,
            *self._made_available,
            self.delivery.step,
            self._login,
            self.password,
            self.secret,
            self.pod,
            self.relay,
        ]

    @property
    def workspace_steps(self) -> list[Step]:
        return [self.workspace]

    def cacheable(self, *, engine: bool) -> list[Step]:
        return [*self._engine, Python(), self.memory, self.disk, self.environment, *self._made_available]

    @cached_property
    def access(self) -> BesideAccess:
        return BesideAccess(self)

    def require_rights(self) -> None:
        if self.delivery.refusal:
            raise self.delivery.refusal
        rights.require(self.kube, rights.WORKSPACE_POD)

    def selector(self, port_name: str) -> str:
        if port_name == "dashboard":
            return head_selector(self.instance.their_cluster)
        return workspace_pod.selector(self.instance)

    @cached_property
    def secret(self) -> WorkspaceSecret:
        return WorkspaceSecret(self.instance, self.kube, self.head, self.dashboard_port, self.password)

    @cached_property
    def pod(self) -> WorkspacePod:
        images, masked = self.delivery.images, self.masking
        needs = ("workspace-secret", "images", self._login.name)
        return WorkspacePod(self.instance, self.kube, self.head, self.secret, images, masked, needs=needs)

    @property
    def relay(self) -> HeadForward:
        port = self.instance.ports.relay
        return self.forward("relay", port, lambda: RELAY_PORT, "dap", marks.RELAY, self.pod.name)

    @property
    def workspace(self) -> HeadForward:
        port = self.instance.ports.workspace
        return self.forward("workspace", port, lambda: WORKSPACE_PORT, "http", marks.WORKSPACE, self.pod.name)

    # --- the image -----------------------------------------------------------------------

    @cached_property
    def extensions(self) -> Extensions:
        return self.extensions_for()

    @cached_property
    def origin(self) -> Source:
        return self.origin_with(lambda: self.extensions, nodes_pull=True)

    @cached_property
    def delivery(self) -> Delivery:
        """Returns the way of the workspace's image to the nodes there."""
        return delivery(
            *(self.settings, self.shell, self.origin, self.kube),
            names=("workspace",),
            ground="preflight",
            pull_secret=self._registry_secret if self.settings.login_in_pods else "",
        )

    @property
    def _registry_secret(self) -> str:
        # Others may have a workspace in the same namespace.
        return f"{self.instance.workspace_pod}-registry"

    @property
    def _login(self) -> Step:
        """Returns the step by which our pod may pull from the mirror; else an earlier login goes."""
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
        # The image is named by its extensions, whoever builds it; that of a bundle by its own.
        return [*self.origin.steps_for(*artifacts)] if artifacts else [self.extensions]

    @property
    def _engine(self) -> list[Step]:
        return [Engine(self.shell, installs=False)] if self.delivery.takes_engine else []

    @cached_property
    def disk(self) -> Disk:
        # An image that is built here takes all that it is built from.
        setting = "kind_min_disk_gib" if self.delivery.takes_engine else "min_disk_gib"
        return Disk(self.settings, setting, self.present)


@dataclass(frozen=True)
class BesideAccess(ClusterAccess):
    """Access to that Ray; its workspace sees files of its own pod."""

    def open_folder(self) -> str:
        return workspace_pod.FOLDER
