"""Tests the devcontainer: npm's `@devcontainers/cli` reads it, and really starts it.

The public base image and features are not reachable everywhere, so the container is made from the base image
of source `packages`, and has this machine's engine in place of its own. Its hooks are ours, as they stand.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import docker
import pytest

from bootstrap.settings import ROOT, Settings
from bootstrap.sources.base_image import BaseImage
from bootstrap.sources.image_build import ImageBuild, certificates
from rayside.settings import environment_name
from rayside.system.shell import Shell
from tests import npm
from tests.checkout import check_out
from tests.conftest import FIGURE
from tests.e2e.conftest import traces
from tests.e2e.test_workspace_image import make_image
from tests.integration.conftest import Rayside, apart

CLIENT = Path(__file__).parent / "devcontainer"
CONFIGURATION = ROOT / ".devcontainer"
HOOKS = ("onCreateCommand", "updateContentCommand", "postStartCommand")
# Where a company's proxy or mirror has to be known inside, too.
PASSED_ON = (
    "PIP_INDEX_URL",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
)
BUNDLE = "/etc/ssl/certs/ca-certificates.crt"
# Seconds for a start whose images are not built yet.
PATIENCE = 3600


@dataclass(frozen=True)
class Tool:
    """Runs the command line of the devcontainer specification's own implementation."""

    program: Path
    environment: dict[str, str]

    def run(self, *words: str | Path, timeout: float) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.program, *words],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )


@pytest.fixture(scope="module")
def tool(node: Path) -> Tool:
    return Tool(npm.packages(node, CLIENT) / ".bin" / "devcontainer", npm.environment(node))


