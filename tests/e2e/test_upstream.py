"""Tests source `upstream` against a real registry and a real engine, with really built images."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import io
import json
import re
import signal
import socket
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import docker
import docker.errors
import pytest
import requests

from bootstrap import docker_engine
from bootstrap.errors import BuildFailed, DownloadFailed, ImageMissing, WrongArchitecture
from bootstrap.settings import (
    DEBUGPY_VERSION,
    KUBERNETES_VERSION,
    RAY_VERSION,
    ROOT,
    Settings,
)
from bootstrap.sources.base_image import BaseImage
from bootstrap.sources.bundle_file import BundleFile, Wheels
from bootstrap.sources.image_build import LABEL, ImageBuild
from bootstrap.sources.pulled_image import FOREIGN
from bootstrap.sources.purge import names_of_ours
from bootstrap.sources.releases import Releases
from bootstrap.sources.upstream import upstream
from rayside.steps.step import Appliable, Condition
from rayside.system.shell import Shell
from rayside.waiting import until
from tests.integration.vsix import without_asking
from tests.patience import PATIENCE
from tests.registries import served, with_oras

PYTHON = Path(sys.executable).resolve()


def silent(_: str) -> None:
    pass


# --- a registry --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served(tmp_path_factory.mktemp("registry")) as registry:
        yield registry.name


@pytest.fixture(scope="module")
def closed_registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serves a registry that lets nobody in."""
    with served(tmp_path_factory.mktemp("closed-registry"), users="") as registry:
        yield registry.name


# --- images ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def engine() -> Iterator[docker.DockerClient]:
    client = docker.from_env()
    yield client
    client.close()


@pytest.fixture(scope="module")
def architecture(engine: docker.DockerClient) -> str:
    return docker_engine.architecture(engine)


@pytest.fixture(scope="module")
def other(architecture: str) -> str:
    """Returns an architecture that is not the engine's."""
    return "arm64" if architecture == "amd64" else "amd64"


def load(
    engine: docker.DockerClient, reference: str, layer: bytes, config: dict[str, Any], architecture: str
) -> str:
    """Puts a one-layer image into the engine, as `docker save` would have written it, and returns its id."""
    document = {
        "architecture": architecture,
        "os": "linux",
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [reference], "Layers": ["layer.tar"]}]
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w") as tar:
        for name, content in (
            ("config.json", json.dumps(document).encode()),
            ("layer.tar", layer),
            ("manifest.json", json.dumps(manifest).encode()),
        ):
            add(tar, name, content)
    engine.images.load(whole.getvalue())
    return str(engine.images.get(reference).id)


