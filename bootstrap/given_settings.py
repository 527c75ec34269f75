"""Parser of the given settings; refuses invalid values and combinations."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any
from urllib.parse import urlsplit

from bootstrap import network_addresses
from bootstrap.errors import UnknownSource, UnknownTarget
from bootstrap.settings import BUNDLED, SOURCES, TARGETS, Settings
from rayside import options
from rayside.errors import InvalidSetting
from rayside.settings import ENVIRONMENT_PREFIX, THEIRS
from rayside.settings_sources import converted, require_known, validate


def parse(values: Mapping[str, Any], environment: Mapping[str, str] = os.environ) -> Settings:
    """Parses the `rayside:` section of Invoke's merged configuration.

    Values may be strings, as the environment gives them, or YAML's own types; None means "not
    set". `environment` is only searched for keys that Invoke would have ignored in silence.

    Raises UnknownSetting, InvalidSetting, UnknownTarget, UnknownSource.
    """
    known = [spec.name for spec in fields(Settings)]
    for key in values:
        require_known(key, known, "in the rayside section of invoke.yaml")
    for name in environment:
        if name.startswith(ENVIRONMENT_PREFIX):
            key = name.removeprefix(ENVIRONMENT_PREFIX).lower()
            require_known(key, known, f"from {name} in the environment")
    settings = converted(Settings, values)
    if settings.bundle and settings.source == "auto":
        settings = replace(settings, source="bundle")
    is_theirs = any(getattr(settings, key) for key in THEIRS)
    if settings.source == "bundle" and settings.target == "auto" and not is_theirs:
        settings = replace(settings, target="kind")
    _validate(settings)
    validate(settings)
    return settings


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
    if settings.mirror and not network_addresses.is_registry(settings.mirror):
        raise InvalidSetting(
            f"mirror is {settings.mirror!r}, which is no registry",
            hint="name it as HOST[:PORT][/PATH], as in registry.example.com/team",
        )
    try:
        network_addresses.registry_mirrors(settings.registry_mirrors)
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
    if settings.ray_cpus < 1:
        raise InvalidSetting("ray_cpus is 0", hint="choose at least 1")


def _validate_package_index(settings: Settings) -> None:
    """Validates the address; errors don't quote it, as it may contain a password."""
    index = settings.package_index
    if not index:
        return
    if index.startswith("http://"):
        raise InvalidSetting(
            "package_index begins with http://: whoever is on the way could put programs into your cluster",
            hint="name the index by https://; package_index_ca is for a company's own CA certificates",
        )
    if not network_addresses.is_package_index(index) or not _has_a_host(index):
        raise InvalidSetting(
            "package_index is no address of a package index",
            hint="write https://HOST/PATH, or https://USER:PASSWORD@HOST/PATH with @ in these two as %40",
        )
    _refuse_loopback("package_index", index)


def _validate_package_proxy(settings: Settings) -> None:
    """Validates the address; errors don't quote it, as it may contain a password."""
    proxy = settings.package_proxy
    if not proxy:
        return
    if not network_addresses.is_package_proxy(proxy) or not _has_a_host(proxy):
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
    """Returns whether a host, without its port, is a loopback or unspecified address."""
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
        # It is a listen address, and part of a link.
        if address is None or address.is_unspecified or address.is_multicast:
            raise InvalidSetting(
                f"{key} is {given!r}, which is no address of a machine",
                hint=f"name this machine's address in the network of the room, as in 192.0.2.10: {who} there",
            )
    if settings.workshop_host and not network_addresses.is_host_name(settings.workshop_host):
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

    if settings.workshop_home and not network_addresses.is_clone(settings.workshop_home):
        # The error does not quote it: it may contain a login.
        raise InvalidSetting(
            "workshop_home is no address that attendees could paste to clone Rayside",
            hint="write https://HOST/PATH, without a login, of letters, digits and . _ - alone",
        )


def _validate_way(settings: Settings) -> None:
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
    if settings.image_registry and not network_addresses.is_registry(settings.image_registry):
        raise InvalidSetting(
            f"image_registry is {settings.image_registry!r}, which is no registry",
            hint="give it as HOST, HOST:PORT or HOST/PATH, without http://",
        )
