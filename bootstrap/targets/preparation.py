"""What can be prepared, bundled or removed, whichever cluster is there."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from bootstrap import docker_engine, instance
from bootstrap.errors import OtherTarget
from bootstrap.instance import configured
from bootstrap.settings import BUNDLED, TARGETS, Settings
from bootstrap.targets.choice import choose, is_bundled, made, of_instance, of_new, of_record
from bootstrap.targets.target import Target
from rayside.errors import InvalidSetting
from rayside.own_folder import require_own
from rayside.steps.graph import dependants
from rayside.steps.step import Step
from rayside.system.shell import Shell

if TYPE_CHECKING:
    from bootstrap.targets.kind import Kind


def for_machine(settings: Settings, shell: Shell, **purpose: bool) -> Target:
    """Returns the target as `choose` does, or the one that is asked for, where the cluster is on another.

    What a machine lacks, and what can be cached, has nothing to do with the cluster that is there.
    """
    try:
        return choose(settings, shell, **purpose)
    except OtherTarget:
        return made(of_new(settings, shell, **purpose))


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
