"""Tests the devcontainer Feature: npm's `@devcontainers/cli` adds it to images, and `rayside` runs there."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import docker
import pytest

import rayside
from bootstrap.settings import ROOT, Settings
from bootstrap.sources.built_here import packages
from bootstrap.sources.image_build import certificates
from rayside.system.shell import Shell
from tests import npm
from tests.e2e.test_devcontainer import BUNDLE, CLIENT, PASSED_ON, PATIENCE, Tool
from tests.e2e.test_workspace_image import make_image
from tests.integration.vsix import without_asking

FEATURE = ROOT / "features" / "rayside"
PROGRAM = """\
import ray

@ray.remote
def half(n):
    return n / 2

ray.init(num_cpus=1, include_dashboard=True)
print(ray.get(half.remote(6)))
"""


@pytest.fixture(scope="module")
def images() -> dict[str, str]:
    """Makes Debian, whose Python is the system's, and Ray on it, in an environment; by their steps' names."""
    settings = Settings()
    settings.cache_folder.mkdir(parents=True, exist_ok=True)
    steps = {step.name: step for step in packages(settings, without_asking(settings), Shell()).steps}
    return {name: make_image(steps[name]) for name in ("base-image", "ray-image")}


@pytest.fixture(scope="module")
def build(node: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], str]]:
    """Builds a devcontainer on an image, with the Feature and a wheel of this checkout; returns its name."""
    tool = Tool(npm.packages(node, CLIENT) / ".bin" / "devcontainer", npm.environment(node))
    built: list[str] = []

    def with_feature(image: str) -> str:
        folder = tmp_path_factory.mktemp("devcontainer") / ".devcontainer"
        feature = shutil.copytree(FEATURE, folder / "rayside")
        command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(feature)]
        subprocess.run(command, cwd=ROOT / "rayside", check=True, capture_output=True, timeout=60)
        (wheel,) = feature.glob("*.whl")
        # Where those that go before it lie, the tool asks about them, and no registry is reachable here.
        described = json.loads((feature / "devcontainer-feature.json").read_text())
        del described["installsAfter"]
        (feature / "devcontainer-feature.json").write_text(json.dumps(described))
        (folder / "ca.crt").write_bytes(certificates() or Path(BUNDLE).read_bytes())
        reach = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        reach |= {"PIP_CERT": BUNDLE, "SSL_CERT_FILE": BUNDLE}
        lines = [f"FROM {image}", "USER root", f"COPY ca.crt {BUNDLE}"]
        lines += [f"ENV {name}={json.dumps(value)}" for name, value in reach.items()]
        (folder / "Dockerfile").write_text("\n".join(lines) + "\n")
        document: dict[str, Any] = {
            "build": {"dockerfile": "Dockerfile", "options": ["--network=host"]},
            "features": {"./rayside": {"source": f"./{wheel.name}"}},
        }
        (folder / "devcontainer.json").write_text(json.dumps(document))
        built.append(f"rayside-feature-test:{uuid.uuid4().hex[:8]}")
        where: list[str | Path] = ["--workspace-folder", folder.parent, "--image-name", built[-1]]
        done = tool.run("build", *where, "--buildkit", "never", timeout=PATIENCE)
        assert done.returncode == 0, done.stdout + done.stderr
        return built[-1]

    yield with_feature
    client = docker.from_env()
    try:
        for name in built:
            with contextlib.suppress(docker.errors.ImageNotFound):
                client.images.remove(name, force=True)
    finally:
        client.close()


def run(image: str, *command: str) -> str:
    """Returns what a command prints in a container of the image, and the error if it fails."""
    client = docker.from_env()
    try:
        options: dict[str, Any] = {"entrypoint": "", "user": "nobody", "environment": {"HOME": "/tmp"}}
        return str(client.containers.run(image, list(command), remove=True, **options).decode())
    finally:
        client.close()


def test_a_python_of_the_system_is_left_as_it_is(build: Callable[[str], str], images: dict[str, str]) -> None:
    image = build(images["base-image"])
    assert run(image, "rayside", "--version") == f"rayside {rayside.__version__}\n"
    # The system's Python has nothing of it, and no home has.
    absent = "import importlib.util as u; print(u.find_spec('rayside'))"
    assert run(image, "python3", "-I", "-c", absent) == "None\n"
    assert run(image, "find", "/home", "-newer", "/usr/local/share/rayside/pyvenv.cfg") == ""
    client = docker.from_env()
    try:
        labels = client.images.get(image).labels["devcontainer.metadata"]
    finally:
        client.close()
    assert "ms-python.debugpy" in labels


def test_it_runs_a_program_with_the_ray_of_the_images_python(
    build: Callable[[str], str], images: dict[str, str]
) -> None:
    image = build(images["ray-image"])
    script = 'printf %s "$0" > /tmp/main.py && cd /tmp && rayside run --json --break main.py:5 main.py'
    document = json.loads(run(image, "sh", "-c", script, PROGRAM))
    assert [stop["locals"]["n"] for stop in document["stopped"]] == ["6"]
