"""Reads the settings that somebody has given, and refuses those that can't be, or do not fit together."""

from __future__ import annotations

import difflib
import ipaddress
import math
import os
import re
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_type_hints
from urllib.parse import urlsplit

from bootstrap.errors import UnknownSetting, UnknownSource, UnknownTarget
from bootstrap.settings import (
    BUNDLED,
    DEFAULT_NAME,
    ENVIRONMENT_PREFIX,
    LONGEST_NAME,
    SOURCES,
    TARGETS,
    THEIRS,
    WITH_LOGIN,
    Settings,
)
from rayside import options
from rayside.errors import InvalidSetting
from rayside.users import is_name

_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_MASKED_NAMES = re.compile(r"\s*(!?[\w.*?\-\[\]]+\s*(,\s*|$))*")
_BOOLEANS = {
    **dict.fromkeys(("true", "yes", "on", "1"), True),
    **dict.fromkeys(("false", "no", "off", "0"), False),
}


def parse(values: Mapping[str, Any], environment: Mapping[str, str] = os.environ) -> Settings:
    """Parses the `rayside:` section of Invoke's merged configuration.

    Values may be strings, as the environment gives them, or YAML's own types; None means "not
    set". `environment` is only searched for keys that Invoke would have ignored in silence.

    Raises UnknownSetting, InvalidSetting, UnknownTarget, UnknownSource.
    """
    kinds = get_type_hints(Settings)
    for key in values:
        _known(key, kinds, "in the rayside section of invoke.yaml")
    for name in environment:
        if name.startswith(ENVIRONMENT_PREFIX):
            _known(name.removeprefix(ENVIRONMENT_PREFIX).lower(), kinds, f"from {name} in the environment")
    converted = {key: _convert(key, value, kinds[key]) for key, value in values.items() if value is not None}
    settings = Settings(**converted)
    if settings.bundle and settings.source == "auto":
        settings = replace(settings, source="bundle")
    is_theirs = any(getattr(settings, key) for key in THEIRS)
    if settings.source == "bundle" and settings.target == "auto" and not is_theirs:
        settings = replace(settings, target="kind")
    _validate(settings)
    return settings


def _known(key: str, kinds: Mapping[str, type], where: str) -> None:
    if key in kinds:
        return
    close = difflib.get_close_matches(key, kinds, n=1)
    hint = f"did you mean {close[0]}?" if close else f"the settings are {', '.join(kinds)}"
    raise UnknownSetting(f"unknown setting {key!r} {where}", hint=hint)


def _convert(key: str, value: Any, kind: type) -> Any:
    try:
        if kind is bool:
            return _BOOLEANS[str(value).lower()]
        if isinstance(value, (bool, list, dict)):
            raise ValueError
        if kind is Path:
            return Path(str(value)).expanduser().absolute()
        return kind(value)
    except (KeyError, ValueError):
        names = {int: "a whole number", float: "a number", bool: "true or false"}
        kind_name = names.get(kind, "a single value")
        # A login may be in it.
        shown = f"{key} is" if key in WITH_LOGIN else f"{key} is {value!r},"
        raise InvalidSetting(f"{shown} not {kind_name}", hint=f"correct {key}") from None


