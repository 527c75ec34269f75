"""Choice of the target: the existing cluster's, else from the settings.

The settings, the instance's record and the context are resolved once, to a `Plan`, before any target is made.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bootstrap import docker_engine, instance
from bootstrap.errors import EngineNotPermitted, EngineNotRunning, EngineNotSupported, OtherTarget
from bootstrap.instance import Instance, configured
from bootstrap.settings import BUNDLED, DEFAULT_NAME, POD, Settings
from bootstrap.sources.reachable import unreachable
from bootstrap.targets.target import Plan, Target
from rayside.connection.chosen_instance import chosen_ports, require_as_made
from rayside.connection.instance import Ports
from rayside.errors import InvalidSetting, NotRunning
from rayside.own_folder import require_own
from rayside.settings import THEIRS
from rayside.steps.step import Report
from rayside.system.shell import Shell

if TYPE_CHECKING:
    from bootstrap.targets.on_kubernetes import OnKubernetes

_REASONS = {
    "address": "its address was given",
    "ssh": "its host was given",
    "context": "its context was given",
}


def choose(settings: Settings, shell: Shell, **purpose: bool) -> Target:
    """Returns the target of the cluster of that name, or of a new one, as resolved by `resolve`."""
    return made(resolve(settings, shell, **purpose))


def made(plan: Plan) -> Target:
    """Returns the target of a plan. Only this target's modules are imported."""
    fields: dict[str, Any] = vars(plan)
    where = plan.instance
    if where.workshop:
        from bootstrap.targets.place import Place

        purpose = {"asks": plan.asks, "prepares": plan.prepares}
        base = of_name(plan.settings, plan.shell, where.workshop, **purpose)
        return Place(**fields, base=_on_kubernetes(base))
    if where.target == "local":
        from bootstrap.targets.local import Local

        return Local(**fields)
    if where.target == "kind":
        from bootstrap.targets.kind import Kind

        return Kind(**fields)
    if where.target == POD:
        from bootstrap.targets.pod import Pod

        return Pod(**fields)
    if where.created:
        from bootstrap.targets.cluster_created import ClusterCreated

        return ClusterCreated(**fields)
    if where.workspace_pod:
        from bootstrap.targets.cluster_with_workspace import ClusterWithWorkspace

        return ClusterWithWorkspace(**fields)
    from bootstrap.targets.existing_cluster import Cluster

    return Cluster(**fields)


def existing(settings: Settings, shell: Shell) -> Target:
    """Returns the target of an existing cluster. Raises NotRunning, and as `choose`."""
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
    """Returns the target of another cluster than the settings', on any target. Raises as `choose`."""
    usual = Settings()
    # Its location comes from its record: the settings' location is for their own cluster.
    named = [key for key in vars(usual) if key.endswith("_port") or key in (*THEIRS, "namespace", "create")]
    own = {key: getattr(usual, key) for key in named}
    return choose(replace(settings, name=name, target="auto", **own), shell, **purpose)


def base_of_workshop(settings: Settings, shell: Shell) -> OnKubernetes:
    """Returns the cluster beside which places are made. Raises NotRunning, OtherTarget, and as `choose`."""
    target = existing(settings, shell)
    if target.instance.workshop:
        raise OtherTarget(
            f"{settings.name} is a place of the workshop of {target.instance.workshop}",
            hint=f"name the cluster itself: --name {target.instance.workshop}",
        )
    return _on_kubernetes(target)


def _on_kubernetes(target: Target) -> OnKubernetes:
    from bootstrap.targets.on_kubernetes import OnKubernetes

    if not isinstance(target, OnKubernetes):
        raise OtherTarget(
            f"a workshop is beside a Ray cluster that Rayside made on Kubernetes, and {target.instance.name} "
            f"is on the target {target.instance.target}",
            hint="./invokew up --target kind --name NAME makes one, or up --context CONTEXT --create",
        )
    return target


def named(settings: Settings, shell: Shell) -> Target:
    """Returns the target as `choose` does; for a given name, only an existing one."""
    look = choose if settings.name == DEFAULT_NAME else existing
    return look(settings, shell)


def exists(target: Target) -> bool:
    """Returns whether the cluster has a record, or running processes."""
    return target.instance.record.exists() or target.present()


def wait_for_engine(settings: Settings, report: Report) -> None:
    """Waits for the Docker engine if the choice of the target needs one; the timeout is in the settings."""
    recorded = instance.read(settings.state_folder / settings.name)
    asked = settings.target if recorded is None else recorded.target
    if settings.engine_wait and asked in ("auto", "kind") and not way(settings):
        docker_engine.wait(settings.engine_wait, report)


# --- the plan ----------------------------------------------------------------------------


