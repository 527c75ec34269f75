"""Makes targets for tests, of settings that need not be those of a cluster that is up."""

from __future__ import annotations

from dataclasses import replace

from bootstrap.instance import configured
from bootstrap.settings import Settings
from bootstrap.targets.kind import Kind
from bootstrap.targets.local import Local
from rayside.system.shell import Shell


def local_target(settings: Settings | None = None) -> Local:
    """Returns Ray on this machine, as the settings have it."""
    settings = settings or Settings(target="local")
    return Local(settings, Shell(), configured(settings, "local"), "a test")


def kind_target(settings: Settings | None = None) -> Kind:
    """Returns a kind cluster, as the settings have it; from `packages`, unless they name another source."""
    settings = settings or Settings(target="kind")
    identity = configured(settings, "kind")
    return Kind(settings, Shell(), replace(identity, source=identity.source or "packages"), "a test")