def _validate(settings: Settings) -> None:
    if settings.target not in TARGETS:
        raise UnknownTarget(
            f"unknown target {settings.target!r}", hint=f"the targets are {', '.join(TARGETS)}"
        )
    if settings.source not in SOURCES:
        raise UnknownSource(
            f"unknown source {settings.source!r}", hint=f"the sources are {', '.join(SOURCES)}"
        )
    if settings.bundle and settings.source != "bundle":
        raise InvalidSetting(
            f"bundle is a file that source bundle takes everything from, and source is {settings.source}",
            hint="leave out one of the two",
        )
    if settings.mirror and not options.is_registry(settings.mirror):
        raise InvalidSetting(
            f"mirror is {settings.mirror!r}, which is no registry",
            hint="name it as HOST[:PORT][/PATH], as in registry.example.com/team",
        )
    try:
        options.registry_mirrors(settings.registry_mirrors)
    except ValueError as error:
        raise InvalidSetting(
            f"registry_mirrors has {str(error)!r}, which names no registry and its mirror",
            hint="write docker.io=HOST[:PORT][/PATH], with commas between, each registry once",
        ) from None
    is_theirs = settings.target == "cluster" or any(getattr(settings, key) for key in THEIRS)
    brings_images = settings.create or settings.workspace_pod or not is_theirs
    if settings.source in BUNDLED and (settings.target == "local" or not brings_images):
        raise InvalidSetting(
            f"source {settings.source} has what the target kind needs, and --context with --create or "
            f"--workspace; the target is {settings.target if settings.target != 'auto' else 'cluster'}",
            hint="leave out the target, or the source",
        )
    if not _NAME.fullmatch(settings.name) or len(settings.name) > LONGEST_NAME:
        raise InvalidSetting(
            f"name is {settings.name!r}, which can't be a name in Kubernetes",
            hint=f"choose at most {LONGEST_NAME} of a-z, 0-9 and -, a letter first and no - at the end",
        )
    for key in THEIRS:
        if getattr(settings, key) and settings.target not in ("auto", "cluster"):
            raise InvalidSetting(
                f"{key} is for the target cluster, and the target is {settings.target}",
                hint="leave out one of the two",
            )
    _validate_workshop(settings)
    _validate_way(settings)
    _validate_package_index(settings)
    _validate_package_proxy(settings)
    for spec in fields(settings):
        value = getattr(settings, spec.name)
        if spec.name.endswith("_port") and not 1024 <= value <= 65535:
            raise InvalidSetting(f"{spec.name} is {value}", hint="choose a port from 1024 to 65535")
        if isinstance(value, (int, float)) and not 0 <= value < math.inf:
            raise InvalidSetting(f"{spec.name} is {value}", hint="choose a number that is not negative")
    if not _MASKED_NAMES.fullmatch(settings.masked_names):
        raise InvalidSetting(
            f"masked_names is {settings.masked_names!r}",
            hint="write names with commas between, as in '*iban*, !max_tokens': * and ? stand for characters",
        )
    try:
        re.compile(settings.masked_values)
    except re.error as error:
        raise InvalidSetting(
            f"masked_values is no regular expression: {error}", hint="correct masked_values"
        ) from None
    if settings.masked_values and re.search(settings.masked_values, ""):
        raise InvalidSetting(
            "masked_values also matches an empty text, which is everywhere",
            hint="let it match one character at least",
        )
    if settings.ray_cpus < 1:
        raise InvalidSetting("ray_cpus is 0", hint="choose at least 1")
    ports: dict[int, str] = {}
    for key in (spec.name for spec in fields(settings) if spec.name.endswith("_port")):
        port = getattr(settings, key)
        # Another cluster than the first gets free ports in place of the usual ones.
        if settings.name != DEFAULT_NAME and port == getattr(Settings, key):
            continue
        if port in ports:
            raise InvalidSetting(f"{ports[port]} and {key} are the same", hint="choose two ports")
        ports[port] = key


def _validate_package_index(settings: Settings) -> None:
    """Refuses an address without showing it: a password may be in it."""
    index = settings.package_index
    if not index:
        return
    if index.startswith("http://"):
        raise InvalidSetting(
            "package_index begins with http://: whoever is on the way could put programs into your cluster",
            hint="name the index by https://; package_index_ca is for a company's own CA certificates",
        )
    if not options.is_package_index(index) or not _has_a_host(index):
        raise InvalidSetting(
            "package_index is no address of a package index",
            hint="write https://HOST/PATH, or https://USER:PASSWORD@HOST/PATH with @ in these two as %40",
        )
    _refuse_loopback("package_index", index)


def _validate_package_proxy(settings: Settings) -> None:
    """Refuses an address without showing it: a password may be in it."""
    proxy = settings.package_proxy
    if not proxy:
        return
    if not options.is_package_proxy(proxy) or not _has_a_host(proxy):
        raise InvalidSetting(
            "package_proxy is no address of an HTTP proxy",
            hint="write http://HOST:PORT, or http://USER:PASSWORD@HOST:PORT with @ in these two as %40",
        )
    _refuse_loopback("package_proxy", proxy)


def _refuse_loopback(key: str, address: str) -> None:
    host = urlsplit(address).hostname or ""
    if _is_loopback(host):
        raise InvalidSetting(
            f"{key} is on {host}, which is each pod's own loopback address",
            hint="name it as other machines reach it",
        )


def _has_a_host(address: str) -> bool:
    try:
        return bool(urlsplit(address).hostname)
    except ValueError:
        return False


