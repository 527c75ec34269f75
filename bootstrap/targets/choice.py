"""Chooses the target: that of the cluster that is there, else the one that the settings ask for."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bootstrap import docker_engine, instance
from bootstrap.errors import OtherTarget
from bootstrap.graph import dependants
from bootstrap.instance import configured
from bootstrap.own_folder import require_own
from bootstrap.settings import BUNDLED, DEFAULT_NAME, POD, TARGETS, THEIRS, Settings
from bootstrap.shell import Shell
from bootstrap.step import Report, Step
from bootstrap.targets.plan import Plan, is_bundled, of_instance, of_new, of_record, resolve, way
from bootstrap.targets.target import Target
from rayside.errors import InvalidSetting, NotRunning

if TYPE_CHECKING:
    from bootstrap.targets.kind import Kind
    from bootstrap.targets.on_kubernetes import OnKubernetes


def made(plan: Plan) -> Target:
    """Returns the target of a plan. Imports the modules of that target alone."""
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
    if where.ssh or where.context:
        from bootstrap.targets.cluster_by_head import ClusterByContext, ClusterBySsh

        return ClusterBySsh(**fields) if where.ssh else ClusterByContext(**fields)
    from bootstrap.targets.existing_cluster import Cluster

    return Cluster(**fields)


def choose(settings: Settings, shell: Shell, **purpose: bool) -> Target:
    """Returns the target of the cluster of that name, or what `up` would make, as `resolve` has it."""
    return made(resolve(settings, shell, **purpose))


def for_machine(settings: Settings, shell: Shell, **purpose: bool) -> Target:
    """Returns the target as `choose` does, or the one that is asked for, where the cluster is on another.

    What a machine lacks, and what can be cached, has nothing to do with the cluster that is there.
    """
    try:
        return choose(settings, shell, **purpose)
    except OtherTarget:
        return made(of_new(settings, shell, **purpose))


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
        if recorded.source in BUNDLED:
            from bootstrap.sources.bundle_origin import RECORD

            if not (recorded.location / RECORD).exists():
                recorded = replace(recorded, source="packages")
        # It goes from where it is, whatever target the settings name by now.
        return [made(of_record(settings, shell, recorded, "it was made so"))]
    # What is left of a cluster without its record may be on any target.
    names = [name for name in TARGETS if name != "auto" and settings.target in ("auto", name)]
    unknown = [replace(configured(settings, name), source="packages") for name in names]
    targets = [made(of_instance(settings, shell, identity, "it has no record")) for identity in unknown]
    return [target for target in targets if target.instance.target == "local" or target.present()]


def wait_for_engine(settings: Settings, report: Report) -> None:
    """Waits, as long as the settings say, for the Docker engine where the choice of the target needs one."""
    recorded = instance.read(settings.state_folder / settings.name)
    asked = settings.target if recorded is None else recorded.target
    if settings.engine_wait and asked in ("auto", "kind") and not way(settings):
        docker_engine.wait(settings.engine_wait, report)


def asks_mirror(settings: Settings) -> bool:
    """Returns whether the choice of the target asks a registry for a bundle."""
    if not settings.mirror or settings.bundle or settings.source not in ("auto", "mirror"):
        return False
    if settings.target == "local" or settings.address or settings.ssh:
        return False
    from bootstrap.sources.bundle_origin import RECORD, asks_mirror

    return asks_mirror(settings, settings.state_folder / settings.name / RECORD)


def preparation(settings: Settings, shell: Shell) -> tuple[Target, list[Step], list[Step]]:
    """Returns what can be made ready ahead, and what can't for want of a Docker engine.

    Without an engine the steps are kind's nevertheless, for an engine may come later, and those that `local`
    needs, unless kind was asked for.

    Returns:
        The target; its steps; the steps that are left out.
    """
    purpose = {"asks": True, "prepares": True}
    chosen = for_machine(settings, shell, **purpose)
    needs_no_engine = settings.target == "local" or chosen.instance.target == "cluster"
    if needs_no_engine or chosen.present() or docker_engine.answers():
        return chosen, chosen.cacheable(engine=True), []
    later = made(of_instance(settings, shell, configured(settings, "kind"), "for later", **purpose))
    steps = later.cacheable(engine=False)
    left_out = dependants(steps, "engine")
    now = [step for step in steps if step.name not in left_out]
    names = {step.name for step in now}
    if settings.target == "auto" and not is_bundled(settings):
        local = made(of_instance(settings, shell, configured(settings, "local"), "for now", **purpose))
        now += [step for step in local.cacheable(engine=False) if step.name not in names]
    return later, now, [step for step in steps if step.name in left_out]


def to_bundle(settings: Settings, shell: Shell, architecture: str = "") -> Kind:
    """Returns the target that a bundle is made of: its images and programs.

    `architecture`: of the machine that it is for; default: this one's. Raises InvalidSetting, UnsafeFolder.
    """
    from bootstrap.targets.kind import Kind

    if settings.source in BUNDLED:
        raise InvalidSetting(
            f"a bundle is made of what a network gives, and source is {settings.source}",
            hint="name another: --source upstream, or --source packages",
        )
    require_own(settings.state_folder)
    settings = replace(settings, mirror="")
    identity = configured(settings, "kind")
    plan = of_instance(settings, shell, identity, "for the bundle", asks=True, prepares=True)
    return Kind(**vars(replace(plan, architecture=architecture)))
