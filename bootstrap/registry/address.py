"""Addresses of registries, as users write them, HOST[:PORT][/PATH], and the CA bundles trusted for them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from bootstrap import ca_certificates
from bootstrap.network_addresses import is_registry
from bootstrap.settings import Settings
from rayside.errors import InvalidArgument

_LOOPBACK = re.compile(r"localhost|127(\.[0-9]{1,3}){3}|::1")
# Folder of the Docker engine's CA bundles, one for each registry: dockerd(8).
_CERTIFICATES = Path("/etc/docker/certs.d")


@dataclass(frozen=True)
class Address:
    """Address of a registry: `host` with its port, and `path`, the prefix of all names in it, or empty."""

    host: str
    path: str = ""

    def __str__(self) -> str:
        return f"{self.host}/{self.path}" if self.path else self.host

    @property
    def is_loopback(self) -> bool:
        """Returns whether it is on this machine, where TLS is not needed, as for the Docker engine."""
        return is_loopback(self.host.partition(":")[0])

    @property
    def certificates(self) -> Path:
        """Returns the path of the Docker engine's CA bundle for it, which may not exist."""
        return _CERTIFICATES / self.host / "ca.crt"

    def repository(self, name: str) -> str:
        """Returns the name in the registry of one of our repositories, as in rayside/ray."""
        return f"{self.path}/{name}" if self.path else name


def is_loopback(host: str) -> bool:
    """Returns whether a host, without its port, is this machine."""
    return _LOOPBACK.fullmatch(host) is not None


def parse(text: str) -> Address:
    """Parses a user's address of a registry. Raises InvalidArgument."""
    named = text.rstrip("/")
    if not is_registry(named):
        raise InvalidArgument(
            f"{text!r} is no registry", hint="name it as HOST[:PORT][/PATH], as in registry.example.com/team"
        )
    host, _, path = named.partition("/")
    return Address(host, path)


def ca_file(settings: Settings, address: Address) -> Path | None:
    """Returns the CA bundle that is trusted for a registry, in addition to this machine's CAs.

    It comes from the setting `registry_ca`, else from the Docker engine's CA bundle for it, if there is one.
    Raises InvalidSetting.
    """
    if settings.registry_ca:
        return ca_certificates.named("registry_ca", settings.registry_ca)
    return engines_ca_file(address)


def engines_ca_file(address: Address) -> Path | None:
    """Returns the CA bundle that the Docker engine trusts for a registry; None if there is none."""
    return address.certificates if ca_certificates.are_in(address.certificates) else None
