"""Target `cluster` as an attendee's place: a RayCluster beside the teacher's, in a namespace with limits."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

from bootstrap import instance
from bootstrap.errors import NotOurs
from bootstrap.instance import Instance, configured
from bootstrap.kube.api import Kube
from bootstrap.kube.sizes import NOTHING, Size, of_cluster
from bootstrap.settings import Settings
from bootstrap.sources.source import Images, Source
from bootstrap.steps.namespace import Namespace
from bootstrap.steps.place_bounds import PlaceBounds
from bootstrap.steps.ray_cluster import RayCluster
from bootstrap.targets.cluster_created import ClusterCreated
from bootstrap.targets.on_kubernetes import OnKubernetes
from rayside.connection.instance import Ports
from rayside.errors import InvalidArgument
from rayside.settings import LONGEST_NAME
from rayside.steps.state_folder import StateFolder
from rayside.steps.step import Step
from rayside.system.shell import Shell

# Steps of the teacher's cluster, whose operator serves all places.
_SHARED = ("operator-manifest", "custom-resources", "kuberay")
# A place has no ports on the teacher's machine, except after `up --name PLACE`.
_NO_PORTS = Ports(0, 0, 0, 0)


def instance_of(base: Instance, kube: Kube, settings: Settings, name: str) -> Instance:
    """Returns the instance of a place of that name beside a cluster, with its recorded ports.

    Raises InvalidArgument if its name is too long, NotOurs if another cluster has it.
    """
    full = f"{base.name}-{name}"
    if len(full) > LONGEST_NAME:
        raise InvalidArgument(
            f"the place {full} has a name of {len(full)} letters, and Kubernetes takes {LONGEST_NAME} here",
            hint=f"have a cluster of a shorter name than {base.name}, or shorter names of places",
        )
    location = base.location.parent / full
    recorded = instance.read(location)
    if recorded and recorded.workshop != base.name:
        raise NotOurs(
            f"there is a cluster {full} already, which is no place of {base.name}'s workshop",
            hint=f"./invokew down --name {full} removes it",
        )
    return Instance(
        *(full, "cluster", full, base.context, location),
        recorded.ports if recorded else _NO_PORTS,
        base.source,
        their_kubeconfig=str(kube.kubeconfig),
        user=configured(settings, "cluster").user,
        workshop=base.name,
    )


@dataclass(frozen=True)
class Place(ClusterCreated):
    """A place, with the images and the operator of `base`, the cluster beside which it is."""

    base: OnKubernetes | None = field(default=None, repr=False)
    # The example would occupy an attendee's worker.
    brings_example: bool = False

    @classmethod
    def beside(cls, base: OnKubernetes, settings: Settings, shell: Shell, name: str) -> Place:
        identity = instance_of(base.instance, base.kube, settings, name)
        settings = replace(settings, name=identity.name, namespace=identity.namespace)
        return cls(settings, shell, identity, f"a place beside {base.instance.name}", base=base)

    def steps(self) -> list[Step]:
        return [
            StateFolder(self.instance, needs=()),
            Namespace(self.instance, self.kube, needs=("state-folder",), kinds=lambda: self._base.kinds),
            self.bounds,
            # Login of its pods to the images' registry.
            *([self.pull_login(self.origin.registry, needs="namespace")] if self.images.pull_secret else []),
            *self._stack,
        ]

    @property
    def hosted_steps(self) -> list[Step]:
        """Returns the steps, without the port forwards unless `up --name PLACE` has set its ports."""
        forwards = [self.forwards.name] if not any(vars(self.instance.ports).values()) else []
        return [each for each in self.steps() if each.name not in forwards]

    @property
    def address(self) -> str:
        """Returns the workspace's URL for pods of other namespaces."""
        return self.bounds.workspace

    @cached_property
    def kube(self) -> Kube:
        return self._base.kube.within(self.instance.namespace)

    @cached_property
    def origin(self) -> Source:
        return self._base.origin

    @property
    def images(self) -> Images:
        images = self._base.images
        return replace(images, pull_secret=self.registry_secret) if images.pull_secret else images

    @property
    def bounds(self) -> PlaceBounds:
        base = self._base
        networks = tuple(filter(None, map(str.strip, self.settings.workshop_reach.split(","))))
        return PlaceBounds(
            *(self.instance, self.kube, self.size, base.instance, base.operator_namespace, networks)
        )

    @cached_property
    def _stack(self) -> list[Step]:
        steps = self.stack(self._manifest, cluster_goes=False, ground="place-bounds")
        return [step for step in steps if step.name not in _SHARED]

    @cached_property
    def size(self) -> Size:
        return sum(self.pods, NOTHING)

    @property
    def pods(self) -> list[Size]:
        return of_cluster(self.ray_cluster.manifest()["spec"])

    @property
    def ray_cluster(self) -> RayCluster:
        (cluster,) = [step for step in self._stack if isinstance(step, RayCluster)]
        return cluster

    @property
    def _base(self) -> OnKubernetes:
        assert self.base is not None
        return self.base
