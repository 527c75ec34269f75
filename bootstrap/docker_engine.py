"""Asks the Docker engine: a connection, its architecture, whether it has an image.

The engine is the one that the program `docker` uses, and with it kind: DOCKER_HOST, else that of its context.
"""

from __future__ import annotations

import os
import re
import shlex
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bootstrap.errors import EngineNotPermitted, EngineNotRunning, EngineNotSupported, WrongArchitecture
from rayside.steps.step import Report
from rayside.waiting import until

if TYPE_CHECKING:
    from docker import DockerClient

# A client waits so many seconds for each piece of an answer.
PATIENCE = 60
# We wait so many seconds for a mere sign of life, and say after so many that we wait.
_BRIEF, _SOON = 2.0, 2.0
# By the engine's address: the version of its API, and its architecture. Neither changes while a command runs,
# and asking for either takes 50 ms: the engine starts the programs below it to know their versions.
_API_VERSIONS: dict[str, str] = {}
_ARCHITECTURE: dict[str, str] = {}
# Steps that are looked at side by side wait so many seconds for the first of them to have asked: no longer,
# for each would wait for an engine that is silent, one after the other.
_ASKING, _TOGETHER = threading.Lock(), 0.5
# This maps the kernel's names of machines to those of images
# (https://github.com/containerd/platforms, normalizeArch).
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "armv8": "arm64", "i386": "386"}


@contextmanager
def connected(patience: float = PATIENCE) -> Iterator[DockerClient]:
    """Yields a client, closed afterwards.

    The engine may be silent for `patience` seconds. Raises EngineNotRunning, EngineNotSupported.
    """
    import docker.errors
    import requests

    try:
        client = new_client(patience)
        try:
            yield client
        finally:
            client.close()
    except (docker.errors.DockerException, requests.RequestException) as error:
        raise EngineNotRunning(
            f"the Docker engine{named()} does not answer as it should: {error}",
            hint="./invokew doctor --fix --target kind",
        ) from None


def new_client(patience: float) -> DockerClient:
    """Returns a client, to be closed, which asks for the version of the API the first time alone.

    Raises docker.errors.DockerException, requests.RequestException, EngineNotSupported.
    """
    import docker

    host = _host()
    with _asking():
        client = docker.from_env(timeout=patience, version=_API_VERSIONS.get(host))
        _API_VERSIONS[host] = client.api.api_version
    return client


@contextmanager
def _asking() -> Iterator[None]:
    alone = _ASKING.acquire(timeout=_TOGETHER)
    try:
        yield
    finally:
        if alone:
            _ASKING.release()


def named() -> str:
    """Returns which engine was chosen, to be put after a noun; empty for the usual one of this machine."""
    if host := os.environ.get("DOCKER_HOST"):
        return f" at DOCKER_HOST={re.sub('//[^/]*@', '//', host)}"  # without a login
    return f" of the Docker context {name}" if (name := _context()) else ""


def _context() -> str:
    """Returns the name of the current context; empty for the default."""
    from docker.context.config import get_current_context_name

    if os.environ.get("DOCKER_HOST"):
        return ""
    name = os.environ.get("DOCKER_CONTEXT") or get_current_context_name()
    return name if isinstance(name, str) and name != "default" else ""


def _host() -> str:
    """Returns the engine's address; empty for the usual socket.

    Raises EngineNotSupported where the program `docker` may reach an engine that the package `docker` can't.
    """
    host, name = os.environ.get("DOCKER_HOST", ""), _context()
    without_certificate = False
    if name:
        from docker.context import ContextAPI
        from docker.utils.config import find_config_file

        try:
            if not find_config_file():  # It would look for contexts in the current folder.
                raise FileNotFoundError
            context = ContextAPI.get_context(name)
            host, tls = context.Host, context.TLSConfig
            checks = context.endpoints["docker"]["SkipTLSVerify"] or Path(context.tls_path, "docker").is_dir()
            without_certificate = host.startswith("tcp://") and checks and tls is None
        except Exception:  # It raises what a missing or broken file comes to.
            inspect = f"docker context inspect {shlex.quote(name)} --format '{{{{.Endpoints.docker.Host}}}}'"
            raise EngineNotSupported(
                f"the Docker context {name} can't be read",
                hint=f'export DOCKER_HOST="$({inspect})"',
            ) from None
    if host.startswith("ssh://") or without_certificate:
        why = "by TLS without a client's certificate" if without_certificate else "by SSH"
        raise EngineNotSupported(
            f"the Docker engine{named()} is reached {why}, which Rayside can't do",
            hint="export DOCKER_HOST=unix:///PATH names another (ssh -L forwards one); or --target local",
        )
    return host


