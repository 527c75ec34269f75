"""Target `kind`: a kind cluster with KubeRay, a standing RayCluster and the browser workspace."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from bootstrap.codespaces import larger_machine
from bootstrap.delivery.baked import NodeImage, baked
from bootstrap.delivery.loaded import NodeImages, stable_names
from bootstrap.instance import Instance
from bootstrap.kube.api import Kube
from bootstrap.kube.rayjob.submission import KubectlRay
from bootstrap.settings import Settings
from bootstrap.shell import Shell
from bootstrap.sources.extensions import Extensions, variant
from bootstrap.sources.packages import packages
from bootstrap.sources.releases import Releases
from bootstrap.sources.source import Source
from bootstrap.sources.upstream import upstream
from bootstrap.step import Step
from bootstrap.steps import kind_cluster
from bootstrap.steps.cluster_file import ClusterFile
from bootstrap.steps.debian_program import debootstrap
from bootstrap.steps.engine import DockerProgram, Engine
from bootstrap.steps.forwards import Forwards
from bootstrap.steps.inotify import Inotify
from bootstrap.steps.kind_cluster import KindCluster
from bootstrap.steps.kubeconfig import Kubeconfig, UserContext
from bootstrap.steps.kuberay import OperatorManifest
from bootstrap.steps.machine import Disk, Memory, Ports, Python, System
from bootstrap.steps.ray_environment import RayEnvironment
from bootstrap.steps.state_folder import StateFolder
from bootstrap.targets import kuberay
from bootstrap.targets.debugging import masking
from bootstrap.targets.forwarded import ForwardedAccess

# It is the engine's own default; if the engine is another machine's, the nearest folder of ours counts.
_ENGINES_FOLDER = Path("/var/lib/docker")
# A kind cluster is made of these; `kubernetes` is only where the node lacks Kubernetes' own images.
_ARTIFACTS = (
    *("kind", "kubectl", "kubectl-ray", "kuberay"),
    *("ray", "workspace", "operator", "node", "kubernetes"),
)


@dataclass(frozen=True)
class Kind:
    """One node in a container, and all of Ray in it."""

    settings: Settings
    shell: Shell
    instance: Instance
    # It says why it is this target, for people.
    reason: str
    # Whether a gallery may be asked for extensions, and whether that is for a cluster to come.
    asks: bool = False
    prepares: bool = False
    brings_example: bool = True

    def __post_init__(self) -> None:
        """Refuses a cluster whose folder may be another user's. Raises UnsafeFolder."""
        _ = self.instance.folder

    def steps(self) -> list[Step]:
        return [
            Engine(self.shell, installs=False),
            *self._room,
            StateFolder(self.instance),
            *self._made_available,
            self.environment,
            self.cluster,
            Kubeconfig(self.shell, self.cluster, self.kube),
            self.user_context,
            self._node_images,
            self.cluster_file,
            *self._kuberay,
        ]

    def cacheable(self, *, engine: bool) -> list[Step]:
        # What needs no engine is programs alone, which take less memory than images.
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
        # The cluster's disk may run full while it is up.
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
            *([debootstrap(self.shell)] if self.instance.source == "packages" else []),
        ]

    def present(self) -> bool:
        """Returns whether the cluster exists, in whatever state; then it holds its ports, and its memory."""
        return kind_cluster.exists(self.instance.name)

    @cached_property
    def access(self) -> ForwardedAccess:
        kubectl_ray = KubectlRay(
            self.shell, self.kube, self.origin.resolve("kubectl-ray").path, self.environment.programs
        )
        return ForwardedAccess(self.instance, self.kube, self.forwards, kubectl_ray, self.user_context)

    @property
    def kubernetes(self) -> ForwardedAccess:
        return self.access

    # --- the steps that lead to others ---------------------------------------------------

    @cached_property
    def origin(self) -> Source:
        """Returns the source of the images and tools."""
        if self.instance.source == "upstream":
            return upstream(Releases(self.settings), self.extensions, self.shell)
        return packages(self.settings, self.extensions, self.shell)

    @cached_property
    def kubectl(self) -> Path:
        return self.origin.resolve("kubectl").path

    @cached_property
    def _baked(self) -> NodeImage | None:
        aliases, names = stable_names(self.origin.images), ("ray", "workspace", "operator")
        return baked(self.shell, self.settings.cache_folder, self.origin, names, aliases, self.present)

    @property
    def _made_available(self) -> list[Step]:
        steps: list[Step] = [*self.origin.steps_for(*filter(self.origin.gives, _ARTIFACTS))]
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
    def extensions(self) -> Extensions:
        record = None if self.prepares else self.instance.folder / "extensions.json"
        return Extensions(self.settings, variant(self.settings, ask=self.asks, record=record), record)

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

    @cached_property
    def _operator_manifest(self) -> OperatorManifest:
        images, kuberay = self.origin.images, self.origin.resolve("kuberay").path
        return OperatorManifest(
            self.shell, self.settings.cache_folder, self.kubectl, kuberay, images.operator
        )

    @property
    def _node_images(self) -> NodeImages:
        images = self.origin.images
        references = (images.ray, images.workspace, images.operator)
        return NodeImages(self.shell, self.instance.name, self.cluster.node, references, stable_names(images))

    @property
    def _kuberay(self) -> list[Step]:
        return kuberay.stack(
            *(self.instance, self.kube, self.shell, self.origin.images, self._operator_manifest),
            workers=self.settings.ray_workers,
            patience=self.settings.ray_patience,
            masking=masking(self.settings),
            cluster_goes=True,
        )

    @property
    def _room(self) -> list[Step]:
        return [Python(), self.memory, self.free_ports, self.disk]

    # These two come after the engine, which knows whether the cluster itself has the memory and the ports.

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
    def ports(self) -> dict[str, int]:
        """Returns the ports that have to be free for the cluster, by their settings."""
        return {f"{port.name}_port": port.local for port in self.forwards.ports}

    @property
    def too_small(self) -> str:
        """Returns the advice for a codespace that is too small; empty anywhere else."""
        memory, disk = self.settings.min_memory_gib, self.settings.min_disk_gib
        local = f"./invokew up --target local, which needs {memory:g} GiB of memory and {disk:g} GiB of disk"
        return f"{larger}, or {local}" if (larger := larger_machine()) else ""
