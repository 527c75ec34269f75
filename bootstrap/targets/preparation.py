"""Targets of `prepare`, `bundle`, `doctor` and `down`, which also work without a cluster."""

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
    """Returns the target as `choose` does; if the cluster is on another, the requested target.

    Checks of the machine, and the cache, do not depend on the existing cluster.
    """
    try:
        return choose(settings, shell, **purpose)
    except OtherTarget:
        return made(of_new(settings, shell, **purpose))


def removable(settings: Settings, shell: Shell) -> list[Target]:
    """Returns each target that may have parts of the cluster of that name to remove."""
    require_own(settings.state_folder)
    # Pods' package settings are removed whatever the current settings.
    settings = replace(settings, package_index="", package_index_ca="", package_proxy="")
    settings = replace(settings, registry_mirrors="", registry_ca="")
    # The removal does not need the bundle, which may be another by now, or gone.
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
        # It is removed from its recorded target, whatever the settings' target.
        return [made(of_record(settings, shell, recorded, "it was made so"))]
    # The rest of a cluster without a record may be on any target.
    names = [name for name in TARGETS if name != "auto" and settings.target in ("auto", name)]
    unknown = [replace(configured(settings, name), source="packages") for name in names]
    targets = [made(of_instance(settings, shell, identity, "it has no record")) for identity in unknown]
    return [target for target in targets if target.instance.target == "local" or target.present()]


def asks_mirror(settings: Settings) -> bool:
    """Returns whether the choice of the target requests a bundle from a registry."""
    if not settings.mirror or settings.bundle or settings.source not in ("auto", "mirror"):
        return False
    if settings.target == "local" or settings.address or settings.ssh:
        return False
    from bootstrap.sources.bundle_origin import RECORD, asks_mirror

    return asks_mirror(settings, settings.state_folder / settings.name / RECORD)


def preparation(settings: Settings, shell: Shell) -> tuple[Target, list[Step], list[Step]]:
    """Returns the steps that can be prepared, and the steps that need a missing Docker engine.

    Without an engine these are still kind's steps, as an engine may come later, and also `local`'s steps,
    unless kind was requested.

    Returns:
        The target; its steps; the omitted steps.
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
    """Returns the target whose images and programs go into a bundle.

    `architecture`: of the bundle's machine; default: this machine's. Raises InvalidSetting, UnsafeFolder.
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
