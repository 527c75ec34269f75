"""Workshop: the places beside one cluster, and the front door through which attendees reach them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from bootstrap import network_addresses
from bootstrap.delivery import front_door
from bootstrap.delivery.door_secrets import Claim, Entry, Listed, new_key
from bootstrap.delivery.front_door import PORT, TEACHER_PORT, FrontDoor
from bootstrap.delivery.ingress import Ingress
from bootstrap.errors import NoRoom, NotOurs, OperatorNotRunning
from bootstrap.instance import WORKSHOP, Instance, all_recorded
from bootstrap.kube import operator, rights, trouble
from bootstrap.kube.api import CORE
from bootstrap.kube.sizes import NOTHING, Size, fit, of_nodes, placed
from bootstrap.settings import ROOT, Settings
from bootstrap.steps.forwards import Forwards
from bootstrap.steps.place_bounds import DOOR
from bootstrap.steps.ray_cluster import WorkspacePassword, paused
from bootstrap.targets.kind import Kind
from bootstrap.targets.on_kubernetes import OnKubernetes
from bootstrap.targets.place import Place
from bootstrap.workshop import estimate
from bootstrap.workshop.attendees import PlaceName
from rayside.errors import MissingProgram, NotRunning
from rayside.plain import counted
from rayside.reach.supervisor import Forward
from rayside.steps.step import Step
from rayside.system.shell import Shell

# Places that are started in parallel: each takes requests from us, and Kubernetes starts its pods.
AT_ONCE = 8
# Places that are removed in parallel: we only wait while Kubernetes ends their pods and empties their
# namespaces, ten at a time by itself (--concurrent-namespace-syncs of kube-controller-manager).
REMOVED_AT_ONCE = 32
_RAYCLUSTERS = "/apis/ray.io/v1/rayclusters"
_TITLE = "Ray workshop"


@dataclass(frozen=True)
class Row:
    """A place in the teacher's table.

    Attributes:
        state: missing, starting, ready or paused; `detail` says what it waits for.
        claim: its attendee's claim; None if unclaimed.
    """

    name: str
    namespace: str
    url: str
    state: str
    detail: str = ""
    claim: Claim | None = None

    def document(self) -> dict[str, Any]:
        return {"name": self.name, "namespace": self.namespace, "url": self.url, "state": self.state}


@dataclass(frozen=True)
class Workshop:
    """The workshop beside `base`, whose operator and images all places share."""

    base: OnKubernetes
    settings: Settings
    shell: Shell

    def place(self, name: str) -> Place:
        return Place.beside(self.base, self.settings, self.shell, name)

    def places(self) -> dict[str, Place]:
        return {name: self.place(name) for name in self.recorded()}

    def recorded(self) -> list[str]:
        return sorted(each.name.removeprefix(f"{self.base.instance.name}-") for each in self._instances())

    @property
    def is_gone(self) -> bool:
        """Returns whether the kind cluster, with all places, was removed without us."""
        return isinstance(self.base, Kind) and not self.base.present()

    def require(self) -> None:
        if not self.recorded():
            raise NotRunning(
                f"there is no workshop beside the cluster {self.base.instance.name}",
                hint="./invokew workshop --places 3 makes one of three places",
            )

    @property
    def url(self) -> str:
        """Returns the door's URL for attendees: the recorded one, else the settings'."""
        told = self.door.secrets.told()
        return told.url if told else self._url

    @property
    def _url(self) -> str:
        """Returns the door's URL in the settings."""
        return self._ingress.url if self._ingress else self._forward.url

    @property
    def _ingress(self) -> Ingress | None:
        host, settings = self.settings.workshop_host, self.settings
        return Ingress(host, settings.workshop_ingress_class, settings.workshop_tls_secret) if host else None

    @property
    def _forward(self) -> Forward:
        port, address = self.settings.workshop_port, self.settings.workshop_address
        return Forward("workshop", port, PORT, speaks="https", address=address)

    @property
    def _teachers_forward(self) -> Forward:
        port, address = self.settings.teacher_port, self.settings.teacher_address
        return Forward("teacher", port, TEACHER_PORT, speaks="https", address=address)

    @property
    def home(self) -> str:
        # Without an own .git folder, git would answer for a clone around this folder.
        if self.settings.workshop_home or not (ROOT / ".git").exists():
            return self.settings.workshop_home
        try:
            asked = self.shell.run(["git", "-C", ROOT, "remote", "get-url", "origin"], check=False)
        except MissingProgram:
            return ""
        return network_addresses.public_clone(asked.out.strip()) if asked.code == 0 else ""

    def _instances(self) -> list[Instance]:
        folder = self.base.instance.location.parent
        return [each for each in all_recorded(folder) if each.workshop == self.base.instance.name]

    # --- the door --------------------------------------------------------------------------

    @cached_property
    def door(self) -> FrontDoor:
        """Returns the door without a list of places, to inspect an existing one."""
        program, images = self.base.origin.resolve("door"), self.base.images
        return FrontDoor(
            # A program that is built here has no digest, but a folder for each version.
            *(self.base.instance, self.base.kube, images, program.path),
            program.digest or program.path.parent.name,
            ingress=self._ingress,
            needs=(self.base.origin.step_of("door"),),
        )

    def door_to(self, places: Mapping[PlaceName, Place]) -> FrontDoor:
        """Returns the door with these places, which are ready, and its listed places that still exist."""

        def entry(item: tuple[PlaceName, Place]) -> Entry:
            name, place = item
            password = WorkspacePassword(place.instance, place.kube).password() or ""
            return Entry(name.name, name.attendee, place.address, password)

        with ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
            new = {entry.name: entry for entry in pool.map(entry, places.items())}
        # Its keys stay, so that links stay valid.
        told = self.door.secrets.told() or Listed(_TITLE, new_key(), new_key(), "", "")
        there = {*self.recorded()}
        kept = [new.pop(each.name, each) for each in told.places if each.name in there]
        urls = {"url": self._url, "teacher_url": self._teachers_forward.url}
        # An earlier home URL stays if the command that adds places has none.
        home = self.settings.workshop_home or told.home or self.home
        return self.door.telling(replace(told, **urls, home=home, places=(*kept, *new.values())))

    def door_steps(self, door: FrontDoor) -> list[Step]:
        # With an Ingress, attendees need no port forward of this machine.
        ways = (self._teachers_forward,) if self._ingress else (self._forward, self._teachers_forward)
        forwards = Forwards(
            *(
                self.shell,
                self.base.kube,
                self.base.instance.folder / "door",
                ways,
                door.selector,
                self.base.kubectl,
            ),
            name="door-forward",
            title="ways to the front door",
            needs=(door.name,),
        )
        return [*self.base.origin.steps_for("door"), door, forwards]

    # --- existing places -------------------------------------------------------------------

    def clusters(self) -> list[dict[str, Any]]:
        """Returns the RayClusters of recorded places: the label alone is no proof, as anybody may set it."""
        ours = {each.namespace for each in self._instances()}
        found = self.base.kube.items(_RAYCLUSTERS, f"{WORKSHOP}={self.base.instance.name}")
        return [each for each in found if each["metadata"]["namespace"] in ours]

    def rows(self) -> list[Row]:
        """Returns the rows of all places, with four requests for any number of places."""
        selector = f"{WORKSHOP}={self.base.instance.name}"
        kube = self.base.kube
        clusters = {each["metadata"]["namespace"]: each for each in self.clusters()}
        pods: dict[str, list[dict[str, Any]]] = {}
        for pod in kube.items(f"{CORE}/pods", selector):
            pods.setdefault(pod["metadata"]["namespace"], []).append(pod)
        claims, url = self.door.secrets.claims(), self.url
        rows = []
        for name in self.recorded():
            namespace = f"{self.base.instance.name}-{name}"
            state, detail = _state(clusters.get(namespace), pods.get(namespace, []))
            rows.append(Row(name, namespace, url, state, detail, claims.get(name)))
        return rows

    # --- checks before creation ------------------------------------------------------------

    def require_ground(self, places: Sequence[Place]) -> None:
        """Raises Forbidden, OperatorNotRunning, and NotOurs if a namespace is foreign.

        With an Ingress to the door, it also raises NoIngressClass.
        """
        # First, as without these permissions each of the other checks would fail with Forbidden.
        rights.require_workshop(self.base.kube)
        if self._ingress:
            self._ingress.require(self.base.kube)
        kube = places[0].kube
        present = operator.installed(kube)
        if present is None or not present.watches_us:
            raise OperatorNotRunning(
                f"no KubeRay operator of that Kubernetes looks after the namespace {kube.namespace}, as "
                "places need",
                hint="./invokew up --target kind has one for all, and so does KubeRay's Helm chart",
            )
        begun = {each.namespace for each in self._instances()}
        others = {each["metadata"]["name"] for each in kube.items(f"{CORE}/namespaces")} - begun
        if taken := sorted(others & {place.instance.namespace for place in places}):
            raise NotOurs(
                f"there is a namespace {taken[0]}, which this workshop has not made: another teacher's?",
                hint="have a cluster of another name for the workshop: ./invokew up --name NAME",
            )

    def require_room(self, places: Sequence[Place]) -> str:
        """Returns a text with the places' size. Raises NoRoom if the new ones don't fit."""
        clusters = self.clusters()
        there = {each["metadata"]["namespace"] for each in clusters}
        new = [place for place in places if place.instance.namespace not in there]
        size = places[0].size
        every = " each" if len(places) > 1 else ""
        in_pods = "one pod" if size.pods == 1 else f"{size.pods} pods"
        told = f"{counted(len(places), 'place')} of {size}{every}, in {in_pods}"
        nodes, pods = self.base.kube.items(f"{CORE}/nodes"), self.base.kube.items(f"{CORE}/pods")
        on_nodes = placed(nodes, pods)
        ours = [
            pod["metadata"]
            for pod in on_nodes
            if pod["metadata"].get("namespace") == self.base.kube.namespace
        ]
        has_door = any((each.get("labels") or {}).get(DOOR) == self.base.instance.name for each in ours)
        # The door starts after the places, and needs room, too.
        owed = [*_to_come(clusters, on_nodes), *([] if has_door else [front_door.size()])]
        left = of_nodes(nodes, pods)
        largest = max(of_nodes(nodes, ()).values(), key=lambda size: (size.memory, size.cpu), default=NOTHING)
        fits = fit(places[0].pods, len(new), left.values(), largest, owed)
        if fits.count < len(new):
            do = "do" if len(new) > 1 else "does"
            asked = f"{counted(len(new), 'place')} of {size} {do} not fit"
            short = f"{asked}: the cluster has room for {fits.count}"
            if fits.more is None:
                hint = f"no node, of {largest}, takes the largest pod of a place: add larger nodes"
                raise NoRoom(short, hint=hint)
            fewer = f", or make {counted(fits.count, 'place')}" if fits.count else ""
            nodes_more = f"{counted(fits.more, 'node')} of {largest}"
            raise NoRoom(short, hint=f"add {nodes_more}{fewer}")
        if len(new) < len(places):
            told = f"{told}; {len(new)} {'is' if len(new) == 1 else 'are'} new"
        takes = estimate.before(size, len(new), AT_ONCE, estimate.prices(self.settings))
        return f"{told}; {takes}" if takes else told

    def used(self) -> estimate.Used:
        return estimate.used(self.clusters(), self.base.kube.now(), estimate.prices(self.settings))


