"""Base class of targets that create a RayCluster, with the workspace and the relay beside its head."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from bootstrap.kube import operator
from bootstrap.kube.api import Kube
from bootstrap.settings import BUNDLED
from bootstrap.sources.extensions import Extensions, this_platform
from bootstrap.sources.source import Images, Source
from bootstrap.steps.forwards import Forwards
from bootstrap.steps.kubectl_contexts import UserContext
from bootstrap.steps.kuberay import CustomResources, KubeRay, OperatorManifest
from bootstrap.steps.package_index import PackageIndex, trusted
from bootstrap.steps.ray_cluster import (
    DASHBOARD_PORT,
    RELAY_PORT,
    WORKSPACE_PORT,
    KubeRayToken,
    RayCluster,
    WorkspacePassword,
)
from bootstrap.targets.forwarded import ForwardedAccess
from bootstrap.targets.target import Target
from rayside.connection.heads import head_selector
from rayside.errors import Forbidden
from rayside.reach.supervisor import Forward
from rayside.steps.cluster_file import ClusterFile
from rayside.steps.step import Step

if TYPE_CHECKING:
    from bootstrap.kube.contents import Kind
    from bootstrap.steps.pull_secret import PullSecret

# Timeout in seconds for a node to pull some gigabytes, at worst through the network of a classroom.
_PULLING = 1800.0


@dataclass(frozen=True)
class OnKubernetes(Target):
    """Creates KubeRay's stack in the cluster of `kube`, from the images and tools of a source."""

    brings_example: bool = True
    # Whether nodes pull the images from a mirror that they reach; else images are loaded into them.
    nodes_pull: bool = False

    @cached_property
    @abstractmethod
    def kube(self) -> Kube:
        """Returns the Kubernetes API, in the namespace of the RayCluster."""

    @property
    @abstractmethod
    def images(self) -> Images:
        """Returns the images' references for pods."""

    @cached_property
    def access(self) -> ForwardedAccess:
        program = self.origin.resolve("kubectl-ray").path
        return ForwardedAccess(
            *(self.instance, self.kube, self.forwards, self.user_context),
            *(self.shell, program, self.environment.programs),
        )

    @property
    def kubernetes(self) -> ForwardedAccess:
        return self.access

    @cached_property
    def operator_namespace(self) -> str:
        """Returns the namespace of its KubeRay operator; empty if there is none, or it can't be seen."""
        try:
            present = operator.installed(self.kube)
        except Forbidden:
            return ""
        return present.namespace if present else ""

    @cached_property
    def kinds(self) -> Sequence[Kind]:
        """Returns the kinds of objects in namespaces; requested once for all places of a command."""
        from bootstrap.kube.contents import kinds

        return kinds(self.kube)

    # --- steps that other steps are built from -------------------------------------------

    @cached_property
    def origin(self) -> Source:
        return self.origin_with(lambda: self.extensions, nodes_pull=self.nodes_pull)

    @cached_property
    def kubectl(self) -> Path:
        return self.origin.resolve("kubectl").path

    @cached_property
    def extensions(self) -> Extensions:
        return self.extensions_for(this_platform("linux", self.architecture))

    @cached_property
    def cluster_file(self) -> ClusterFile:
        """Returns the file for this machine's editors, which don't share the workers' files."""
        return self.file_for_editors(shared_files=False)

    @cached_property
    def user_context(self) -> UserContext:
        return UserContext(self.shell, self.kubectl, self.kube)

    @property
    def wheels(self) -> Path | None:
        # Other sources are not needed for this, and would hash all inputs of images.
        return self.origin.wheels if self.instance.source in BUNDLED else None

    @cached_property
    def forwards(self) -> Forwards:
        local = self.instance.ports
        ports = (
            Forward("dashboard", local.dashboard, DASHBOARD_PORT),
            Forward("workspace", local.workspace, WORKSPACE_PORT),
            Forward("relay", local.relay, RELAY_PORT, speaks="dap"),
        )
        selector = head_selector(self.instance.ray_cluster)
        return Forwards(self.shell, self.kube, self.instance.folder, ports, selector, self.kubectl)

    @property
    def ports(self) -> dict[str, int]:
        return {f"{port.name}_port": port.local for port in self.forwards.ports}

    @property
    def registry_secret(self) -> str:
        return f"{self.instance.name}-registry"

    def pull_login(self, registry: str, *, needs: str, cluster_goes: bool = False) -> PullSecret:
        """Returns the step for a Secret with the login to a registry, HOST/PATH."""
        from bootstrap.steps.pull_secret import PullSecret

        return PullSecret(
            *(
                self.instance,
                self.kube,
                registry if self.settings.login_in_pods else "",
                self.registry_secret,
            ),
            cluster_goes=cluster_goes,
            needs=(needs,),
        )

    def operator_manifest(self, confined_to: str = "") -> OperatorManifest:
        kustomization = self.origin.resolve("kuberay").path
        folders = (self.settings.cache_folder, self.kubectl, kustomization)
        return OperatorManifest(self.shell, *folders, self.images, confined_to)

    def stack(
        self, manifest: OperatorManifest, *, cluster_goes: bool, ground: str = "kubeconfig"
    ) -> list[Step]:
        """Returns the steps from KubeRay's manifests to the port forwards; the head has relay and workspace.

        They need steps named `images` and `ground`, and steps for kubectl and KubeRay's kustomization.

        Args:
            manifest: KubeRay's manifests, with the operator's image.
            cluster_goes: `down` removes Kubernetes itself, faster than it could undo one of these steps.
            ground: name of the step after which objects can be made in the namespace.
        """
        settings, made = self.settings, (self.instance, self.kube)
        index = (settings.package_index, trusted(settings), settings.package_proxy)
        packages = PackageIndex(*made, *index, cluster_goes, needs=(ground,))
        patience = max(settings.ray_patience, _PULLING) if self.images.are_pulled else settings.ray_patience
        size = (settings.ray_workers, patience)
        return [
            manifest,
            CustomResources(self.kube, manifest, cluster_goes, needs=(ground, manifest.name)),
            KubeRay(self.kube),
            WorkspacePassword(*made, cluster_goes, needs=(ground,)),
            packages,
            RayCluster(*made, self.images, *size, packages, self.masking, cluster_goes),
            KubeRayToken(*made),
            self.forwards,
        ]
