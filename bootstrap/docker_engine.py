"""Docker engine client: connections, the engine's architecture, images.

It uses the same engine as the program `docker`, and so kind: DOCKER_HOST, else the current Docker context.
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

# Read timeout of a client, in seconds.
PATIENCE = 60
# Timeout in seconds of a ping, and seconds after which a wait is reported.
_BRIEF, _SOON = 2.0, 2.0
# API version and architecture, by the engine's address. Neither changes while a command runs, and a request
# for either takes 50 ms: the engine starts the programs below it to get their versions.
_API_VERSIONS: dict[str, str] = {}
_ARCHITECTURE: dict[str, str] = {}
# Seconds that steps checked in parallel wait for the first one's request. Longer waits would add up if the
# engine does not respond.
_ASKING, _TOGETHER = threading.Lock(), 0.5
# Maps the kernel's names of architectures to the names in images
# (https://github.com/containerd/platforms, normalizeArch).
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "armv8": "arm64", "i386": "386"}


@contextmanager
def connected(patience: float = PATIENCE) -> Iterator[DockerClient]:
    """Yields a client, closed afterwards.

    `patience`: read timeout in seconds. Raises EngineNotRunning, EngineNotSupported.
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
    """Returns a client, to be closed; it requests the API version only the first time.

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
    """Returns the chosen engine as a suffix for messages; empty for this machine's default engine."""
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
        except Exception:  # The package lets any error of a missing or broken file through.
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
    """Returns whether the engine has a Unix socket on this machine; mostly it shares the kernel, then."""
    return not _host() or _host().startswith("unix://")


def answers() -> bool:
    """Returns whether the engine responds to a ping."""
    try:
        with connected(_BRIEF) as client:
            return bool(client.ping())
    except (EngineNotRunning, EngineNotPermitted):
        return False


def wait(patience: float, report: Report) -> bool:
    """Returns whether the engine responds within `patience` seconds; reports a longer wait."""
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
    """Yields the events of a pull or a build; after any failure the last event has `error`."""
    import docker.errors
    from urllib3.exceptions import HTTPError

    try:
        yield from start()
    except docker.errors.APIError as error:
        yield {"error": error.explanation or str(error)}
    except (HTTPError, OSError) as error:
        yield {"error": f"the Docker engine broke off: {error}"}


def architecture(client: DockerClient) -> str:
    """Returns the engine's architecture, as images name it: amd64, arm64, ..."""
    with _asking():
        if _host() not in _ARCHITECTURE:
            _ARCHITECTURE[_host()] = normal(client.info()["Architecture"])
        return _ARCHITECTURE[_host()]


def normal(name: str) -> str:
    """Returns an architecture's name in images, from that name or the kernel's."""
    return _ARCHITECTURES.get(name, name)


def image(client: DockerClient, reference: str) -> dict[str, Any] | None:
    """Returns an image's attributes (`docker inspect`); None if the engine has no image of that name."""
    import docker.errors

    try:
        return dict(client.api.inspect_image(reference))
    except docker.errors.ImageNotFound:
        return None


def digests(attributes: dict[str, Any]) -> list[str]:
    """Returns the registry digests (`sha256:...`) in an image's attributes."""
    return [name.rpartition("@")[2] for name in attributes.get("RepoDigests") or []]


def missed_architecture(client: DockerClient, attributes: dict[str, Any] | None, meant: str = "") -> str:
    """Returns the architecture `meant` if the image with these attributes is for another; else empty.

    Default of `meant`: the engine's architecture.
    """
    if attributes is None:
        return ""
    needed = meant or architecture(client)
    return needed if normal(attributes["Architecture"]) != needed else ""


def require_architecture(client: DockerClient, reference: str, meant: str = "") -> None:
    """Raises WrongArchitecture if the engine has the image for another architecture than `meant`.

    Default of `meant`: the engine's architecture, as an image for another would have to be emulated.
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
