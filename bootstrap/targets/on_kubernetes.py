"""Is what targets have in common that make a RayCluster, with the workspace and the relay beside its head."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from bootstrap.kube.api import Kube
from bootstrap.kube.rayjob.submission import KubectlRay
from bootstrap.sources.chosen import chosen
from bootstrap.sources.extensions import Extensions
from bootstrap.sources.source import Images, Source
from bootstrap.step import Step
from bootstrap.steps.cluster_file import ClusterFile
from bootstrap.steps.forwards import Forwards
from bootstrap.steps.kubeconfig import UserContext
from bootstrap.steps.kuberay import OperatorManifest
from bootstrap.steps.ray_environment import RayEnvironment
from bootstrap.targets import kuberay
from bootstrap.targets.chosen_target import ChosenTarget
from bootstrap.targets.debugging import masking
from bootstrap.targets.forwarded import ForwardedAccess


@dataclass(frozen=True)
class OnKubernetes(ChosenTarget, ABC):
    """Makes KubeRay's stack where `kube` leads, from the images and tools of a source."""

    brings_example: bool = True

    @cached_property
    @abstractmethod
    def kube(self) -> Kube:
        """Returns the Kubernetes API, in the namespace of the RayCluster."""

    @property
    @abstractmethod
    def images(self) -> Images:
        """Returns the images by the names by which pods have them."""

    @cached_property
    def access(self) -> ForwardedAccess:
        program = self.origin.resolve("kubectl-ray").path
        kubectl_ray = KubectlRay(self.shell, self.kube, program, self.environment.programs)
        return ForwardedAccess(self.instance, self.kube, self.forwards, kubectl_ray, self.user_context)

    @property
    def kubernetes(self) -> ForwardedAccess:
        return self.access

    # --- the steps that lead to others ---------------------------------------------------

    @cached_property
    def origin(self) -> Source:
        """Returns the source of the images and tools."""
        return chosen(self.instance.source, self.settings, self.extensions, self.shell)

    @cached_property
    def kubectl(self) -> Path:
        return self.origin.resolve("kubectl").path

    @cached_property
    def extensions(self) -> Extensions:
        return self.extensions_for()

    @cached_property
    def cluster_file(self) -> ClusterFile:
        """Returns the file for this machine's editors, which don't see the workers' files."""
        return ClusterFile(self.settings, self.instance, shared_files=False)

    @cached_property
    def user_context(self) -> UserContext:
        return UserContext(self.shell, self.kubectl, self.kube)

    @cached_property
    def environment(self) -> RayEnvironment:
        """Returns this machine's Ray environment: kubectl-ray runs its `ray`."""
        return RayEnvironment(self.shell, self.settings.cache_folder)

    @cached_property
    def forwards(self) -> Forwards:
        return kuberay.forwards(self.instance, self.kube, self.shell)

    @property
    def ports(self) -> dict[str, int]:
        """Returns the ports that have to be free for the cluster, by their settings."""
        return {f"{port.name}_port": port.local for port in self.forwards.ports}

    def operator_manifest(self, confined_to: str = "") -> OperatorManifest:
        """Returns KubeRay's manifests, as OperatorManifest has them."""
        kustomization = self.origin.resolve("kuberay").path
        folders = (self.settings.cache_folder, self.kubectl, kustomization)
        return OperatorManifest(self.shell, *folders, self.images.operator, confined_to)

    def stack(
        self, manifest: OperatorManifest, *, cluster_goes: bool, ground: str = "kubeconfig"
    ) -> list[Step]:
        """Returns the steps that `kuberay.stack` lists, as the settings have them."""
        return kuberay.stack(
            *(self.instance, self.kube, self.shell, self.images, manifest),
            workers=self.settings.ray_workers,
            patience=self.settings.ray_patience,
            masking=masking(self.settings),
            cluster_goes=cluster_goes,
            ground=ground,
        )
