"""Target `cluster` with `--create`: KubeRay's stack in a namespace of an existing Kubernetes cluster."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from bootstrap.delivery.theirs import Delivery, delivery
from bootstrap.kube.api import Kube
from bootstrap.settings import BUNDLED
from bootstrap.sources.source import Images
from bootstrap.steps.creation_preflight import CreationPreflight
from bootstrap.steps.engine import Engine
from bootstrap.steps.kuberay import OperatorManifest
from bootstrap.steps.machine_checks import Disk, Python, System
from bootstrap.steps.namespace import Namespace
from bootstrap.steps.network_policies import NetworkPolicies
from bootstrap.steps.pull_secret import PullSecret
from bootstrap.targets.on_kubernetes import OnKubernetes
from rayside.steps.state_folder import StateFolder
from rayside.steps.step import Step

# Only a bundle provides wheels.
_ARTIFACTS = ("wheels", "kubectl", "kubectl-ray", "kuberay")


@dataclass(frozen=True)
class ClusterCreated(OnKubernetes):
    """A RayCluster of ours in one namespace; the rest of that Kubernetes cluster is never changed."""

    nodes_pull: bool = True

    def steps(self) -> list[Step]:
        return [
            *self._engine,
            Python(),
            self.free_ports,
            # Before the record: a cluster that can't be created leaves no files.
            self.preflight,
            self.disk,
            StateFolder(self.instance, needs=self.before_the_record),
            *self._made_available,
            self.environment,
            Namespace(self.instance, self.kube),
            NetworkPolicies(self.instance, self.kube),
            self._login,
            self.delivery.step,
            self.cluster_file,
            *self.stack(self._manifest, cluster_goes=False, ground=PullSecret.name),
        ]

    def cacheable(self, *, engine: bool) -> list[Step]:
        disk = replace(self.disk, needs=("python",))
        return [*self._engine, Python(), disk, *self._made_available, self.environment, self._manifest]

    def machine(self) -> list[Step]:
        return [System(), Python(), self.disk, *self._engine, *self.free_ports.each(), self.environment]

    def present(self) -> bool:
        return bool(self.forwards.leftovers())

    @cached_property
    def kube(self) -> Kube:
        return Kube(Path(self.instance.their_kubeconfig), self.instance.context, self.instance.namespace)

    @property
    def images(self) -> Images:
        return self.delivery.images

    @cached_property
    def delivery(self) -> Delivery:
        """Returns the delivery of the images to that cluster's nodes."""
        return delivery(
            *(self.settings, self.shell, self.origin, self.kube),
            ground=PullSecret.name,
            # A node with its own login needs no Secret.
            pull_secret=self.registry_secret if self.settings.login_in_pods else "",
        )

    @property
    def _login(self) -> Step:
        """Returns the step for pods' login to the mirror; without one, it removes an earlier login."""
        registry = self.origin.registry if self.images.pull_secret else ""
        return self.pull_login(registry, needs="network-policies")

    @cached_property
    def preflight(self) -> CreationPreflight:
        return CreationPreflight(self.instance, self.kube, self.delivery.refusal)

    @property
    def _made_available(self) -> list[Step]:
        artifacts = filter(self.origin.gives, (*_ARTIFACTS, *self.delivery.artifacts))
        steps = self.origin.steps_for(*artifacts)
        # The workspace image's tag depends on its extensions, even if built elsewhere; not in a bundle.
        is_named = self.delivery.artifacts or self.instance.source in BUNDLED
        return [*steps] if is_named else [self.extensions, *steps]

    @property
    def _manifest(self) -> OperatorManifest:
        return self.operator_manifest(confined_to=self.instance.namespace)

    @property
    def _engine(self) -> list[Step]:
        return [Engine(self.shell, installs=False)] if self.delivery.takes_engine else []

    @property
    def before_the_record(self) -> tuple[str, ...]:
        """Returns the steps that may refuse the cluster, and then leave no folder."""
        return ("disk", "preflight", *self.bundle_steps)

    @cached_property
    def disk(self) -> Disk:
        # Images for an engine on this machine need as much disk as the target kind.
        setting = "kind_min_disk_gib" if self.delivery.takes_engine else "min_disk_gib"
        return Disk(self.settings, setting, self.present, needs=("python", "ports", "preflight"))
