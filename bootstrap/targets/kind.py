"""Target `kind`: a kind cluster with KubeRay, a standing RayCluster and the browser workspace."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from bootstrap.codespaces import larger_machine
from bootstrap.delivery.baked import NodeImage, baked
from bootstrap.delivery.loaded import NodeImages, stable_names
from bootstrap.kube.api import Kube
from bootstrap.network_addresses import registry_mirrors
from bootstrap.sources.source import Images
from bootstrap.steps import kind_cluster
from bootstrap.steps.engine import DockerProgram, Engine
from bootstrap.steps.kind_cluster import KindCluster
from bootstrap.steps.kubectl_contexts import Kubeconfig
from bootstrap.steps.kuberay import OperatorManifest
from bootstrap.steps.machine_checks import Disk, Memory, Ports, Python, System
from bootstrap.targets.on_kubernetes import OnKubernetes
from rayside.errors import InvalidSetting
from rayside.steps.state_folder import StateFolder
from rayside.steps.step import Step

if TYPE_CHECKING:
    from bootstrap.steps.registry_in_nodes import StandIn

# The engine's default folder; for an engine on another machine, the nearest existing folder here counts.
_ENGINES_FOLDER = Path("/var/lib/docker")
# Artifacts of a kind cluster; `kubernetes` only if the node lacks Kubernetes' own images.
_ARTIFACTS = ("wheels", "kind", "kubectl", "kubectl-ray", "kuberay", "node", "kubernetes")
_IMAGES = ("ray", "workspace", "operator")


@dataclass(frozen=True)
class Kind(OnKubernetes):
    """A kind cluster with one node, in a container, with all of Ray in it."""

    def steps(self) -> list[Step]:
        return [
            Engine(self.shell, installs=False),
            *self._room,
            StateFolder(self.instance, needs=self.before_the_record),
            *self._made_available,
            self.environment,
            self.cluster,
            Kubeconfig(self.shell, self.cluster, self.kube),
            self.user_context,
            self._node_images,
            *self.registries,
            self.cluster_file,
            *self.stack(self._operator_manifest, cluster_goes=True),
        ]

    def cacheable(self, *, engine: bool) -> list[Step]:
        # Without an engine there are only programs, which need less memory than images.
        setting = self.memory.setting if engine else "min_memory_gib"
        memory = replace(self.memory, setting=setting, needs=())
        return [
            Engine(self.shell, installs=False),
            *(Python(), memory, self.disk if engine else replace(self.disk, folders=())),
            *self._made_available,
            self.environment,
            self._operator_manifest,
        ]

    def machine(self) -> list[Step]:
        from bootstrap.steps.debian_program import program
        from bootstrap.steps.inotify import Inotify

        # The cluster's disk may fill up while it runs.
        return [
            System(),
            Python(),
            self.memory,
            replace(self.disk, present=lambda: False),
            Engine(self.shell),
            DockerProgram(),
            Inotify(),
            *self.free_ports.each(),
            self.environment,
            *([program(self.shell, "debootstrap")] if self.instance.source == "packages" else []),
        ]

    def present(self) -> bool:
        return kind_cluster.exists(self.instance.name)

    @property
    def images(self) -> Images:
        return self.origin.images

    # --- steps that other steps are built from -------------------------------------------

    @cached_property
    def _baked(self) -> NodeImage | None:
        aliases = stable_names(self.origin.images)
        return baked(self.shell, self.settings.cache_folder, self.origin, _IMAGES, aliases, self.present)

    @property
    def _made_available(self) -> list[Step]:
        # With archives, the node gets the images without the engine.
        names = _ARTIFACTS if self.origin.archives else (*_ARTIFACTS, *_IMAGES)
        steps: list[Step] = [*self.origin.steps_for(*filter(self.origin.gives, names))]
        return [*steps, self._baked] if self._baked else steps

    @cached_property
    def kube(self) -> Kube:
        return Kube(self.instance.kubeconfig, self.instance.context, self.instance.namespace)

    @cached_property
    def cluster(self) -> KindCluster:
        node = self._baked.reference if self._baked else self.origin.resolve("node").reference
        kind = self.origin.resolve("kind").path
        return KindCluster(self.shell, self.instance, kind, node, self.instance.source)

    @cached_property
    def _operator_manifest(self) -> OperatorManifest:
        return self.operator_manifest()

    @property
    def _node_images(self) -> NodeImages:
        images = self.origin.images
        references = (images.ray, images.workspace, images.operator)
        nodes = (self.cluster.node,)
        aliases, archives = stable_names(images), self.origin.archives
        return NodeImages(self.shell, self.instance.name, nodes, references, aliases, archives=archives)

    @property
    def registries(self) -> list[Step]:
        """Returns the steps that let users' pods pull from the mirror, and by names of public registries."""
        if not (self.settings.registry_mirrors or self.instance.source == "mirror"):
            return []
        from bootstrap.registry.address import ca_file, parse
        from bootstrap.steps.registry_in_nodes import NodeRegistries, Trusted

        known: list[Trusted | StandIn] = [*self._stand_ins]
        stood_for = {each.host for each in known}
        steps: list[Step] = []
        if self.instance.source == "mirror" and self.settings.mirror:
            address = parse(self.settings.mirror)
            # Nodes can't reach this machine's loopback address.
            if not address.is_loopback:
                trusted = ca_file(self.settings, address)
                # A mirror of this registry itself is asked instead.
                known += [Trusted(address, trusted)] if trusted and address.host not in stood_for else []
                steps.append(self.pull_login(self.settings.mirror, needs="kubeconfig", cluster_goes=True))
        return [NodeRegistries(self.instance.name, known), *steps] if known else steps

    @property
    def _stand_ins(self) -> list[StandIn]:
        """Raises InvalidSetting if nodes can't reach one of registry_mirrors."""
        from bootstrap.registry.address import ca_file, parse
        from bootstrap.registry.login import login_for
        from bootstrap.steps.registry_in_nodes import StandIn

        stand_ins = []
        for host, mirror in registry_mirrors(self.settings.registry_mirrors).items():
            address = parse(mirror)
            if address.is_loopback:
                raise InvalidSetting(
                    f"registry_mirrors has {mirror}, and nodes can't reach this machine's loopback",
                    hint="name an address of this machine that other machines reach, too",
                )
            login = partial(login_for, address.host) if self.settings.login_in_pods else lambda: None
            stand_ins.append(StandIn(host, address, ca_file(self.settings, address), login))
        return stand_ins

    @property
    def before_the_record(self) -> tuple[str, ...]:
        return ("disk", *self.bundle_steps)

    @property
    def _room(self) -> list[Step]:
        return [Python(), self.memory, self.free_ports, self.disk]

    # These two come after the engine, which knows whether the cluster itself uses the memory and the ports.

    @cached_property
    def memory(self) -> Memory:
        setting, needs = "kind_min_memory_gib", ("engine",)
        return Memory(self.settings, setting, self.present, too_small=self.too_small, needs=needs)

    @cached_property
    def free_ports(self) -> Ports:
        return Ports(self.ports, self.present, needs=("engine",))

    @cached_property
    def disk(self) -> Disk:
        setting, folders = "kind_min_disk_gib", (_ENGINES_FOLDER,)
        return Disk(self.settings, setting, self.present, folders, too_small=self.too_small)

    @property
    def too_small(self) -> str:
        """Returns the hint for a codespace that is too small; empty anywhere else."""
        memory, disk = self.settings.min_memory_gib, self.settings.min_disk_gib
        local = f"./invokew up --target local, which needs {memory:g} GiB of memory and {disk:g} GiB of disk"
        return f"{larger}, or {local}" if (larger := larger_machine()) else ""