@pytest.fixture(scope="module")
def configuration(tool: Tool) -> dict[str, Any]:
    """Returns our configuration, as the tool reads it."""
    done = tool.run("read-configuration", "--workspace-folder", ROOT, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return dict(json.loads(done.stdout)["configuration"])


def test_every_hook_is_one_verb_of_ours_with_options_it_has(configuration: dict[str, Any]) -> None:
    hooks = {name for name in configuration if re.fullmatch(r"\w+Command", name)}
    assert hooks == set(HOOKS)
    for hook in HOOKS:
        wrapper, verb, *options = configuration[hook].split()
        assert wrapper == "./invokew"
        text = subprocess.run(
            [ROOT / "invokew", verb, "--help"], capture_output=True, text=True, check=True, timeout=60
        ).stdout
        assert all(option in text for option in options if option.startswith("--")), text


def test_the_ports_are_the_settings_own_and_each_has_a_name(configuration: dict[str, Any]) -> None:
    settings = Settings()
    ports = [settings.workspace_port, settings.dashboard_port, settings.relay_port]
    assert configuration["forwardPorts"] == ports
    assert set(configuration["portsAttributes"]) == {str(port) for port in ports}
    assert all(attributes["label"] for attributes in configuration["portsAttributes"].values())
    # Public is not among what a file can ask for; nothing here asks for it in another way.
    assert "visibility" not in json.dumps(configuration)


def test_image_and_features_are_pinned(configuration: dict[str, Any]) -> None:
    assert re.search(r"@sha256:[0-9a-f]{64}$", configuration["image"])
    locked = json.loads((CONFIGURATION / "devcontainer-lock.json").read_text())["features"]
    assert set(configuration["features"]) == set(locked)
    for name, entry in locked.items():
        assert name.endswith(f":{entry['version']}")
        assert entry["resolved"] == f"{name.rsplit(':', 1)[0]}@{entry['integrity']}"


def test_the_machine_asked_for_has_room_for_kind(configuration: dict[str, Any]) -> None:
    required, settings = configuration["hostRequirements"], Settings()
    assert float(required["memory"].removesuffix("gb")) > settings.kind_min_memory_gib
    assert float(required["storage"].removesuffix("gb")) > settings.kind_min_disk_gib
    assert configuration["containerEnv"][environment_name("state_folder")].startswith("/home/vscode/")


def test_a_prebuild_without_an_engine_caches_what_needs_none(tmp_path: Path) -> None:
    nowhere = {"DOCKER_HOST": f"unix://{tmp_path}/engine.sock"}
    settings = replace(Settings(), source="packages", state_folder=Path("/tmp/rs-prebuild"))
    # Each `prepare` asks a gallery again for what it did not have.
    rayside = Rayside(replace(settings, vsix_folder=str(tmp_path)), nowhere)
    for _ in range(2):
        done = rayside.run("prepare", timeout=PATIENCE)
        assert done.returncode == 0, done.stdout + done.stderr
        left_out, prepared = done.stdout.splitlines()
        assert left_out.startswith("Left out, as no Docker engine answers: base image")
    # All of it was cached by the first.
    assert prepared == "Nothing to prepare: the rest is cached. Next: ./invokew up"
    for program in ("kind", "kubernetes", "kuberay", "coredns", "ray"):
        assert list(rayside.settings.cache_folder.glob(f"{program}-*/")), program


# --- started for real --------------------------------------------------------------------


@dataclass(frozen=True)
class Devcontainer:
    """A checkout in the tool's container; the cluster is made from within, on this machine's engine."""

    tool: Tool
    checkout: Path
    override: Path
    rayside: Rayside

    def up(self) -> tuple[str, dict[str, float]]:
        """Returns what the tool prints, and the seconds that each hook took."""
        began = time.monotonic()
        seconds: dict[str, float] = {}
        lines: list[str] = []
        hook = ""
        with subprocess.Popen(
            [self.tool.program, "up", *self._where],
            env=self.tool.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as running:
            assert running.stdout
            for line in running.stdout:
                lines.append(line)
                if announced := re.search(rf"Running the ({'|'.join(HOOKS)})", line):
                    hook, began = announced[1], time.monotonic()
                elif hook:
                    seconds[hook] = time.monotonic() - began
        assert running.returncode == 0, "".join(lines)
        return "".join(lines), seconds

    def run(self, *arguments: str, timeout: float = 600) -> subprocess.CompletedProcess[str]:
        """Runs a verb inside."""
        return self.tool.run("exec", *self._where, "./invokew", *arguments, timeout=timeout)

    @property
    def _where(self) -> list[str | Path]:
        label = f"rayside.test={self.checkout}"
        where: list[str | Path] = ["--workspace-folder", self.checkout, "--id-label", label]
        return [*where, "--override-config", self.override]


@pytest.fixture(scope="module")
def base() -> str:
    """Makes an image that has what the hooks need of the public one."""
    settings = Settings()
    settings.cache_folder.mkdir(parents=True, exist_ok=True)
    debian = make_image(BaseImage(Shell(), settings.cache_folder, settings.debian_mirror))
    return make_image(
        ImageBuild(
            name="devcontainer-image",
            title="image of the devcontainer's test",
            repository="rayside/devcontainer-test",
            context=CLIENT / "image",
            arguments={"BASE": debian},
            cache_folder=settings.cache_folder,
        )
    )


@pytest.fixture(scope="module")
def devcontainer(tool: Tool, base: str, configuration: dict[str, Any]) -> Iterator[Devcontainer]:
    """Provides the container before its start; removes its container, network, files and processes."""
    folder = Path(tempfile.mkdtemp(prefix="rs-", dir="/tmp"))
    checkout = check_out(folder / "rayside")
    settings = apart(
        # The same path inside and outside: the node mounts from it.
        folder / "state",
        source="packages",
        name="rayside-devcontainer",
        # Without any: each `prepare` asks a gallery again for what it did not have.
        vsix_folder=str(folder),
    )
    rayside = Rayside(settings, {"KUBECONFIG": str(folder / "users-kubeconfig")})
    bundle = folder / "ca-certificates.crt"
    bundle.write_bytes(certificates() or Path(BUNDLE).read_bytes())
    inside = {environment_name(name): str(value) for name, value in vars(settings).items()}
    inside |= {**rayside.environment_too, "PIP_CERT": BUNDLE, "REQUESTS_CA_BUNDLE": BUNDLE}
    inside |= {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    # Of the machine that it runs on, `auto` decides, as in a codespace.
    del inside[environment_name("target")]
    override = {
        name: value for name, value in configuration.items() if name not in ("features", "configFilePath")
    }
    docker_program = shutil.which("docker")
    assert docker_program
    override |= {
        "image": base,
        "remoteUser": "root",
        "containerEnv": inside,
        "runArgs": ["--network=host"],
        "mounts": [
            f"type=bind,source={source},target={target}"
            for source, target in (
                (str(settings.cache_folder), str(settings.cache_folder)),
                (str(folder), str(folder)),
                (str(bundle), BUNDLE),
                (str(Path(docker_program).resolve()), "/usr/local/bin/docker"),
                ("/var/run/docker.sock", "/var/run/docker.sock"),
            )
        ],
    }
    # Only hooks are waited for: all of them.
    override["waitFor"] = "postStartCommand"
    file = folder / "devcontainer.json"
    file.write_text(json.dumps(override))
    started = Devcontainer(tool, checkout, file, rayside)
    yield started
    client = docker.from_env()
    try:
        for container in client.containers.list(all=True, filters={"label": f"rayside.test={checkout}"}):
            container.remove(v=True, force=True)
    finally:
        client.close()
    left = traces(rayside)
    shutil.rmtree(folder, ignore_errors=True)
    assert left == []


def test_the_hooks_lead_to_a_ready_cluster(devcontainer: Devcontainer, record_property: Any) -> None:
    with contextlib.ExitStack() as stack:
        stack.callback(lambda: devcontainer.run("down", timeout=300))
        output, seconds = devcontainer.up()
        took = ", ".join(f"{hook} {taken:.0f} s" for hook, taken in seconds.items())
        record_property(FIGURE, f"devcontainer: {took}")
        assert set(seconds) == set(HOOKS), output
        # The first hook cached all that the second could.
        assert "Nothing to prepare: it is all cached" in output
        assert "Target kind (auto: a Docker engine answers)" in output
        status = devcontainer.run("status", "--json")
        assert status.returncode == 0, status.stdout + status.stderr
        document = json.loads(status.stdout)
        assert (document["target"], document["ready"]) == ("kind", True)
        paused = devcontainer.run("breakpoints", "--json")
        assert [task["task"] for task in json.loads(paused.stdout)] == ["estimate"]
        done = devcontainer.run("down", timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