def add(tar: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    tar.addfile(entry, io.BytesIO(content))


def add_folder(tar: tarfile.TarFile, name: str, mode: int, owner: int = 0) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode, entry.uid = tarfile.DIRTYPE, mode, owner
    tar.addfile(entry)


def publish(engine: docker.DockerClient, reference: str) -> None:
    """Pushes the image, and removes it from the engine."""
    for line in engine.images.push(reference, stream=True, decode=True):
        assert "error" not in line, line
    engine.images.remove(reference, force=True)


@pytest.fixture
def published(engine: docker.DockerClient, registry: str) -> Iterator[Callable[[str, str], None]]:
    """Puts a small image of an architecture into the registry, under a name and tag; each is another."""
    names: list[str] = []

    def publish_image(name: str, architecture: str) -> None:
        layer = io.BytesIO()
        with tarfile.open(fileobj=layer, mode="w") as tar:
            add(tar, "hello", f"{registry}/{name} {len(names)}".encode())
        load(engine, f"{registry}/{name}", layer.getvalue(), {}, architecture)
        publish(engine, f"{registry}/{name}")
        names.append(f"{registry}/{name}")

    yield publish_image
    for name in names:
        with contextlib.suppress(docker.errors.ImageNotFound):  # the test did not pull it
            engine.images.remove(name, force=True)


def with_python() -> bytes:
    """Returns a layer with a shell and this Python, with its pip, for a user of number 1000."""
    programs = ["/bin/sh", "/bin/cp", "/bin/sed", "/bin/sleep", str(PYTHON)]
    library = Path(sysconfig.get_path("stdlib"))
    modules = [str(file) for file in (library / "lib-dynload").glob("*.so")]
    linked = subprocess.run(["ldd", *programs, *modules], capture_output=True, text=True, check=True).stdout
    pip = importlib.util.find_spec("pip")
    assert pip
    assert pip.origin
    unwanted = {"__pycache__", "site-packages", "dist-packages", "test", "idlelib", "tkinter", "lib2to3"}

    def needed(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        path = Path(entry.name)
        return None if unwanted & set(path.parts) or path.name.startswith("config-") else entry

    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        for name in sorted({*programs, *re.findall(r"(/\S+) \(0x", linked)}):
            tar.add(Path(name).resolve(), arcname=name)
        tar.add(library, filter=needed)
        tar.add(Path(pip.origin).parent, arcname="/opt/pip/pip")
        start = f"#!/bin/sh\nPYTHONPATH=/opt/pip exec {PYTHON} -m pip $@\n"
        add(tar, "usr/bin/pip", start.encode(), 0o755)
        add(tar, "usr/bin/python3", f'#!/bin/sh\nexec {PYTHON} "$@"\n'.encode(), 0o755)
        for folder in (library / "site-packages", PYTHON.parent):
            add_folder(tar, str(folder).lstrip("/"), 0o755, owner=1000)
        add(tar, "etc/passwd", b"root:x:0:0::/root:/bin/sh\nray:x:1000:100::/home/ray:/bin/sh\n")
        add_folder(tar, "tmp", 0o1777)
        add_folder(tar, "home/ray", 0o755, owner=1000)
    return layer.getvalue()


@pytest.fixture(scope="module")
def base(engine: docker.DockerClient, architecture: str) -> Iterator[str]:
    """Makes what is to `upstream` as the public Ray image is: Python, pip, a user that isn't root."""
    reference = "rayside-test-upstream:base"
    config = {"User": "1000", "WorkingDir": "/home/ray", "Env": ["PATH=/usr/bin:/bin", "HOME=/home/ray"]}
    load(engine, reference, with_python(), config, architecture)
    layer = engine.images.get(reference).attrs["RootFS"]["Layers"][0]
    yield reference
    # What was built on it too; then the stages of builds, which have no name.
    for image in [*engine.api.images(), *engine.api.images(all=True)]:
        with contextlib.suppress(docker.errors.ImageNotFound):  # gone with one that was built on it
            if layer in engine.images.get(image["Id"]).attrs["RootFS"]["Layers"]:
                engine.images.remove(image["Id"], force=True)


# --- public images -----------------------------------------------------------------------


@pytest.fixture(scope="module", autouse=True)
def oras() -> Iterator[None]:
    with with_oras():
        yield


def source(tmp_path: Path, **images: str) -> Releases:
    return Releases(Settings(cache_folder=tmp_path / "cache", **images))  # type: ignore[arg-type]


def for_another_machine(here: Releases, architecture: str) -> Releases:
    return replace(here, system="linux", architecture=architecture, images=architecture)


def step(releases: Releases, name: str) -> Appliable:
    steps = upstream(releases, without_asking(releases.settings), Shell()).steps
    return next(candidate for candidate in steps if candidate.name == name)


def publish_index(registry: str, name: str, tag: str, architectures: Sequence[str]) -> None:
    """Gives a tag to an index of the images whose tags are their architectures, as a registry has them."""
    manifests = []
    for architecture in architectures:
        kind = "application/vnd.docker.distribution.manifest.v2+json"
        address = f"http://{registry}/v2/{name}/manifests"
        answer = requests.get(f"{address}/{architecture}", headers={"Accept": kind}, timeout=PATIENCE)
        platform = {"architecture": architecture, "os": "linux"}
        digest = f"sha256:{hashlib.sha256(answer.content).hexdigest()}"
        manifests.append(
            {"mediaType": kind, "size": len(answer.content), "digest": digest, "platform": platform}
        )
    kind = "application/vnd.docker.distribution.manifest.list.v2+json"
    document = {"schemaVersion": 2, "mediaType": kind, "manifests": manifests}
    requests.put(
        f"{address}/{tag}", json.dumps(document), headers={"Content-Type": kind}, timeout=PATIENCE
    ).raise_for_status()


@pytest.fixture
def both(
    registry: str,
    published: Callable[[str, str], None],
    architecture: str,
    other: str,
    request: pytest.FixtureRequest,
) -> tuple[str, str]:
    """Publishes an index for this machine and another; returns its name, and the other's architecture."""
    name = f"both-{hashlib.sha256(request.node.name.encode()).hexdigest()[:8]}/node"
    for machine in (architecture, other):
        published(f"{name}:{machine}", machine)
    publish_index(registry, name, f"v{KUBERNETES_VERSION}", (architecture, other))
    return f"{registry}/{name}", other


@pytest.mark.parametrize("held", ["by record", "by pin", "by nothing"])
def test_the_image_for_another_machine_does_not_take_the_name_of_this_ones(
    engine: docker.DockerClient, both: tuple[str, str], architecture: str, held: str, tmp_path: Path
) -> None:
    name, other = both
    here = replace(source(tmp_path, node_image=name), recorded=tmp_path / "digests.json")
    digest = here.node.published()
    if held == "by pin":
        here = replace(here, settings=replace(here.settings, node_image=f"{name}@{digest}"))
    records = {f"node-image v{KUBERNETES_VERSION}": digest} if held == "by record" else {}
    here.recorded.write_text(json.dumps(records))
    there = for_another_machine(here, other)
    try:
        here.node.apply(silent)
        there.node.apply(silent)
        # Neither is in the other's way, and each can come anew.
        assert here.node.check().condition is Condition.READY
        engine.images.remove(there.node.reference, force=True)
        for each in (there, here):
            each.node.apply(silent)
        # Another image can be built on it, and it goes when its names do, but not a user's own.
        base = build(tmp_path, there.node.reference, "COPY Dockerfile /")
        replace(base, architecture=other).apply(silent)
        built = engine.images.get(replace(base, architecture=other).reference)
        assert built.attrs["Architecture"] == other
        engine.images.remove(built.id, force=True)
        foreign = engine.images.get(there.node.reference)
        foreign.tag("rayside-test-upstream", "own")
        names = [each for each in names_of_ours(engine, FOREIGN) if each in foreign.tags]
        assert "rayside-test-upstream:own" not in names
        assert len(names) == 2
        engine.images.remove("rayside-test-upstream:own")
        for tag in names:
            engine.images.remove(tag)
        with pytest.raises(docker.errors.ImageNotFound):
            engine.images.get(foreign.id)
        there.node.apply(silent)
        for each, machine in ((here, architecture), (there, other)):
            assert each.node.check().condition is Condition.READY
            assert engine.images.get(each.node.reference).attrs["Architecture"] == machine
        # The digest is that of the index, which is for both.
        assert there.node.recorded == (None if held == "by pin" else digest)
        if held != "by pin":
            # What was pulled by another record is not what is recorded now.
            (tmp_path / "cache" / "digests.json").unlink(missing_ok=True)
            here.recorded.write_text(json.dumps({f"node-image v{KUBERNETES_VERSION}": f"sha256:{'0' * 64}"}))
            anew = replace(there)
            assert anew.node.check().condition is Condition.MISSING
            with pytest.raises(ImageMissing, match=f"has no image for linux/{other}"):
                anew.node.apply(silent)
    finally:
        for each in (here, there):
            for image in engine.images.list():
                if each.node.reference in image.tags:
                    engine.images.remove(image.id, force=True)


def test_an_image_for_another_machine_gets_into_no_bundle(
    engine: docker.DockerClient, architecture: str, other: str, tmp_path: Path
) -> None:
    reference = "rayside-test-upstream:foreign"
    load(engine, reference, b"", {}, other)
    try:
        releases = source(tmp_path)
        origin = upstream(releases, without_asking(releases.settings), Shell())
        wheels = Wheels(Shell(), tmp_path, ("3.11",))
        made = BundleFile(
            tmp_path / "a bundle", origin, {"ray": reference}, (), wheels, tmp_path, Shell(), ()
        )
        with pytest.raises(WrongArchitecture, match=f"is for {other}, not for {architecture}"):
            made.apply(silent)
        assert not made.file.exists()
    finally:
        engine.images.remove(reference, force=True)


def test_debian_for_another_machine_is_an_image_for_that(
    engine: docker.DockerClient, other: str, tmp_path: Path
) -> None:
    # Of another key than the true ones.
    base = BaseImage(Shell(), tmp_path, "http://127.0.0.1:1/debian", other)
    archive = tmp_path / "system.tar"
    with tarfile.open(archive, "w") as tar:
        add(tar, "etc/hello", b"hello")
    try:
        base._import(archive)
        assert base.check().condition is Condition.READY
        assert engine.images.get(base.reference).attrs["Architecture"] == other
        assert engine.images.get(base.reference).labels[LABEL] == base._key
        files = engine.api.create_container(base.reference, "none")
        stream, _ = engine.api.get_archive(files["Id"], "/etc/hello")
        assert b"hello" in b"".join(stream)
        engine.api.remove_container(files["Id"])
        with tarfile.open(archive, "w") as tar:
            add(tar, "large", b"x" * 100_000)
        archive.write_bytes(archive.read_bytes()[:2000])  # as on a disk that is full
        with pytest.raises(BuildFailed, match="could not be made an image"):
            base._import(archive)
    finally:
        engine.images.remove(base.reference, force=True)


def layers(engine: docker.DockerClient, reference: str) -> list[str]:
    return list(engine.images.get(reference).attrs["RootFS"]["Layers"])


def test_the_recorded_image_is_had_whatever_its_tag_is_by_now(
    engine: docker.DockerClient,
    registry: str,
    published: Callable[[str, str], None],
    architecture: str,
    tmp_path: Path,
) -> None:
    name = f"held/node:v{KUBERNETES_VERSION}"
    published(name, architecture)
    releases = replace(
        source(tmp_path, node_image=f"{registry}/held/node"), recorded=tmp_path / "digests.json"
    )
    digest = releases.node.published()
    releases.recorded.write_text(json.dumps({f"node-image v{KUBERNETES_VERSION}": digest}))
    releases.node.apply(silent)
    right = layers(engine, releases.node.reference)
    assert releases.node.check().condition is Condition.READY
    # Whoever holds the registry moves the tag, and somebody of this machine pulls it.
    published(name, architecture)
    engine.images.pull(f"{registry}/held/node", f"v{KUBERNETES_VERSION}")
    assert layers(engine, releases.node.reference) != right
    status = releases.node.check()
    assert status.condition is Condition.MISSING
    assert f"not {digest} as recorded" in status.detail
    releases.node.apply(silent)
    assert layers(engine, releases.node.reference) == right
    assert releases.node.check().condition is Condition.READY
    engine.images.remove(f"{registry}/held/node@{digest}", force=True)


def test_an_image_that_is_not_the_recorded_one_is_refused(
    registry: str, published: Callable[[str, str], None], architecture: str, tmp_path: Path
) -> None:
    published(f"other/node:v{KUBERNETES_VERSION}", architecture)
    releases = replace(
        source(tmp_path, node_image=f"{registry}/other/node"), recorded=tmp_path / "digests.json"
    )
    digest = f"sha256:{'0' * 64}"
    releases.recorded.write_text(json.dumps({f"node-image v{KUBERNETES_VERSION}": digest}))
    with pytest.raises(ImageMissing, match=f"as the image that is recorded, {digest}"):
        releases.node.apply(silent)
    assert releases.node.check().condition is Condition.MISSING


def test_the_first_pull_of_what_is_not_recorded_is_recorded_in_the_cache(
    engine: docker.DockerClient,
    registry: str,
    published: Callable[[str, str], None],
    architecture: str,
    tmp_path: Path,
) -> None:
    name, reported = f"first/node:v{KUBERNETES_VERSION}", list[str]()
    published(name, architecture)
    releases = source(tmp_path, node_image=f"{registry}/first/node")
    releases.node.apply(reported.append)
    assert any("held to the digest of this first fetch" in line for line in reported)
    right = layers(engine, releases.node.reference)
    engine.images.remove(releases.node.reference, force=True)
    published(name, architecture)
    releases.node.apply(silent)
    assert layers(engine, releases.node.reference) == right


def test_an_image_for_another_architecture_is_refused(
    registry: str, published: Callable[[str, str], None], architecture: str, other: str, tmp_path: Path
) -> None:
    published("node:other", other)
    node_image = step(source(tmp_path, node_image=f"{registry}/node:other"), "node-image")
    with pytest.raises(WrongArchitecture, match=f"is for {other}, the Docker engine runs {architecture}"):
        node_image.apply(silent)
    status = node_image.check()
    assert status.condition is Condition.MISSING
    assert other in status.detail


def test_a_tag_that_is_not_there_is_explained(
    registry: str, published: Callable[[str, str], None], architecture: str, tmp_path: Path
) -> None:
    published("node:v0", architecture)
    with pytest.raises(ImageMissing, match=r"can't be pulled: .*manifest unknown") as caught:
        step(source(tmp_path, node_image=f"{registry}/node"), "node-image").apply(silent)
    assert "INVOKE_RAYSIDE_NODE_IMAGE" in caught.value.hint


def test_a_registry_that_lets_nobody_in_is_explained(closed_registry: str, tmp_path: Path) -> None:
    with pytest.raises(ImageMissing) as caught:
        step(source(tmp_path, node_image=f"{closed_registry}/node"), "node-image").apply(silent)
    assert caught.value.hint == f"docker login {closed_registry}"


def test_a_registry_that_is_not_there_is_explained(tmp_path: Path) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        nowhere = f"127.0.0.1:{listener.getsockname()[1]}/node"
        with pytest.raises(DownloadFailed, match="connection refused") as caught:
            step(source(tmp_path, node_image=nowhere), "node-image").apply(silent)
    assert caught.value.hint.startswith("./invokew up --source packages")


def test_the_ray_image_is_the_public_one_and_debugpy(
    engine: docker.DockerClient, registry: str, base: str, tmp_path: Path
) -> None:
    engine.images.get(base).tag(f"{registry}/ray", RAY_VERSION)
    publish(engine, f"{registry}/ray:{RAY_VERSION}")
    releases = source(tmp_path, ray_image=f"{registry}/ray:{RAY_VERSION}")
    step(releases, "ray-image").apply(silent)
    assert step(releases, "ray-image").check().condition is Condition.READY
    program = (
        "import debugpy, os, pathlib, sys; print(debugpy.__version__, os.getuid(),"
        # What has a plain `breakpoint()` ask for a proof runs at the start of Python.
        "[type(finder).__module__ for finder in sys.meta_path].count('rayside_start'),"
        "pathlib.Path('/etc/ssl/certs/machine.crt').exists())"
    )
    image = upstream(releases, without_asking(releases.settings), Shell()).images.ray
    printed = engine.containers.run(image, [str(PYTHON), "-c", program], remove=True)
    assert printed.decode().split() == [DEBUGPY_VERSION, "1000", "1", "False"]


# --- builds ------------------------------------------------------------------------------


def build(tmp_path: Path, base: str, dockerfile: str) -> ImageBuild:
    context = tmp_path / "context"
    context.mkdir(exist_ok=True)
    (context / "Dockerfile").write_text(f"ARG BASE\nFROM $BASE\n{dockerfile}\n")
    return ImageBuild(
        name="image",
        title="an image",
        repository="rayside-test-upstream",
        context=context,
        cache_folder=tmp_path / "cache",
        arguments={"BASE": base},
    )


APPLY = (
    "import sys; from pathlib import Path; from bootstrap.sources.image_build import ImageBuild;"
    "ImageBuild('image', 'an image', 'rayside-test-upstream', Path(sys.argv[1]), Path(sys.argv[2]),"
    "arguments={'BASE': sys.argv[3]}).apply(lambda text: print(text, flush=True))"
)


def start(image_build: ImageBuild) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [
            sys.executable,
            "-c",
            APPLY,
            str(image_build.context),
            str(image_build.cache_folder),
            image_build.arguments["BASE"],
        ],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )


def containers(engine: docker.DockerClient, base: str) -> list[str]:
    return [container.id for container in engine.containers.list(all=True, filters={"ancestor": base})]


def test_an_image_is_built_once_and_says_of_what(
    engine: docker.DockerClient, base: str, tmp_path: Path
) -> None:
    image_build = build(tmp_path, base, f"RUN {PYTHON} -c 'print(6 * 7)'")
    assert image_build.check().condition is Condition.MISSING
    reported: list[str] = []
    image_build.apply(reported.append)
    assert "42" in reported
    assert image_build.check().condition is Condition.READY
    assert engine.images.get(image_build.reference).labels[LABEL] == image_build.inputs
    assert containers(engine, base) == []
    reported.clear()
    image_build.apply(reported.append)
    assert reported == []


def test_a_build_that_fails_shows_its_last_lines_and_leaves_nothing(
    engine: docker.DockerClient, base: str, tmp_path: Path
) -> None:
    image_build = build(tmp_path, base, "RUN echo the reason is this && exit 3")
    with pytest.raises(BuildFailed, match=r"(?s)non-zero code: 3.*the reason is this"):
        image_build.apply(silent)
    assert image_build.check().condition is Condition.MISSING
    assert containers(engine, base) == []


def test_a_build_that_nobody_emulates_says_what_emulates(other: str, tmp_path: Path) -> None:
    image_build = build(tmp_path, "scratch", 'COPY program /\nRUN ["/program"]')
    program = image_build.context / "program"
    program.write_bytes(b"\x7fELF of no machine at all")
    program.chmod(0o755)
    with pytest.raises(BuildFailed, match="exec format error") as raised:
        replace(image_build, architecture=other).apply(silent)
    assert f"binfmt --install {other}" in raised.value.hint


def test_files_that_change_after_the_image_was_named_are_not_built(base: str, tmp_path: Path) -> None:
    image_build = build(tmp_path, base, "COPY Dockerfile /")
    assert image_build.check().condition is Condition.MISSING
    (image_build.context / "Dockerfile").write_text(f"FROM {base}\n")
    with pytest.raises(BuildFailed, match="were changed since this command began"):
        image_build.apply(silent)
    assert image_build.check().condition is Condition.MISSING


def test_a_base_for_another_architecture_is_refused(
    engine: docker.DockerClient, other: str, tmp_path: Path
) -> None:
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        add(tar, "hello", b"hello")
    reference = f"rayside-test-upstream:{other}"
    load(engine, reference, layer.getvalue(), {}, other)
    image_build = build(tmp_path, reference, "COPY Dockerfile /")
    try:
        with pytest.raises(WrongArchitecture, match=other):
            image_build.apply(silent)
        assert image_build.check().condition is Condition.MISSING
    finally:
        for name in (image_build.reference, reference):
            engine.images.remove(name, force=True)


def test_a_build_that_was_killed_leaves_no_image_and_no_container(
    engine: docker.DockerClient, base: str, tmp_path: Path
) -> None:
    image_build = build(tmp_path, base, "RUN echo at work && sleep 4 && echo done")
    with start(image_build) as killed:
        assert killed.stdout
        for line in killed.stdout:
            if line == "at work\n":
                break
        killed.send_signal(signal.SIGKILL)
    assert image_build.check().condition is Condition.MISSING
    assert until(lambda: containers(engine, base), lambda left: left == [], 60) == []
    assert image_build.check().condition is Condition.MISSING
    image_build.apply(silent)
    assert image_build.check().condition is Condition.READY
