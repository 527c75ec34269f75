"""Addresses of registries, as people name them, HOST[:PORT][/PATH], and the CA bundles trusted for them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from bootstrap import ca_certificates
from bootstrap.network_addresses import is_registry
from bootstrap.settings import Settings
from rayside.errors import InvalidArgument

_LOOPBACK = re.compile(r"localhost|127(\.[0-9]{1,3}){3}|::1")
# The Docker engine has the CA certificates there, for each registry: dockerd(8).
_CERTIFICATES = Path("/etc/docker/certs.d")


@dataclass(frozen=True)
class Address:
    """Where a registry is: `host` has its port, `path` is what all names in it begin with, or is empty."""

    host: str
    path: str = ""

    def __str__(self) -> str:
        return f"{self.host}/{self.path}" if self.path else self.host

    @property
    def is_loopback(self) -> bool:
        """Returns whether it is on this machine, where TLS protects nothing: the Docker engine sees it so."""
        return is_loopback(self.host.partition(":")[0])

    @property
    def certificates(self) -> Path:
        """Returns the CA bundle that the Docker engine trusts for it; the file need not exist."""
        return _CERTIFICATES / self.host / "ca.crt"

    def repository(self, name: str) -> str:
        """Returns the registry's name of a repository of ours, as in rayside/ray."""
        return f"{self.path}/{name}" if self.path else name


def is_loopback(host: str) -> bool:
    """Returns whether a host, without its port, is this machine."""
    return _LOOPBACK.fullmatch(host) is not None


def parse(text: str) -> Address:
    """Returns the address that somebody has named. Raises InvalidArgument."""
    named = text.rstrip("/")
    if not is_registry(named):
        raise InvalidArgument(
            f"{text!r} is no registry", hint="name it as HOST[:PORT][/PATH], as in registry.example.com/team"
        )
    host, _, path = named.partition("/")
    return Address(host, path)


def ca_file(settings: Settings, address: Address) -> Path | None:
    """Returns the CA bundle that is trusted for a registry, besides the CAs of this machine.

    It is that of the setting `registry_ca`, else the Docker engine's own for this registry, if there is one.
    Raises InvalidSetting.
    """
    if settings.registry_ca:
        return ca_certificates.named("registry_ca", settings.registry_ca)
    return engines_ca_file(address)


def engines_ca_file(address: Address) -> Path | None:
    """Returns the CA bundle that the Docker engine trusts for a registry; None if there is none."""
    return address.certificates if ca_certificates.are_in(address.certificates) else None
