"""Target `cluster` with `--create`: KubeRay's stack in a namespace of a Kubernetes that others look after."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from bootstrap.delivery.theirs import Delivery, delivery
from bootstrap.kube.api import Kube
from bootstrap.kube.kubeconfig import server
from bootstrap.sources.source import Images
from bootstrap.step import Step
from bootstrap.steps.creation_preflight import CreationPreflight
from bootstrap.steps.engine import Engine
from bootstrap.steps.kuberay import OperatorManifest
from bootstrap.steps.machine import Disk, Ports, Python, System
from bootstrap.steps.namespace import Namespace
from bootstrap.steps.network_policies import NetworkPolicies
from bootstrap.steps.state_folder import StateFolder
from bootstrap.targets.on_kubernetes import OnKubernetes

_PROGRAMS = ("kubectl", "kubectl-ray", "kuberay")


@dataclass(frozen=True)
class ClusterCreated(OnKubernetes):
    """A RayCluster of ours in one namespace; the rest of that Kubernetes is used, and never changed."""

    def steps(self) -> list[Step]:
        return [
            *self._engine,
            Python(),
            self.free_ports,
            # What can't work leaves nothing behind.
            self.preflight,
            self.disk,
            StateFolder(self.instance, needs=("disk", "preflight")),
            *self._made_available,
            self.environment,
            Namespace(self.instance, self.kube),
            NetworkPolicies(self.instance, self.kube),
            self.delivery.step,
            self.cluster_file,
            *self.stack(self._manifest, cluster_goes=False, ground="network-policies"),
        ]

    def cacheable(self, *, engine: bool) -> list[Step]:
        disk = replace(self.disk, needs=("python",))
        return [*self._engine, Python(), disk, *self._made_available, self.environment, self._manifest]

    def machine(self) -> list[Step]:
        return [System(), Python(), self.disk, *self._engine, *self.free_ports.each(), self.environment]

    def present(self) -> bool:
        """Returns whether its forwards run; then it holds its ports."""
        return bool(self.forwards.leftovers())

    @cached_property
    def kube(self) -> Kube:
        return Kube(Path(self.instance.their_kubeconfig), self.instance.context, self.instance.namespace)

    @property
    def images(self) -> Images:
        return self.delivery.images

    @cached_property
    def delivery(self) -> Delivery:
        """Returns the way of the images to the nodes there."""
        address = server(self.kube.kubeconfig, self.kube.context)
        return delivery(self.settings.image_registry, self.shell, self.origin, address)

    @cached_property
    def preflight(self) -> CreationPreflight:
        return CreationPreflight(self.instance, self.kube, self.delivery.refusal)

    @property
    def _made_available(self) -> list[Step]:
        # The workspace's image is named by its extensions, whoever builds it.
        steps = self.origin.steps_for(*_PROGRAMS, *self.delivery.artifacts)
        return [*steps] if self.delivery.builds else [self.extensions, *steps]

    @property
    def _manifest(self) -> OperatorManifest:
        return self.operator_manifest(confined_to=self.instance.namespace)

    @property
    def _engine(self) -> list[Step]:
        return [Engine(self.shell, installs=False)] if self.delivery.builds else []

    @cached_property
    def free_ports(self) -> Ports:
        return Ports(self.ports, self.present)

    @cached_property
    def disk(self) -> Disk:
        # Images that are built here are those of the target kind.
        setting = "kind_min_disk_gib" if self.delivery.builds else "min_disk_gib"
        return Disk(self.settings, setting, self.present, needs=("python", "ports", "preflight"))