def _to_come(clusters: Iterable[Mapping[str, Any]], on_nodes: Iterable[Mapping[str, Any]]) -> Iterator[Size]:
    """Yields the sizes of missing pods of existing RayClusters of places.

    They are paused, wait for room, or their node died.
    """
    there = Counter(map(_kind_of, on_nodes))
    for cluster in clusters:
        namespace, name = cluster["metadata"]["namespace"], cluster["metadata"]["name"]
        head, *workers = estimate.pods_at_work(cluster)
        if not there[namespace, name, "head"]:
            yield head
        yield from workers[there[namespace, name, "worker"] :]


def _kind_of(pod: Mapping[str, Any]) -> tuple[str, str, str]:
    """Returns a pod's namespace, its RayCluster, and `head` or `worker`; missing ones are empty."""
    metadata = pod["metadata"]
    labels = metadata.get("labels") or {}
    return (
        metadata.get("namespace", ""),
        labels.get("ray.io/cluster", ""),
        labels.get("ray.io/node-type", ""),
    )


def _state(cluster: Mapping[str, Any] | None, pods: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    if cluster is None:
        return "missing", "there is no RayCluster"
    if paused(cluster):
        return "paused", "; ".join(["its workers come back with --resume", *trouble.waits(pods)])
    meant = 1 + sum(int(group["replicas"]) for group in cluster["spec"]["workerGroupSpecs"])
    if len(pods) < meant:
        return "starting", f"{len(pods)} of {meant} pods"
    waits = trouble.waits(pods)
    return ("starting", "; ".join(waits)) if waits else ("ready", "")
