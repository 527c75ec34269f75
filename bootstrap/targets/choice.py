"""Chooses the target: that of the cluster that is there, else the one that the settings ask for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from pathlib import Path

from bootstrap import docker_engine, instance, machine
from bootstrap.errors import (
    EngineNotPermitted,
    EngineNotRunning,
    EngineNotSupported,
    InvalidSetting,
    NotRunning,
    OtherTarget,
)
from bootstrap.instance import Instance, Ports, configured
from bootstrap.kube import heads
from bootstrap.kube.api import Kube
from bootstrap.kube.kubeconfig import file_with
from bootstrap.own_folder import require_own
from bootstrap.settings import BUNDLED, DEFAULT_NAME, POD, TARGETS, THEIRS, Settings
from bootstrap.shell import Shell
from bootstrap.sources import bundle_origin
from bootstrap.sources.bundle_origin import RECORD
from bootstrap.sources.reachable import unreachable
from bootstrap.step import Report, Step, dependants
from bootstrap.steps import kind_cluster, workspace_pod
from bootstrap.targets.cluster import Cluster
from bootstrap.targets.cluster_by_head import ClusterByContext, ClusterBySsh
from bootstrap.targets.cluster_created import ClusterCreated
from bootstrap.targets.cluster_with_workspace import ClusterWithWorkspace
from bootstrap.targets.kind import Kind
from bootstrap.targets.local import Local
from bootstrap.targets.on_kubernetes import OnKubernetes
from bootstrap.targets.place import Place
from bootstrap.targets.pod import Pod
from bootstrap.targets.target import Target


def _cluster(settings: Settings, shell: Shell, identity: Instance, reason: str, **purpose: bool) -> Target:
    target: Callable[..., Target] = Cluster
    if identity.created:
        target = ClusterCreated
    elif identity.workspace_pod:
        target = ClusterWithWorkspace
    elif identity.ssh or identity.context:
        target = ClusterBySsh if identity.ssh else ClusterByContext
    return target(settings, shell, identity, reason, **purpose)


_REASONS = {
    "address": "its address was given",
    "ssh": "its host was given",
    "context": "its context was given",
}
_TARGETS: dict[str, Callable[..., Target]] = {"local": Local, "kind": Kind, "cluster": _cluster, POD: Pod}


def choose(settings: Settings, shell: Shell, *, asks: bool = False, prepares: bool = False) -> Target:
    """Returns the target of the cluster of that name, or what `up` would make, with the reason for people.

    A cluster that was made and not removed keeps its target. For a new one `auto` is kind where a Docker
    engine answers, else local. `asks` says whether a gallery may be asked for what a workspace is made with,
    and `prepares` whether that is for a cluster to come. Raises OtherTarget, UnsafeFolder,
    EngineNotSupported.
    """
    require_own(settings.state_folder)
    recorded = instance.read(settings.state_folder / settings.name)
    if recorded is None:
        return _new(settings, shell, asks=asks, prepares=prepares)
    if recorded.target == POD and settings.target != "auto":
        raise _only_this(settings)
    removal = f"./invokew down{recorded.verb_options} removes it"
    if settings.target not in ("auto", recorded.target):
        raise OtherTarget(
            f"the cluster {settings.name} is on the target {recorded.target}, not on {settings.target}",
            hint=f"{removal}; or --name gives a second one",
        )
    if settings.namespace not in (Settings().namespace, recorded.namespace):
        raise InvalidSetting(
            f"namespace is {settings.namespace}, and the cluster {settings.name} is in {recorded.namespace}",
            hint=f"{removal}, and ./invokew up makes it there; or take the setting back",
        )
    if settings.create and not recorded.created:
        does = f"looks after {recorded.place}" if recorded.target == "cluster" else f"is on {recorded.target}"
        raise InvalidSetting(
            f"create makes a Ray cluster, and the cluster {settings.name} {does}",
            hint=f"{removal}; or --name gives a second one",
        )
    if settings.workspace_pod and not recorded.workspace_pod:
        raise InvalidSetting(
            f"workspace makes a pod, and the cluster {settings.name} was begun without one",
            hint=f"{removal}; or --name gives a second one",
        )
    for key in THEIRS:
        if getattr(settings, key) not in ("", getattr(recorded, key)):
            is_there = recorded.address or recorded.created
            place = f"the Ray at {recorded.place}" if is_there else f"on the target {recorded.target}"
            raise InvalidSetting(
                f"{key} is {getattr(settings, key)}, and the cluster {settings.name} is {place}",
                hint=f"{removal}; or --name gives a second one",
            )
    if settings.user not in ("", recorded.user) and recorded.user:
        raise InvalidSetting(
            f"user is {settings.user}, and the cluster {settings.name} is {recorded.user}'s",
            hint=f"{removal}; or --name gives a second one",
        )
    reason = "as asked" if settings.target != "auto" else "auto: it was made so"
    return _recorded(settings, shell, recorded, reason, asks=asks, prepares=prepares)


def for_machine(settings: Settings, shell: Shell, *, asks: bool = False, prepares: bool = False) -> Target:
    """Returns the target as `choose` does, or the one that is asked for, where the cluster is on another.

    What a machine lacks, and what can be cached, has nothing to do with the cluster that is there.
    """
    try:
        return choose(settings, shell, asks=asks, prepares=prepares)
    except OtherTarget:
        return _new(settings, shell, asks=asks, prepares=prepares)


def existing(settings: Settings, shell: Shell) -> Target:
    """Returns the target of a cluster that is there. Raises NotRunning, and what `choose` raises."""
    target = choose(settings, shell)
    if not exists(target):
        hint = f"./invokew up{target.instance.verb_options} makes it"
        names = ", ".join(other.name for other in instance.all_recorded(settings.state_folder))
        raise NotRunning(
            f"there is no cluster {settings.name}" if names else "no Ray cluster is up",
            hint=f"{hint}; there are {names}" if names else "./invokew up starts one",
        )
    return target


def of_name(settings: Settings, shell: Shell, name: str, **purpose: bool) -> Target:
    """Returns the target of another cluster than the settings are for, wherever it is. Raises as `choose`."""
    usual = Settings()
    # Its record says where it is: what the settings name is the other's.
    named = [key for key in vars(usual) if key.endswith("_port") or key in (*THEIRS, "namespace", "create")]
    own = {key: getattr(usual, key) for key in named}
    return choose(replace(settings, name=name, target="auto", **own), shell, **purpose)


def base_of_workshop(settings: Settings, shell: Shell) -> OnKubernetes:
    """Returns the cluster beside which places are made. Raises NotRunning, OtherTarget, and as `choose`."""
    target = existing(settings, shell)
    if isinstance(target, Place):
        raise OtherTarget(
            f"{settings.name} is a place of the workshop of {target.instance.workshop}",
            hint=f"name the cluster itself: --name {target.instance.workshop}",
        )
    return _on_kubernetes(target)


def _on_kubernetes(target: Target) -> OnKubernetes:
    if not isinstance(target, OnKubernetes):
        raise OtherTarget(
            f"a workshop is beside a Ray cluster that Rayside made on Kubernetes, and {target.instance.name} "
            f"is on the target {target.instance.target}",
            hint="./invokew up --target kind --name NAME makes one, or up --context CONTEXT --create",
        )
    return target


def named(settings: Settings, shell: Shell) -> Target:
    """Returns the target as `choose` does; of a name that was given, only what is there."""
    look = choose if settings.name == DEFAULT_NAME else existing
    return look(settings, shell)


def exists(target: Target) -> bool:
    """Returns whether there is anything of the cluster: its record, or what runs of it."""
    return target.instance.record.exists() or target.present()


def removable(settings: Settings, shell: Shell) -> list[Target]:
    """Returns each target that may have something of the cluster of that name to remove."""
    require_own(settings.state_folder)
    # What its pods were told goes whatever the settings say now.
    settings = replace(settings, package_index="", package_index_ca="", package_proxy="")
    settings = replace(settings, registry_mirrors="", registry_ca="")
    # It goes without its bundle, which may be another by now, or gone.
    settings = replace(settings, bundle="", mirror="")
    if settings.source in BUNDLED:
        settings = replace(settings, source="auto")
    try:
        recorded = instance.read(settings.state_folder / settings.name)
    except InvalidSetting:
        recorded = None
    if recorded is not None:
        if recorded.source in BUNDLED and not (recorded.location / RECORD).exists():
            recorded = replace(recorded, source="packages")
        # It goes from where it is, whatever target the settings name by now.
        return [_recorded(settings, shell, recorded, "it was made so")]
    # What is left of a cluster without its record may be on any target.
    names = [name for name in _TARGETS if name in TARGETS and settings.target in ("auto", name)]
    unknown = [replace(configured(settings, name), source="packages") for name in names]
    targets = [_target(settings, shell, identity, "it has no record") for identity in unknown]
    return [target for target in targets if target.instance.target == "local" or target.present()]


def wait_for_engine(settings: Settings, report: Report) -> None:
    """Waits, as long as the settings say, for the Docker engine where the choice of the target needs one."""
    recorded = instance.read(settings.state_folder / settings.name)
    asked = settings.target if recorded is None else recorded.target
    if settings.engine_wait and asked in ("auto", "kind") and not _way(settings):
        docker_engine.wait(settings.engine_wait, report)


def asks_mirror(settings: Settings) -> bool:
    """Returns whether the choice of the target asks a registry for a bundle."""
    if not settings.mirror or settings.bundle or settings.source not in ("auto", "mirror"):
        return False
    if settings.target == "local" or settings.address or settings.ssh:
        return False
    return bundle_origin.asks_mirror(settings, settings.state_folder / settings.name / RECORD)


def preparation(settings: Settings, shell: Shell) -> tuple[Target, list[Step], list[Step]]:
    """Returns what can be made ready ahead, and what can't for want of a Docker engine.

    Without an engine the steps are kind's nevertheless, for an engine may come later, and those that `local`
    needs, unless kind was asked for.

    Returns:
        The target; its steps; the steps that are left out.
    """
    chosen = for_machine(settings, shell, asks=True, prepares=True)
    needs_no_engine = settings.target == "local" or chosen.instance.target == "cluster"
    if needs_no_engine or chosen.present() or docker_engine.answers():
        return chosen, chosen.cacheable(engine=True), []
    later = _target(settings, shell, configured(settings, "kind"), "for later", asks=True, prepares=True)
    steps = later.cacheable(engine=False)
    left_out = dependants(steps, "engine")
    now = [step for step in steps if step.name not in left_out]
    names = {step.name for step in now}
    if settings.target == "auto" and not _is_bundled(settings):
        local = _target(settings, shell, configured(settings, "local"), "for now", asks=True, prepares=True)
        now += [step for step in local.cacheable(engine=False) if step.name not in names]
    return later, now, [step for step in steps if step.name in left_out]


def to_bundle(settings: Settings, shell: Shell, architecture: str = "") -> Kind:
    """Returns the target that a bundle is made of: its images and programs.

    `architecture`: of the machine that it is for; default: this one's. Raises InvalidSetting, UnsafeFolder.
    """
    if settings.source in BUNDLED:
        raise InvalidSetting(
            f"a bundle is made of what a network gives, and source is {settings.source}",
            hint="name another: --source upstream, or --source packages",
        )
    require_own(settings.state_folder)
    settings = replace(settings, mirror="")
    identity = configured(settings, "kind")
    identity = replace(identity, source=_source(settings, identity))
    purpose = {"asks": True, "prepares": True}
    return Kind(settings, shell, identity, "for the bundle", **purpose, architecture=architecture)


def _target(settings: Settings, shell: Shell, identity: Instance, reason: str, **purpose: bool) -> Target:
    if identity.workshop:
        base = of_name(settings, shell, identity.workshop, **purpose)
        place: Callable[..., Target] = Place
        return place(settings, shell, identity, reason, base=_on_kubernetes(base), **purpose)
    source = _source(settings, identity)
    return _TARGETS[identity.target](settings, shell, replace(identity, source=source), reason, **purpose)


def _recorded(settings: Settings, shell: Shell, recorded: Instance, reason: str, **purpose: bool) -> Target:
    # An earlier version recorded no user.
    user = recorded.user or configured(settings, recorded.target).user
    # Those of a place are for who looks at it.
    asks_for_none = recorded.workshop and not purpose.get("asks")
    ports = recorded.ports if asks_for_none else _ports(settings, recorded)
    identity = replace(recorded, ports=ports, user=user)
    return _target(settings, shell, identity, reason, **purpose)


def _new(settings: Settings, shell: Shell, **purpose: bool) -> Target:
    if instance.in_workspace(settings.state_folder):
        raise _only_this(settings)

    def target(name: str, reason: str, source: str = "") -> Target:
        identity = configured(settings, name)
        if name == "cluster" and settings.context:
            identity = _created(settings, identity) if settings.create else _theirs(settings, identity)
        identity = replace(identity, ports=_ports(settings, identity), source=source)
        return _target(settings, shell, identity, reason, **purpose)

    if settings.target == "local":
        return target("local", "as asked")
    if way := _way(settings):
        return target("cluster", _REASONS[way])
    if settings.target == "cluster":
        raise InvalidSetting(
            "the target cluster is a Ray that is there, and none was named",
            hint="./invokew up --address http://HOST:8265, or up --ssh HOST, or up --context CONTEXT",
        )
    try:
        # Its folder may be gone, and the cluster not.
        source = kind_cluster.source_in_use(settings.name)
    except (EngineNotRunning, EngineNotPermitted) as error:
        if settings.target == "auto" and not _is_bundled(settings):
            if isinstance(error, EngineNotSupported):  # docker may reach it: that choice is the user's
                raise
            return target("local", f"auto: {error.message}")
        source = None
    reason = "auto: it is up" if source else "auto: a Docker engine answers"
    if _is_bundled(settings):
        reason = "auto: a bundle has what it needs"
    return target("kind", "as asked" if settings.target == "kind" else reason, source or "")


def _only_this(settings: Settings) -> OtherTarget:
    """Returns the error that a workspace in a pod knows the cluster that it is in, and no other."""
    named = f", and none {settings.name}" if settings.name != DEFAULT_NAME else ""
    return OtherTarget(
        f"this workspace is in the pod of a cluster, and can reach no other{named}",
        hint="./invokew up, where Rayside was cloned, makes others; leave out --name and --target here",
    )


def _way(settings: Settings) -> str:
    """Returns the setting that leads to a Ray that others made; empty where none does."""
    return next((key for key in ("context", "ssh", "address") if getattr(settings, key)), "")


def _theirs(settings: Settings, identity: Instance) -> Instance:
    """Returns the identity with the RayCluster that the context leads to. Raises as `heads.find`."""
    identity = _in_context(settings, identity)
    kube = Kube(Path(identity.their_kubeconfig), identity.context, identity.namespace)
    pod = workspace_pod.new_name(identity.user) if settings.workspace_pod else ""
    return replace(identity, their_cluster=heads.find(kube, settings.ray_cluster), workspace_pod=pod)


def _created(settings: Settings, identity: Instance) -> Instance:
    """Returns the identity of a RayCluster that is to be made where the context leads."""
    return replace(_in_context(settings, identity), address="")


def _in_context(settings: Settings, identity: Instance) -> Instance:
    """Returns the identity in the namespace that the settings name, or else the context."""
    kubeconfig, namespace = file_with(settings.context)
    if settings.namespace != Settings().namespace:
        namespace = settings.namespace
    return replace(identity, context=settings.context, namespace=namespace, their_kubeconfig=str(kubeconfig))


def _source(settings: Settings, identity: Instance) -> str:
    """Returns where programs and images come from: as asked, else as the cluster was made."""
    brings_images = identity.target == "kind" or identity.created or identity.workspace_pod
    if settings.source != "auto" and brings_images:
        return settings.source
    if identity.source:
        return identity.source
    if settings.mirror and brings_images:
        return "mirror"
    return "packages" if unreachable(settings) else "upstream"


def _is_bundled(settings: Settings) -> bool:
    """Returns whether what is made anew is of a bundle, which has nothing for a Ray on this machine."""
    return settings.source in BUNDLED or (settings.source == "auto" and bool(settings.mirror))


def _ports(settings: Settings, known: Instance) -> Ports:
    """Returns the ports that the settings name, and for the rest those that the cluster has been given.

    A new cluster gets the usual ports; unless it is the first, free ones in place of those that are taken.
    """
    asked, usual = configured(settings, "").ports, configured(Settings(), "").ports
    recorded = known.record.exists()
    if recorded and asked == usual and all(vars(known.ports).values()):
        return known.ports
    others = {
        port
        for other in instance.all_recorded(settings.state_folder)
        if other.name != settings.name
        for port in vars(other.ports).values()
    }
    named = {name: port for name, port in vars(asked).items() if port != getattr(usual, name)}
    chosen = dict(named)
    for name, port in vars(asked).items():
        if name in named:
            continue
        if recorded and (given := getattr(known.ports, name)):
            chosen[name] = given
        elif settings.name == DEFAULT_NAME:
            chosen[name] = port
        else:
            chosen[name] = next(_free(port, {*others, *chosen.values()}))
    return Ports(**chosen)


def _free(first: int, taken: Collection[int]) -> Iterator[int]:
    """Yields the ports from `first` on that are nobody's now."""
    return (port for port in range(first, 65536) if port not in taken and not machine.port_holder(port))
