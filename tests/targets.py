"""Targets for tests, from settings that need not belong to a running cluster."""

from __future__ import annotations

from dataclasses import replace

from bootstrap.instance import configured
from bootstrap.settings import Settings
from bootstrap.targets.kind import Kind
from bootstrap.targets.local import Local
from rayside.system.shell import Shell


def local_target(settings: Settings | None = None) -> Local:
    """Returns the target `local` with these settings."""
    settings = settings or Settings(target="local")
    return Local(settings, Shell(), configured(settings, "local"), "a test")


def kind_target(settings: Settings | None = None) -> Kind:
    """Returns the target `kind` with these settings; the default source is `packages`."""
    settings = settings or Settings(target="kind")
    identity = configured(settings, "kind")
    return Kind(settings, Shell(), replace(identity, source=identity.source or "packages"), "a test")
