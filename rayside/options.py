"""Options that verbs share with the workspace's `submit`, and checks of their values."""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass
from math import inf
from typing import NoReturn
from urllib.parse import urlsplit

from rayside.errors import InvalidArgument

# It has neither a user, whom a list of processes would show, nor a path.
_ADDRESS = re.compile(r"https?://([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?")
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
_KUBERNETES_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
# It is a name of DNS, as in RFC 1123, whose last part is no number: browsers take that for an address.
_LABEL = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_HOST_NAME = re.compile(rf"(?=.{{1,253}}\Z)({_LABEL}\.)*(?![0-9]+\Z){_LABEL}")
# ssh(1) takes a name of its configuration, user@host, or a URI; what begins with - would be an option.
_SSH_USER, _SSH_NAME = r"([A-Za-z0-9._+%-]{1,64}@)?", r"([A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])"
_SSH_HOST = re.compile(rf"(?!-)({_SSH_USER}{_SSH_NAME}|ssh://{_SSH_USER}{_SSH_NAME}(:[0-9]{{1,5}})?)")


@dataclass(frozen=True)
class Option:
    """Describes an option, as in `--working-dir D`; one without a `metavar` is a flag."""

    name: str
    help: str
    metavar: str = ""
    may_be_repeated: bool = False


JSON = Option("json", "print one JSON document on standard output")
# Both `./invokew submit` and the workspace's `submit` have these.
SUBMISSION = (
    Option("working-dir", "folder your program is in (default: the current one)", "D"),
    Option(
        "py-modules",
        "folder of a package that your program imports; may be given several times",
        "D",
        may_be_repeated=True,
    ),
    Option("entrypoint", 'what to run there, as in "python your_program.py --its option"', "E"),
    Option("runtime-env", "YAML file with more of Ray's runtime_env (pip, env_vars, ...)", "F"),
    Option("debug", "its processes open a debugger and wait for one: breakpoints in unmodified code"),
    Option("post-mortem", "with --debug, an exception that a task does not catch stops where it was raised"),
    Option(
        "attach-timeout", "with --debug, seconds that they wait (default: 60); with 0 they do not wait", "S"
    ),
    JSON,
)


class Parser(argparse.ArgumentParser):
    """Parser of a command line whose mistakes are errors as all others: it raises InvalidArgument."""

    def error(self, message: str) -> NoReturn:
        raise InvalidArgument(message, hint=f"{self.prog} --help says how it is typed")


def seconds(
    option: str, value: float | str, *, hint: str, most: float = inf, may_be_zero: bool = True
) -> float:
    """Returns the seconds that `option` (as in `--timeout`) was given, at most `most`.

    Raises InvalidArgument with `hint` for what is no number, and for a number outside the bounds.
    """
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if not 0 <= number <= most or (number == 0 and not may_be_zero):
        raise InvalidArgument(f"{option} is {value!r}", hint=hint)
    return number


def is_address(text: str) -> bool:
    """Returns whether it is that of a dashboard, as in http://HOST:8265."""
    port = re.search(r":([0-9]+)$", text)
    return bool(_ADDRESS.fullmatch(text)) and (port is None or 0 < int(port[1]) < 65536)


def is_host_name(text: str) -> bool:
    """Returns whether it is a host's name in DNS, in lower case: no address, no port, no wildcard."""
    return bool(_HOST_NAME.fullmatch(text))


def is_ssh_host(text: str) -> bool:
    """Returns whether ssh takes it for a host."""
    return bool(_SSH_HOST.fullmatch(text))


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


def is_kubernetes_name(text: str) -> bool:
    """Returns whether an object of Kubernetes can be called so."""
    return bool(_KUBERNETES_NAME.fullmatch(text))
