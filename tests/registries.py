"""Container registries for tests: Debian's package `docker-registry` on the loopback address."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bootstrap.registry.address import Address
from bootstrap.settings import Settings
from bootstrap.sources.registry_client import RegistryClient
from rayside.errors import MissingProgram
from rayside.steps.step import Condition
from rayside.system.shell import Shell
from rayside.waiting import until
from tests.integration.self_signed import self_signed

USER, PASSWORD = "ada", "only a test"
# The password in htpasswd format, with bcrypt: docker-registry accepts nothing else.
_USERS = f"{USER}:$2y$05$abcdefghijklmnopqrstuuS7mRGduleRKIXcVMQ9g35T3JQFlhvjq\n"


@dataclass(frozen=True)
class Served:
    """Running registry: `name` is its host and port; with TLS, `authority` is the file of its certificate."""

    name: str
    storage: Path
    authority: Path | None = None


@contextlib.contextmanager
def served(
    folder: Path,
    *,
    host: str = "127.0.0.1",
    encrypted: bool = False,
    users: str | None = None,
    certificate: tuple[Path, Path] | None = None,
    command: Callable[..., list[str]] = lambda *words: list(words),
    **more: Any,
) -> Iterator[Served]:
    """Runs a registry; `users` are its users in htpasswd format.

    `certificate` are the files of a certificate and its key; `command` wraps a command line, for example
    for a network namespace; `more` is added to its `storage`.
    """
    if shutil.which("docker-registry") is None:
        why = "docker-registry is not on this machine"
        pytest.skip(why)
    folder.mkdir(exist_ok=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        name = f"{host}:{probe.getsockname()[1]}"
    storage = folder / "storage"
    config: dict[str, Any] = {
        "version": 0.1,
        "log": {"level": "warn"},
        "storage": {"filesystem": {"rootdirectory": str(storage)}, **more},
        "http": {"addr": name},
    }
    authority = None
    if encrypted or certificate:
        authority, key = certificate or self_signed(host, folder)
        config["http"]["tls"] = {"certificate": str(authority), "key": str(key)}
    if users is not None:
        (folder / "users").write_text(users)
        config["auth"] = {"htpasswd": {"realm": "test", "path": str(folder / "users")}}
    (folder / "config.yml").write_text(json.dumps(config))  # JSON is YAML
    with (folder / "log").open("wb") as log:
        words = command("docker-registry", "serve", str(folder / "config.yml"))
        with subprocess.Popen(words, stdout=log, stderr=log) as process:
            try:
                assert until(lambda: _answers(command, name), bool, 60), (folder / "log").read_text()
                yield Served(name, storage, authority)
            finally:
                process.terminate()


@contextlib.contextmanager
def with_oras() -> Iterator[None]:
    """Puts the registry client on PATH; downloads or builds it if this machine has none."""
    client = RegistryClient(Settings(), Shell())
    try:
        if client.check().condition is Condition.MISSING:
            client.apply(lambda _: None)
        program = client.of(Address("registry.test"), None).program
    except MissingProgram as error:
        pytest.skip(error.message)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
        yield


@contextlib.contextmanager
def private(folder: Path, host: str = "localhost", **more: Any) -> Iterator[Served]:
    """Runs a registry with TLS, by default self-signed, for `USER` alone."""
    with served(folder, host=host, encrypted=True, users=_USERS, **more) as registry:
        yield registry


def logged_in(name: str, folder: Path, password: str = PASSWORD) -> Path:
    """Returns a folder for DOCKER_CONFIG with a login for that registry."""
    folder.mkdir(exist_ok=True)
    login = base64.b64encode(f"{USER}:{password}".encode()).decode()
    (folder / "config.json").write_text(json.dumps({"auths": {name: {"auth": login}}}))
    return folder


def _answers(command: Callable[..., list[str]], name: str) -> bool:
    asks = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 5).close()"
    words = command(sys.executable, "-c", asks, *name.split(":"))
    return subprocess.run(words, capture_output=True, check=False).returncode == 0