def resolve(settings: Settings, shell: Shell, **purpose: bool) -> Plan:
    """Returns the plan for the cluster of that name, or for what `up` would make.

    An existing cluster keeps its target. For a new one `auto` is kind if a Docker engine responds, else
    local. `purpose` has `asks` and `prepares` of the plan. Raises OtherTarget,
    UnsafeFolder, EngineNotSupported.
    """
    require_own(settings.state_folder)
    recorded = instance.read(settings.state_folder / settings.name)
    if recorded is None:
        return of_new(settings, shell, **purpose)
    if recorded.target == POD and settings.target != "auto":
        raise _only_this(settings)
    hint = f"./invokew down{recorded.verb_options} removes it; or --name gives a second one"
    if settings.target not in ("auto", recorded.target):
        raise OtherTarget(
            f"the cluster {settings.name} is on the target {recorded.target}, not on {settings.target}",
            hint=hint,
        )
    made_with = {"namespace": recorded.namespace, "create": recorded.created, "user": recorded.user}
    made_with |= {
        "workspace_pod": bool(recorded.workspace_pod),
        **{key: getattr(recorded, key) for key in THEIRS},
    }
    require_as_made(settings, recorded, made_with, hint=hint)
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
    """Returns the plan for an instance, with its source; a place of a workshop has its base's source."""
    if not identity.workshop:
        identity = replace(identity, source=_source(settings, identity))
    return Plan(settings, shell, identity, reason, asks=asks, prepares=prepares)


def of_record(settings: Settings, shell: Shell, recorded: Instance, reason: str, **purpose: bool) -> Plan:
    # An earlier version recorded no user.
    user = recorded.user or configured(settings, recorded.target).user
    # A place's ports are only for commands that connect to it.
    asks_for_none = recorded.workshop and not purpose.get("asks")
    ports = recorded.ports if asks_for_none else _ports(settings, recorded)
    identity = replace(recorded, ports=ports, user=user)
    return of_instance(settings, shell, identity, reason, **purpose)


def of_new(settings: Settings, shell: Shell, **purpose: bool) -> Plan:
    if instance.in_workspace(settings.state_folder):
        raise _only_this(settings)

    def plan(name: str, reason: str, source: str = "") -> Plan:
        identity = configured(settings, name)
        if name == "cluster" and settings.context:
            identity = _in_context(settings, identity)
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
        # The cluster may exist without its folder.
        source = kind_cluster.source_in_use(settings.name)
    except (EngineNotRunning, EngineNotPermitted) as error:
        if settings.target == "auto" and not is_bundled(settings):
            if isinstance(error, EngineNotSupported):  # the program docker may reach it: the user's choice
                raise
            return plan("local", f"auto: {error.message}")
        source = None
    reason = "auto: it is up" if source else "auto: a Docker engine answers"
    if is_bundled(settings):
        reason = "auto: a bundle has what it needs"
    return plan("kind", "as asked" if settings.target == "kind" else reason, source or "")


def _only_this(settings: Settings) -> OtherTarget:
    """Returns the error for another cluster: a workspace in a pod only knows its own."""
    named = f", and none {settings.name}" if settings.name != DEFAULT_NAME else ""
    return OtherTarget(
        f"this workspace is in the pod of a cluster, and can reach no other{named}",
        hint="./invokew up, where Rayside was cloned, makes others; leave out --name and --target here",
    )


def way(settings: Settings) -> str:
    """Returns the name of the setting with an existing Ray cluster's address; empty without one."""
    return next((key for key in ("context", "ssh", "address") if getattr(settings, key)), "")


def _in_context(settings: Settings, identity: Instance) -> Instance:
    """Returns the identity with the context's RayCluster; without one if it is to be created.

    The namespace comes from the settings, or else from the context. Raises as `heads.find`.
    """
    from bootstrap.kube.kubeconfig import file_with

    kubeconfig, namespace = file_with(settings.context)
    namespace = settings.namespace or namespace
    identity = replace(
        identity, context=settings.context, namespace=namespace, their_kubeconfig=str(kubeconfig)
    )
    if settings.create:
        return replace(identity, address="")
    from bootstrap.kube.api import Kube
    from rayside.connection import heads

    kube = Kube(kubeconfig, identity.context, identity.namespace)
    pod = ""
    if settings.workspace_pod:
        from bootstrap.steps.workspace_pod import new_name

        pod = new_name(identity.user)
    return replace(identity, their_cluster=heads.find(kube, settings.ray_cluster), workspace_pod=pod)


def _source(settings: Settings, identity: Instance) -> str:
    """Returns the name of the source: as requested, else as recorded, else the default."""
    brings_images = identity.target == "kind" or identity.created or identity.workspace_pod
    if settings.source != "auto" and brings_images:
        return settings.source
    if identity.source:
        return identity.source
    if settings.mirror and brings_images:
        return "mirror"
    return "packages" if unreachable(settings) else "upstream"


def is_bundled(settings: Settings) -> bool:
    """Returns whether new clusters come from a bundle, which has nothing for a local Ray cluster."""
    return settings.source in BUNDLED or (settings.source == "auto" and bool(settings.mirror))


def _ports(settings: Settings, known: Instance) -> Ports:
    """Returns the ports in the settings; for others, the cluster's recorded ports, or free ones."""
    asked, usual = configured(settings, "").ports, configured(Settings(), "").ports
    return chosen_ports(replace(known, name=settings.name), settings.state_folder, asked, usual)