def is_of_this_machine() -> bool:
    """Returns whether the engine is asked by a socket of this machine: it is mostly the same kernel's."""
    return not _host() or _host().startswith("unix://")


def answers() -> bool:
    """Returns whether an engine answers us."""
    try:
        with connected(_BRIEF) as client:
            return bool(client.ping())
    except (EngineNotRunning, EngineNotPermitted):
        return False


def wait(patience: float, report: Report) -> bool:
    """Returns whether an engine answers within `patience` seconds; reports where that is not soon."""
    if until(answers, bool, min(patience, _SOON)):
        return True
    if patience > _SOON:
        report(f"Waiting up to {patience:g} s for the Docker engine")
        if until(answers, bool, patience - _SOON):
            report("The Docker engine answers")
            return True
    report(f"No Docker engine answered within {patience:g} s")
    return False


def events(start: Callable[[], Iterator[dict[str, Any]]]) -> Iterator[dict[str, Any]]:
    """Yields the events of a pull or a build; if it fails, in whatever way, the last has `error`."""
    import docker.errors
    from urllib3.exceptions import HTTPError

    try:
        yield from start()
    except docker.errors.APIError as error:
        yield {"error": error.explanation or str(error)}
    except (HTTPError, OSError) as error:
        yield {"error": f"the Docker engine broke off: {error}"}


def architecture(client: DockerClient) -> str:
    """Returns the architecture that the engine runs, as images call it: amd64, arm64, ..."""
    with _asking():
        if _host() not in _ARCHITECTURE:
            _ARCHITECTURE[_host()] = normal(client.info()["Architecture"])
        return _ARCHITECTURE[_host()]


def normal(name: str) -> str:
    """Returns the name that images have for an architecture, from that name or the kernel's."""
    return _ARCHITECTURES.get(name, name)


def image(client: DockerClient, reference: str) -> dict[str, Any] | None:
    """Returns what the engine knows of an image (`docker inspect`); None where it has none of that name."""
    import docker.errors

    try:
        return dict(client.api.inspect_image(reference))
    except docker.errors.ImageNotFound:
        return None


def digests(attributes: dict[str, Any]) -> list[str]:
    """Returns the digests that registries gave the image which `image` found: `sha256:...`."""
    return [name.rpartition("@")[2] for name in attributes.get("RepoDigests") or []]


def missed_architecture(client: DockerClient, attributes: dict[str, Any] | None, meant: str = "") -> str:
    """Returns the architecture `meant` where the image which `image` found is for another; else empty.

    `meant` is the engine's where it is empty.
    """
    if attributes is None:
        return ""
    needed = meant or architecture(client)
    return needed if normal(attributes["Architecture"]) != needed else ""


def require_architecture(client: DockerClient, reference: str, meant: str = "") -> None:
    """Raises WrongArchitecture where the engine has the image, and it is not for the architecture `meant`.

    That is the engine's own where it is empty: an image for another would have to be emulated.
    """
    attributes = image(client, reference)
    if attributes and (needed := missed_architecture(client, attributes, meant)):
        if meant:
            raise WrongArchitecture(
                f"the image {reference} is for {attributes['Architecture']}, not for {meant}",
                hint=f"name one for {meant} in the settings",
            )
        raise WrongArchitecture(
            f"the image {reference} is for {attributes['Architecture']}, the Docker engine runs {needed}",
            hint=f"remove it (docker image rm {reference}) and name one for {needed} in the settings",
        )