def _is_loopback(host: str) -> bool:
    """Returns whether a host, without its port, is whatever machine it is said on."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost" or host.startswith("127.")
    mapped = getattr(address, "ipv4_mapped", None) or address
    return mapped.is_loopback or mapped.is_unspecified


def _validate_workshop(settings: Settings) -> None:
    for key, who in (("workshop_address", "attendees' browsers go"), ("teacher_address", "a phone goes")):
        given = getattr(settings, key)
        try:
            address = ipaddress.ip_address(given)
        except ValueError:
            address = None
        # It is listened on, and it is in a link.
        if address is None or address.is_unspecified or address.is_multicast:
            raise InvalidSetting(
                f"{key} is {given!r}, which is no address of a machine",
                hint=f"name this machine's address in the network of the room, as in 192.0.2.10: {who} there",
            )
    if settings.workshop_host and not options.is_host_name(settings.workshop_host):
        raise InvalidSetting(
            f"workshop_host is {settings.workshop_host!r}, which is no host's name",
            hint="name the host alone, in lower case, as in workshop.example.com: no https://, no port, no *",
        )
    for key in ("workshop_ingress_class", "workshop_tls_secret"):
        name = getattr(settings, key)
        if name and not settings.workshop_host:
            raise InvalidSetting(
                f"{key} is for an Ingress, which is made where workshop_host names its host",
                hint=f"set workshop_host, or leave out {key}",
            )
        if name and not options.is_kubernetes_name(name):
            raise InvalidSetting(
                f"{key} is {name!r}, which can't be a name in Kubernetes",
                hint=f"kubectl get {'ingressclasses' if key.endswith('class') else 'secrets'} lists them",
            )
    for network in settings.workshop_reach.split(","):
        try:
            ipaddress.ip_network(network.strip() or "10.0.0.0/8")
        except ValueError as error:
            raise InvalidSetting(
                f"workshop_reach has {network.strip()!r}: {error}", hint="write networks as in 10.1.0.0/16"
            ) from None

    if settings.workshop_home and not options.is_clone(settings.workshop_home):
        # A login may be in it.
        raise InvalidSetting(
            "workshop_home is no address that attendees could paste to clone Rayside",
            hint="write https://HOST/PATH, without a login, of letters, digits and . _ - alone",
        )


def _validate_way(settings: Settings) -> None:
    if not is_name(settings.user):
        raise InvalidSetting(
            f"user is {settings.user!r}", hint="choose a name in one line, of at most 64 characters"
        )
    if settings.address and not options.is_address(settings.address):
        raise InvalidSetting(
            f"address is {settings.address!r}, which is no address of a dashboard",
            hint="give it as http://HOST:8265",
        )
    if settings.ssh and not options.is_ssh_host(settings.ssh):
        raise InvalidSetting(
            f"ssh is {settings.ssh!r}, which is no host for ssh",
            hint="give a name of ~/.ssh/config, USER@HOST or ssh://USER@HOST:PORT",
        )
    if settings.ssh and settings.context:
        raise InvalidSetting("ssh and context are two ways to a Ray", hint="leave out one of the two")
    way = "ssh" if settings.ssh else "context" if settings.context else ""
    if way and settings.address and not re.match(r"http://127\.0\.0\.1:[0-9]+$", settings.address):
        raise InvalidSetting(
            f"address is {settings.address}, and with {way} it is what the head itself reaches",
            hint="give it as http://127.0.0.1:8265, or leave it out",
        )
    if settings.create and not settings.context:
        raise InvalidSetting(
            "create makes a Ray cluster in the Kubernetes that a context leads to, and there is no context",
            hint="./invokew up --context CONTEXT --create; kubectl config get-contexts lists them",
        )
    if settings.create and settings.ray_cluster:
        raise InvalidSetting(
            "ray_cluster names a RayCluster that is there, and with create one is made",
            hint=f"leave it out: the one that is made is called {settings.name}, or as --name says",
        )
    if settings.workspace_pod and not settings.context:
        raise InvalidSetting(
            "workspace makes a pod in the Kubernetes that a context leads to, and there is no context",
            hint="./invokew up --context CONTEXT --workspace; without it the workspace is on this machine",
        )
    if settings.workspace_pod and settings.create:
        raise InvalidSetting(
            "workspace is for a RayCluster that is there; one that is made has the workspace beside its head",
            hint="leave out workspace",
        )
    if settings.image_registry and not options.is_registry(settings.image_registry):
        raise InvalidSetting(
            f"image_registry is {settings.image_registry!r}, which is no registry",
            hint="give it as HOST, HOST:PORT or HOST/PATH, without http://",
        )
    if settings.ray_cluster and not options.is_kubernetes_name(settings.ray_cluster):
        raise InvalidSetting(
            f"ray_cluster is {settings.ray_cluster!r}, which can't be a name in Kubernetes",
            hint="kubectl get rayclusters lists them",
        )
