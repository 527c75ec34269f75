"""Plan of a command: settings, the instance's record and the context, resolved once, before any target."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from bootstrap import instance
from bootstrap.errors import EngineNotPermitted, EngineNotRunning, EngineNotSupported, OtherTarget
from bootstrap.instance import Instance, Ports, configured
from bootstrap.own_folder import require_own
from bootstrap.settings import BUNDLED, DEFAULT_NAME, POD, THEIRS, Settings
from bootstrap.shell import Shell
from bootstrap.sources.reachable import unreachable
from rayside.errors import InvalidSetting
from rayside.ports import port_holder

_REASONS = {
    "address": "its address was given",
    "ssh": "its host was given",
    "context": "its context was given",
}


@dataclass(frozen=True)
class Plan:
    """One instance, where the settings and its record have it.

    Attributes:
        instance: the cluster that is meant, with its target, source and ports.
        reason: why it is this target, for people.
        asks: whether a gallery may be asked for the workspace's extensions.
        prepares: whether that is for a cluster to come.
        architecture: of the machine that the cluster is to come to; default: this one's.
    """

    settings: Settings
    shell: Shell
    instance: Instance
    reason: str
    asks: bool = False
    prepares: bool = False
    architecture: str = ""


def resolve(settings: Settings, shell: Shell, **purpose: bool) -> Plan:
    """Returns the plan for the cluster of that name, or for what `up` would make.

    A cluster that was made and not removed keeps its target. For a new one `auto` is kind where a Docker
    engine answers, else local. `purpose` has `asks` and `prepares` of the plan. Raises OtherTarget,
    UnsafeFolder, EngineNotSupported.
    """
    require_own(settings.state_folder)
    recorded = instance.read(settings.state_folder / settings.name)
    if recorded is None:
        return of_new(settings, shell, **purpose)
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
    return of_record(settings, shell, recorded, reason, **purpose)


def of_instance(
    settings: Settings,
    shell: Shell,
    identity: Instance,
    reason: str,
    *,
    asks: bool = False,
    prepares: bool = False,
) -> Plan:
    """Returns the plan for an instance, which gets its source; a place of a workshop has that of its base."""
    if not identity.workshop:
        identity = replace(identity, source=_source(settings, identity))
    return Plan(settings, shell, identity, reason, asks=asks, prepares=prepares)


def of_record(settings: Settings, shell: Shell, recorded: Instance, reason: str, **purpose: bool) -> Plan:
    """Returns the plan for a cluster that has a record."""
    # An earlier version recorded no user.
    user = recorded.user or configured(settings, recorded.target).user
    # Those of a place are for who looks at it.
    asks_for_none = recorded.workshop and not purpose.get("asks")
    ports = recorded.ports if asks_for_none else _ports(settings, recorded)
    identity = replace(recorded, ports=ports, user=user)
    return of_instance(settings, shell, identity, reason, **purpose)


def of_new(settings: Settings, shell: Shell, **purpose: bool) -> Plan:
    """Returns the plan for a cluster that has no record. Raises as `resolve`."""
    if instance.in_workspace(settings.state_folder):
        raise _only_this(settings)

    def plan(name: str, reason: str, source: str = "") -> Plan:
        identity = configured(settings, name)
        if name == "cluster" and settings.context:
            identity = _theirs(settings, _in_context(settings, identity))
        identity = replace(identity, ports=_ports(settings, identity), source=source)
        return of_instance(settings, shell, identity, reason, **purpose)

    if settings.target == "local":
        return plan("local", "as asked")
    if given := way(settings):
        return plan("cluster", _REASONS[given])
    if settings.target == "cluster":
        raise InvalidSetting(
            "the target cluster is a Ray that is there, and none was named",
            hint="./invokew up --address http://HOST:8265, or up --ssh HOST, or up --context CONTEXT",
        )
    from bootstrap.steps import kind_cluster

    try:
        # Its folder may be gone, and the cluster not.
        source = kind_cluster.source_in_use(settings.name)
    except (EngineNotRunning, EngineNotPermitted) as error:
        if settings.target == "auto" and not is_bundled(settings):
            if isinstance(error, EngineNotSupported):  # docker may reach it: that choice is the user's
                raise
            return plan("local", f"auto: {error.message}")
        source = None
    reason = "auto: it is up" if source else "auto: a Docker engine answers"
    if is_bundled(settings):
        reason = "auto: a bundle has what it needs"
    return plan("kind", "as asked" if settings.target == "kind" else reason, source or "")


def _only_this(settings: Settings) -> OtherTarget:
    """Returns the error that a workspace in a pod knows the cluster that it is in, and no other."""
    named = f", and none {settings.name}" if settings.name != DEFAULT_NAME else ""
    return OtherTarget(
        f"this workspace is in the pod of a cluster, and can reach no other{named}",
        hint="./invokew up, where Rayside was cloned, makes others; leave out --name and --target here",
    )


def way(settings: Settings) -> str:
    """Returns the setting that leads to a Ray that others made; empty where none does."""
    return next((key for key in ("context", "ssh", "address") if getattr(settings, key)), "")


def _theirs(settings: Settings, identity: Instance) -> Instance:
    """Returns the identity with the RayCluster that the context leads to; with none where it is to be made.

    Raises as `heads.find`.
    """
    if settings.create:
        return replace(identity, address="")
    from bootstrap.kube import heads
    from bootstrap.kube.api import Kube

    kube = Kube(Path(identity.their_kubeconfig), identity.context, identity.namespace)
    pod = ""
    if settings.workspace_pod:
        from bootstrap.steps.workspace_pod import new_name

        pod = new_name(identity.user)
    return replace(identity, their_cluster=heads.find(kube, settings.ray_cluster), workspace_pod=pod)


def _in_context(settings: Settings, identity: Instance) -> Instance:
    """Returns the identity in the namespace that the settings name, or else the context."""
    from bootstrap.kube.kubeconfig import file_with

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


def is_bundled(settings: Settings) -> bool:
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
    return (port for port in range(first, 65536) if port not in taken and not port_holder(port))
