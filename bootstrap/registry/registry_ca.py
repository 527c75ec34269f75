"""Certificate authorities of the registry that the settings name as mirror, and of others."""

from __future__ import annotations

from pathlib import Path

from bootstrap import authorities
from bootstrap.registry.address import Address
from bootstrap.settings import Settings


def authority(settings: Settings, address: Address) -> Path | None:
    """Returns the file of the authorities that are trusted for a registry, besides those of this machine.

    It is that of the setting `registry_ca`, else the Docker engine's own for this registry, if there is one.
    Raises InvalidSetting.
    """
    if settings.registry_ca:
        return authorities.named("registry_ca", settings.registry_ca)
    return engines_authority(address)


def engines_authority(address: Address) -> Path | None:
    """Returns the file of the authorities that the Docker engine trusts for a registry, if there is one."""
    return address.certificates if authorities.are_in(address.certificates) else None
