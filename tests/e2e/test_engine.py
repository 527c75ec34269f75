"""Tests that the engine that `doctor --fix` installs runs what kind needs."""

from __future__ import annotations

import hashlib
import io
import json
import re
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest
from docker.models.containers import Container

from bootstrap.settings import ROOT
from bootstrap.steps.bounded_runtime import bounding_set

IMAGE = "rayside-test-engine:latest"


@pytest.fixture(scope="module")
def engine() -> Iterator[docker.DockerClient]:
    """Provides a client, and an image of two programs of this machine with the libraries that they need."""
    client = docker.from_env()
    client.images.load(image())
    yield client
    client.images.remove(IMAGE, force=True)
    client.close()


def image() -> bytes:
    """Returns a one-layer image as `docker save` writes it: config, layer, manifest."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        for name in files():
            tar.add(Path(name).resolve(), arcname=name)
    data = layer.getvalue()
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(data).hexdigest()}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [IMAGE], "Layers": ["layer.tar"]}]
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w") as tar:
        for name, content in (
            ("config.json", json.dumps(config).encode()),
            ("layer.tar", data),
            ("manifest.json", json.dumps(manifest).encode()),
        ):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return whole.getvalue()


def files() -> list[str]:
    linked = subprocess.run(["ldd", "/bin/cat", "/bin/sleep"], capture_output=True, text=True, check=True)
    return ["/bin/cat", "/bin/sleep", *sorted(set(re.findall(r"(/\S+) \(0x", linked.stdout)))]


@pytest.fixture
def privileged(engine: docker.DockerClient) -> Iterator[Container]:
    container = engine.containers.run(IMAGE, ["/bin/sleep", "600"], privileged=True, detach=True)
    yield container
    container.remove(force=True)


def assert_privileged(status: str) -> None:
    """Asserts that it has what kind's node needs, and nothing that the machine lacks."""
    capabilities = bounding_set(status)
    assert capabilities >= {"CAP_SYS_ADMIN", "CAP_NET_ADMIN", "CAP_MKNOD"}
    assert capabilities <= bounding_set(Path("/proc/self/status").read_text())


def test_doctor_finds_nothing_missing() -> None:
    done = subprocess.run(
        [str(ROOT / "invokew"), "doctor", "--target", "kind", "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    document = json.loads(done.stdout)
    assert document["ok"] is True
    engine = next(finding for finding in document["findings"] if finding["id"] == "engine")
    assert engine["detail"].startswith("Docker ")


def test_a_privileged_container_gets_what_the_machine_has(privileged: Container) -> None:
    code, output = privileged.exec_run(["/bin/cat", "/proc/1/status"])
    assert code == 0, output
    assert_privileged(output.decode())


def test_a_privileged_exec_gets_it_too(privileged: Container) -> None:
    code, output = privileged.exec_run(["/bin/cat", "/proc/self/status"], privileged=True)
    assert code == 0, output
    assert_privileged(output.decode())
