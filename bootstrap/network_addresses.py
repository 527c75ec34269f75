"""Network addresses in the bootstrapper's settings: registries, package indexes, proxies, hosts, clones."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

# Host with an optional port and path, without a scheme or user.
_REGISTRY = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[0-9]{1,5})?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*")
# User or password in an address; other characters are percent-encoded, as in %40.
_LOGIN = r"[A-Za-z0-9._~!$&'()*+,;=%-]+"
_NETWORK_PLACE = rf"({_LOGIN}(:{_LOGIN})?@)?([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:(?P<port>[0-9]{{1,5}}))?"
_PACKAGE_INDEX = re.compile(rf"https://{_NETWORK_PLACE}(/[A-Za-z0-9._~%+@:/-]*)?")
_PACKAGE_PROXY = re.compile(rf"http://{_NETWORK_PLACE}/?")
# Users paste it into a terminal: it has no login and no shell metacharacters.
_CLONE = re.compile(
    r"https://[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?(:[0-9]{1,5})?(/[A-Za-z0-9._-]{1,100}){1,12}/?"
)
# Git's short form for SSH, [USER@]HOST:PATH.
_SHORT_CLONE = re.compile(r"(?:[^@:/]+@)?([^@:/]+):/?([^/].*)")
# Other names belong to this machine or its network, and don't resolve elsewhere.
_PUBLIC_NAME = re.compile(r"[a-z0-9-]+(\.[a-z0-9-]+)*\.[a-z]+")
# DNS name of RFC 1123 whose last label is no number: browsers take that for an IP address.
_LABEL = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_HOST_NAME = re.compile(rf"(?=.{{1,253}}\Z)({_LABEL}\.)*(?![0-9]+\Z){_LABEL}")


def is_host_name(text: str) -> bool:
    """Returns whether the text is a DNS host name in lower case: no IP address, port or wildcard."""
    return bool(_HOST_NAME.fullmatch(text))


def is_registry(text: str) -> bool:
    """Returns whether the text is a registry's address, as in HOST:PORT/PATH."""
    return bool(_REGISTRY.fullmatch(text))


def registry_mirrors(text: str) -> dict[str, str]:
    """Returns the mirror of each public registry, from `docker.io=HOST/PATH, quay.io=...`.

    Raises ValueError.
    """
    mirrors = {}
    for part in filter(None, re.split(r"[,\s]+", text)):
        host, _, mirror = part.partition("=")
        if not is_registry(host) or "/" in host or not is_registry(mirror) or host in mirrors:
            raise ValueError(part)
        mirrors[host] = mirror
    return mirrors


def is_clone(text: str) -> bool:
    """Returns whether the text is a clone URL, as in https://HOST/PATH, that is safe in a shell."""
    return bool(_CLONE.fullmatch(text))


def public_clone(remote: str) -> str:
    """Returns the public clone URL of the git remote `remote`, without a login; empty if there is none."""
    short = _SHORT_CLONE.fullmatch(remote)
    try:
        parts = urlsplit(f"ssh://{short[1]}/{short[2]}" if short else remote)
        port = parts.port
    except ValueError:
        return ""
    if not _PUBLIC_NAME.fullmatch(parts.hostname or ""):
        return ""
    # A port of SSH is not the port of HTTPS.
    ports = {"https": port, "ssh": None}
    if parts.scheme not in ports:
        return ""
    port = ports[parts.scheme]
    address = f"https://{parts.hostname}{f':{port}' if port else ''}{parts.path}"
    return address if is_clone(address) else ""


def is_package_index(text: str) -> bool:
    """Returns whether the text is an index's HTTPS URL for pip and uv, with or without a login."""
    address = _PACKAGE_INDEX.fullmatch(text)
    return address is not None and 0 < int(address["port"] or 443) < 65536


def is_package_proxy(text: str) -> bool:
    """Returns whether the text is an HTTP proxy's URL for pip and uv, with or without a login."""
    address = _PACKAGE_PROXY.fullmatch(text)
    return address is not None and 0 < int(address["port"] or 80) < 65536
