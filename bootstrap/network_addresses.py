"""Network addresses in the bootstrapper's settings: registries, package indexes, proxies, hosts, clones."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

# It is a host, with a port or not, and a path or not: neither a scheme nor a user.
_REGISTRY = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[0-9]{1,5})?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*")
# It may have a user and a password, in which anything but these characters is written as in %40.
_LOGIN = r"[A-Za-z0-9._~!$&'()*+,;=%-]+"
_NETWORK_PLACE = rf"({_LOGIN}(:{_LOGIN})?@)?([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:(?P<port>[0-9]{{1,5}}))?"
_PACKAGE_INDEX = re.compile(rf"https://{_NETWORK_PLACE}(/[A-Za-z0-9._~%+@:/-]*)?")
_PACKAGE_PROXY = re.compile(rf"http://{_NETWORK_PLACE}/?")
# People paste it into a terminal: it has neither a login nor anything that means more to a shell.
_CLONE = re.compile(
    r"https://[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?(:[0-9]{1,5})?(/[A-Za-z0-9._-]{1,100}){1,12}/?"
)
# Git's short form for SSH, [USER@]HOST:PATH.
_SHORT_CLONE = re.compile(r"(?:[^@:/]+@)?([^@:/]+):/?([^/].*)")
# Another name is one of this machine or its network, and leads nowhere from elsewhere.
_PUBLIC_NAME = re.compile(r"[a-z0-9-]+(\.[a-z0-9-]+)*\.[a-z]+")
# It is a name of DNS, as in RFC 1123, whose last part is no number: browsers take that for an address.
_LABEL = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_HOST_NAME = re.compile(rf"(?=.{{1,253}}\Z)({_LABEL}\.)*(?![0-9]+\Z){_LABEL}")


def is_host_name(text: str) -> bool:
    """Returns whether it is a host's name in DNS, in lower case: no address, no port, no wildcard."""
    return bool(_HOST_NAME.fullmatch(text))


def is_registry(text: str) -> bool:
    """Returns whether images can be in it, as in HOST:PORT/PATH."""
    return bool(_REGISTRY.fullmatch(text))


def registry_mirrors(text: str) -> dict[str, str]:
    """Returns the registry that has the images of each public one, from `docker.io=HOST/PATH, quay.io=...`.

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
    """Returns whether it is the address of a clone, as in https://HOST/PATH, that can be pasted as it is."""
    return bool(_CLONE.fullmatch(text))


def public_clone(remote: str) -> str:
    """Returns where others clone what git knows as `remote`, without a login; empty where they can't."""
    short = _SHORT_CLONE.fullmatch(remote)
    try:
        parts = urlsplit(f"ssh://{short[1]}/{short[2]}" if short else remote)
        port = parts.port
    except ValueError:
        return ""
    if not _PUBLIC_NAME.fullmatch(parts.hostname or ""):
        return ""
    # The port of SSH is not that of the web.
    ports = {"https": port, "ssh": None}
    if parts.scheme not in ports:
        return ""
    port = ports[parts.scheme]
    address = f"https://{parts.hostname}{f':{port}' if port else ''}{parts.path}"
    return address if is_clone(address) else ""


def is_package_index(text: str) -> bool:
    """Returns whether pip and uv take it for the address of an index by TLS, with a login or without."""
    address = _PACKAGE_INDEX.fullmatch(text)
    return address is not None and 0 < int(address["port"] or 443) < 65536


def is_package_proxy(text: str) -> bool:
    """Returns whether pip and uv take it for the address of an HTTP proxy, with a login or without."""
    address = _PACKAGE_PROXY.fullmatch(text)
    return address is not None and 0 < int(address["port"] or 80) < 65536
