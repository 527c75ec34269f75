"""Tests `mirror`, and source `mirror`, by a small bundle and a real registry with TLS and a password."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import socket
import ssl
import stat
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Protocol

import pytest
import yaml

from bootstrap.bundle.archive import Archive
from bootstrap.bundle.blobs import Blob, Blobs
from bootstrap.bundle.manifest import IMAGES
from bootstrap.bundle.opened import Bundle, this_platform, this_python, write
from bootstrap.bundle.version import this_version
from bootstrap.console import Console
from bootstrap.errors import (
    BadBundle,
    InvalidArgument,
    InvalidSetting,
    LowDisk,
    NotMirrored,
    RaysideError,
    RegistryRefused,
    RegistryUnreachable,
)
from bootstrap.registry import mirrored
from bootstrap.registry import registry as registries
from bootstrap.registry.address import Address
from bootstrap.registry.exchange import Pace
from bootstrap.registry.login import Login
from bootstrap.registry.mirror import mirror_of
from bootstrap.registry.mirrored import fetch, listed, send
from bootstrap.registry.registry import Registry
from bootstrap.settings import Settings
from bootstrap.shell import Shell
from bootstrap.sources import bundled as sources_bundled
from bootstrap.sources.bundled import RECORD, FetchedBundle, bundled
from bootstrap.step import Condition, check, until, up
from bootstrap.verbs import bundle as bundles
from bootstrap.verbs import mirror
from tests.bundles import small
from tests.integration.connect_proxy import connect_proxy
from tests.integration.self_signed import of_tomorrow, self_signed
from tests.patience import PATIENCE
from tests.registries import PASSWORD, USER, Served, logged_in, private, served
from tests.unit.test_step import Diary

pytestmark = pytest.mark.gate

ANOTHER_PYTHON = "3.10" if this_python() != "3.10" else "3.11"


def silent(_: str) -> None:
    pass


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    folder = tmp_path_factory.mktemp("a bundle")
    wheel = folder / "thing-1.0-py3-none-any.whl"
    wheel.write_bytes(b"a wheel")
    return Bundle.of(small(folder, [wheel]))


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with private(tmp_path_factory.mktemp("private")) as registry:
        yield registry


@pytest.fixture
def login(shared: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(logged_in(shared.name, tmp_path / "docker")))


def settings(registry: Served, folder: Path, path: str = "") -> Settings:
    """Returns settings by which that registry is the mirror, with a path that no other test has."""
    return Settings(
        target="kind",
        source="mirror",
        mirror=f"{registry.name}/{path or folder.name.replace('_', '-').lower()}",
        registry_ca=str(registry.authority or ""),
        cache_folder=folder / "a cache",
        state_folder=folder / "state",
    )


def fill(mine: Settings, file: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, int]]:
    capsys.readouterr()
    mirror.fill(mine, Console(as_json=True), mine.mirror, file, bundles.Asked())
    document: dict[str, dict[str, int]] = json.loads(capsys.readouterr().out)
    return document


# --- what goes well ----------------------------------------------------------------------


@pytest.mark.usefixtures("login")
def test_a_bundle_for_each_platform_is_made_and_sent_and_what_was_sent_is_said(
    shared: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = ""

    def made(_: Settings, __: Console, file: Path, asked: bundles.Asked) -> None:
        if asked.platform == failing:
            raise LowDisk("there is no room", hint="make some")
        folder = tmp_path / asked.platform.replace("/", "-")
        folder.mkdir(exist_ok=True)
        file.parent.mkdir(exist_ok=True, parents=True)
        file.write_bytes(small(folder, platform=asked.platform).read_bytes())

    monkeypatch.setattr(bundles, "written", made)
    mine, both = settings(shared, tmp_path), ["linux/amd64", "linux/arm64"]
    asked = bundles.Asked(",".join(both))
    mirror.fill(mine, Console(as_json=True), mine.mirror, None, asked)
    document = json.loads(capsys.readouterr().out)
    assert [each["platform"] for each in document["bundles"]] == both
    for platform in both:
        assert listed(mirror_of(mine), this_version(), platform).manifest.platform == platform
    failing = both[1]
    with pytest.raises(LowDisk):
        mirror.fill(mine, Console(as_json=True), mine.mirror, None, asked)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "has the bundle for linux/amd64" in printed.err


@pytest.mark.usefixtures("login")
def test_all_of_a_bundle_goes_there_once_and_comes_back_as_it_was(
    shared: Served, bundle: Bundle, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine, file = settings(shared, tmp_path), bundle.archive.file
    first = fill(mine, file, capsys)["bytes"]
    again = fill(mine, file, capsys)["bytes"]
    assert first["there"] == 0
    assert again == {"sent": 0, "there": first["sent"]}
    source = bundled(mine, tmp_path / RECORD, Shell())
    assert source.name == "mirror"
    fetched = next(step for step in source.steps if isinstance(step, FetchedBundle))
    assert fetched.check().condition is Condition.MISSING
    fetched.apply(silent)
    assert fetched.check().condition is Condition.READY
    assert fetched.origin.file.read_bytes() == file.read_bytes()
    # What it was made of has gone.
    name = fetched.origin.file.name
    left = {path.name for path in mine.cache_folder.iterdir()}
    assert left == {name, f"{name}.lock", "bundle-to-mirror.lock"}


@pytest.mark.usefixtures("login")
def test_nodes_have_its_images_by_their_names(
    shared: Served, bundle: Bundle, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = settings(shared, tmp_path)
    document = fill(mine, bundle.archive.file, capsys)
    images = document["images"]
    assert [entry["name"] for entry in images] == [  # type: ignore[index]
        f"{mine.mirror}/{image.reference}" for image in bundle.manifest.images
    ]
    registry = mirror_of(mine)
    for image, entry in zip(bundle.manifest.images, images, strict=True):
        name, _, tag = image.reference.rpartition(":")
        repository = registry.address.repository(name)
        text = registry.manifest(repository, tag)
        assert text == registry.manifest(repository, entry["digest"])  # type: ignore[index]
        parts = json.loads(text or b"")
        for part in (parts["config"], *parts["layers"]):
            assert registry.has(
                repository, replace(image.config, digest=part["digest"][7:], size=part["size"])
            )


@pytest.mark.usefixtures("login")
def test_layers_that_nodes_pull_themselves_stay_in_the_registry(
    shared: Served,
    bundle: Bundle,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    mine, record = settings(shared, tmp_path), tmp_path / RECORD
    fill(mine, bundle.archive.file, capsys)
    # On the loopback address, no node reaches it, and all comes here.
    near = bundled(mine, record, Shell(), nodes_pull=True)
    assert near.registry == ""
    assert next(step for step in near.steps if isinstance(step, FetchedBundle)).origin.layers
    monkeypatch.setattr(sources_bundled, "_for_nodes", lambda mirror: mirror)
    source = bundled(mine, record, Shell(), nodes_pull=True)
    assert source.registry == mine.mirror
    up(source.steps_for("wheels", "kubectl"), Diary())
    here = bundled(replace(mine, mirror=""), record, Shell(), nodes_pull=True)
    assert here.resolve("ray") == source.resolve("ray")
    assert check(here.steps_for("wheels"))["bundle"].condition is Condition.READY
    file = next(step for step in here.steps if isinstance(step, FetchedBundle)).origin.file
    layers = {layer.blob for image in bundle.manifest.images for layer in image.layers}
    assert {blob for blob in bundle.blobs() if not Archive.of(file).has(blob)} == layers
    # What is there is checked as ever.
    up([step for step in here.steps if step.name == "bundle"], Diary())
    content = file.read_bytes()
    place = Archive.of(file).members[bundle.blobs(layers=False)[0].name].offset
    file.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
    with pytest.raises(BadBundle, match="was changed"):
        Bundle.of(file).require_whole(layers=False)


@pytest.mark.usefixtures("login")
def test_kuberays_charts_get_values_by_which_they_pull_from_there(
    shared: Served, bundle: Bundle, tmp_path: Path
) -> None:
    mine, folder = settings(shared, tmp_path), tmp_path / "values for Helm"
    for _ in range(2):
        mirror.fill(mine, Console(), mine.mirror, bundle.archive.file, bundles.Asked(), folder)
    images = {
        image.name: f"{mine.mirror}/{image.reference.rpartition(':')[0]}@sha256:{image.manifest.digest}"
        for image in bundle.manifest.images
    }
    for chart, name in (("kuberay-operator", "operator"), ("ray-cluster", "ray")):
        text = (folder / f"{chart}.yaml").read_text()
        values = yaml.safe_load(text)
        assert "{repository}:{tag}".format(**values["image"]) == images[name]
        (secret,) = values["imagePullSecrets"]
        assert f"docker-registry {secret['name']} --docker-server={shared.name} " in text
        assert PASSWORD not in text
    # What somebody else has written there stays, and is seen before anything is sent.
    theirs = folder / "ray-cluster.yaml"
    for target in (folder / "kuberay-operator.yaml", tmp_path / "elsewhere"):
        theirs.unlink()
        theirs.symlink_to(target)
        with pytest.raises(InvalidArgument, match=r"ray-cluster.yaml is there, and Rayside did not write it"):
            mirror.fill(mine, Console(), mine.mirror, tmp_path / "none", bundles.Asked(), folder)
    theirs.unlink()
    theirs.write_text("image: {}\n")
    with pytest.raises(InvalidArgument, match=r"ray-cluster.yaml is there, and Rayside did not write it"):
        mirror.fill(mine, Console(), mine.mirror, tmp_path / "none", bundles.Asked(), folder)
    with pytest.raises(InvalidArgument, match="there is no folder"):
        mirror.fill(mine, Console(), mine.mirror, tmp_path / "none", bundles.Asked(), tmp_path / "a" / "b")


@pytest.mark.usefixtures("login")
def test_a_mirror_is_asked_once_for_each_code_and_then_the_record_is_enough(
    shared: Served, bundle: Bundle, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine, record = settings(shared, tmp_path), tmp_path / RECORD
    fill(mine, bundle.archive.file, capsys)
    source = bundled(mine, record, Shell())
    (fetched,) = (step for step in source.steps if isinstance(step, FetchedBundle))
    record.write_text(fetched.origin.text)
    nowhere = replace(mine, registry_ca="/nowhere")
    assert bundled(nowhere, record, Shell()).resolve("ray") == source.resolve("ray")
    # As of a later command that names no mirror.
    assert bundled(replace(nowhere, mirror="", source="auto"), record, Shell()).name == "mirror"
    with pytest.raises(InvalidSetting, match="no file with certificates"):
        bundled(replace(nowhere, mirror="elsewhere.test"), record, Shell())


@pytest.mark.usefixtures("login")
def test_two_who_fill_it_at_once_are_not_in_each_others_way(
    shared: Served, bundle: Bundle, tmp_path: Path
) -> None:
    mine = settings(shared, tmp_path)
    failures: list[BaseException] = []

    def filling() -> None:
        try:
            send(mirror_of(mine), bundle, silent)
        except BaseException as error:  # It is raised below, where it fails the test.
            failures.append(error)

    threads = [threading.Thread(target=filling) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert listed(mirror_of(mine), this_version(), this_platform()).manifest == bundle.manifest


def test_the_password_is_of_a_helper_of_docker_too(
    shared: Served, bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "docker"
    folder.mkdir()
    helper = folder / "docker-credential-test"
    answer = json.dumps({"ServerURL": shared.name, "Username": USER, "Secret": PASSWORD})
    helper.write_text(f"#!/bin/sh\nread server\n[ \"$server\" = {shared.name} ] && echo '{answer}'\n")
    helper.chmod(helper.stat().st_mode | stat.S_IXUSR)
    (folder / "config.json").write_text(json.dumps({"credHelpers": {shared.name: "test"}}))
    monkeypatch.setenv("DOCKER_CONFIG", str(folder))
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    assert send(mirror_of(settings(shared, tmp_path)), bundle, silent).given
    helper.write_text("#!/bin/sh\necho broken >&2\nexit 1\n")
    with pytest.raises(RegistryRefused, match="no login for"):
        mirror_of(settings(shared, tmp_path))


# --- what is refused ---------------------------------------------------------------------


def refusal(registry: Served, bundle: Bundle, folder: Path) -> RaysideError:
    with pytest.raises(RaysideError) as caught:
        send(mirror_of(settings(registry, folder)), bundle, silent)
    return caught.value


def test_one_who_is_not_logged_in_is_told_how_to(
    shared: Served, bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    error = refusal(shared, bundle, tmp_path)
    assert "HTTP 401" in error.message
    assert error.hint.startswith("it was asked without a login: docker login localhost:")
    monkeypatch.setenv("DOCKER_CONFIG", str(logged_in(shared.name, tmp_path / "docker", "wrong")))
    assert refusal(shared, bundle, tmp_path).hint.startswith("it was asked as ada: docker login")


@pytest.mark.usefixtures("login")
def test_a_certificate_of_an_authority_that_nobody_named_is_not_trusted(
    shared: Served, tmp_path: Path
) -> None:
    """It is as behind a proxy that breaks TLS, whose authority this machine does not know."""
    other, _ = self_signed("localhost", tmp_path)
    mine = replace(settings(shared, tmp_path), registry_ca=str(other))
    with pytest.raises(RegistryUnreachable, match="certificate of the registry") as caught:
        mirror_of(mine).require("rayside/bundle")
    assert "INVOKE_RAYSIDE_REGISTRY_CA=FILE" in caught.value.hint


@pytest.mark.parametrize("name", ["/nowhere", "~nosuchuser/x", "{folder}", "{folder}/no.pem"])
def test_an_authority_that_is_none_is_said(shared: Served, tmp_path: Path, name: str) -> None:
    (tmp_path / "no.pem").write_text("not PEM")
    mine = replace(settings(shared, tmp_path), registry_ca=name.format(folder=tmp_path))
    with pytest.raises(InvalidSetting, match="no file with certificates"):
        mirror_of(mine)


@pytest.mark.parametrize(
    "config",
    [
        '{"auths": {"other.test": {"auth": "!!!"}}}',
        '{"auths": [1]}',
        '{"credHelpers": {"HOST": 1}}',
        '{"credHelpers": {"HOST": "no-such-helper"}}',
        '{"auths": {"HOST": {"identitytoken": "secret"}}}',
    ],
)
def test_a_docker_configuration_that_cant_be_read_is_said_without_what_is_in_it(
    shared: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: str
) -> None:
    (tmp_path / "config.json").write_text(config.replace("HOST", shared.name))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    with pytest.raises(RegistryRefused, match="the Docker configuration has no") as caught:
        mirror_of(settings(shared, tmp_path))
    assert "secret" not in caught.value.message


def test_one_that_is_read_only_says_so(bundle: Bundle, tmp_path: Path) -> None:
    with served(tmp_path / "read only", maintenance={"readonly": {"enabled": True}}) as registry:
        error = refusal(registry, bundle, tmp_path)
    assert "HTTP 405" in error.message
    assert error.hint.startswith("it is read-only")


def test_none_that_is_there_and_none_that_is_filled(
    bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(tmp_path / "empty") as registry:
        mine = settings(registry, tmp_path)
        with pytest.raises(NotMirrored, match="has no bundle for linux") as caught:
            bundled(mine, tmp_path / RECORD, Shell())
        assert f"./invokew mirror {mine.mirror}" in caught.value.hint
        known = mirror_of(mine)
        assert known.manifest("rayside/bundle", "x") is None
    error = refusal(registry, bundle, tmp_path)
    assert isinstance(error, RegistryUnreachable)
    assert "refused" in error.message
    # One that has answered may come back.
    monkeypatch.setattr(registries, "_PAUSE", 0.01)
    told: list[str] = []
    with pytest.raises(RegistryUnreachable):
        replace(known, report=told.append).manifest("rayside/bundle", "x")
    assert len(told) == 5


def test_what_was_changed_in_the_registry_is_refused(bundle: Bundle, tmp_path: Path) -> None:
    with served(tmp_path / "registry") as registry:
        mine = settings(registry, tmp_path)
        send(mirror_of(mine), bundle, silent)
        layer = bundle.manifest.image("ray").layers[0].blob
        (data,) = registry.storage.glob(f"docker/registry/v2/blobs/sha256/*/{layer.digest}/data")
        data.write_bytes(bytes(layer.size))
        whole = listed(mirror_of(mine), this_version(), this_platform())
        with pytest.raises(RegistryRefused, match="another content"):
            fetch(mirror_of(mine), whole, tmp_path / "file", Blobs(tmp_path / "blobs"), silent)
        assert not (tmp_path / "file").exists()


def test_a_difference_is_not_mirrored(bundle: Bundle, tmp_path: Path) -> None:
    with served(tmp_path / "registry") as registry:
        file = tmp_path / "part"
        write(file, bundle.manifest, bundle.read, earlier=bundle.manifest)
        mine = settings(registry, tmp_path)
        with pytest.raises(BadBundle, match="only the difference"):
            mirror.fill(mine, Console(), mine.mirror, file, bundles.Asked())


def test_what_is_made_here_is_not_signed_and_where_a_key_is_asked_for_nothing_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Path] = []
    monkeypatch.setattr(bundles, "written", lambda *words: made.append(tmp_path))
    mine = Settings(bundle_key="RWQ", cache_folder=tmp_path / "cache")
    with pytest.raises(InvalidArgument, match="bundle_key is set") as caught:
        mirror.fill(mine, Console(), "127.0.0.1:9/team", None, bundles.Asked())
    commands = ("./invokew bundle FILE --sign KEY", "./invokew mirror 127.0.0.1:9/team --bundle FILE")
    assert caught.value.hint == ", then ".join(commands)
    assert made == []


@pytest.mark.parametrize(
    ("there", "told", "hint"),
    [
        (
            "pythons",
            f"has a bundle for linux/.*, and this one has no Python {ANOTHER_PYTHON}",
            f"make it with --python {ANOTHER_PYTHON},",
        ),
        (
            "signature",
            "has a signed bundle for linux/.*, and this one is not",
            "./invokew bundle FILE --sign",
        ),
    ],
)
def test_a_bundle_that_is_there_loses_no_python_and_no_signature(
    bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: str, told: str, hint: str
) -> None:
    made: list[Path] = []
    monkeypatch.setattr(bundles, "written", lambda *words: made.append(tmp_path))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    more = replace(bundle.manifest, pythons=(ANOTHER_PYTHON, *bundle.manifest.pythons))
    file = tmp_path / "with more"
    if there == "pythons":
        write(file, more, bundle.read)
    else:
        write(file, bundle.manifest, bundle.read, sign=lambda _: b"a signature")
    with served(tmp_path / "registry") as registry:
        mine = settings(registry, tmp_path)

        def filled(file: Path | None, python: str = "") -> None:
            mirror.fill(mine, Console(), mine.mirror, file, bundles.Asked(python=python))

        filled(bundle.archive.file)
        filled(file)
        first = listed(mirror_of(mine), this_version(), this_platform())
        for each in (bundle.archive.file, None):
            with pytest.raises(InvalidArgument, match=told) as caught:
                filled(each)
            assert caught.value.hint.startswith(hint)
        assert made == []
        assert listed(mirror_of(mine), this_version(), this_platform()) == first
        filled(file)
        if there == "pythons":
            with pytest.raises(BadBundle, match="bundle-to-mirror"):  # `written` has made none.
                filled(None, ", ".join(more.pythons))
            assert made


def test_a_bundle_that_can_not_be_read_there_is_replaced(bundle: Bundle, tmp_path: Path) -> None:
    with served(tmp_path / "registry") as registry:
        mine = settings(registry, tmp_path)
        known = mirror_of(mine)
        send(known, bundle, silent)
        own = known.address.repository(mirrored.REPOSITORY)
        ray = bundle.manifest.image("ray")
        repository, _, tag = ray.reference.rpartition(":")
        text = known.manifest(known.address.repository(repository), tag)
        for blob in (ray.config, *(layer.blob for layer in ray.layers)):
            known.send(own, blob, lambda blob=blob: bundle.read(blob))  # type: ignore[misc]
        known.name(own, mirrored.tag_of(this_version(), this_platform()), text or b"")
        with pytest.raises(NotMirrored, match="no bundle of Rayside's"):
            listed(known, this_version(), this_platform())
        mirror.fill(mine, Console(), mine.mirror, bundle.archive.file, bundles.Asked())
        assert listed(known, this_version(), this_platform()).manifest == bundle.manifest


def test_a_disk_that_fills_up_is_said_and_what_is_there_stays(
    bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(tmp_path / "registry") as registry:
        mine = settings(registry, tmp_path)
        send(mirror_of(mine), bundle, silent)
        source = bundled(mine, tmp_path / RECORD, Shell())
        (fetched,) = (step for step in source.steps if isinstance(step, FetchedBundle))
        add = Blobs.add

        def full(blobs: Blobs, content: Iterator[bytes]) -> object:
            if len(list(blobs.folder.glob("*"))) >= 3:
                raise OSError(28, "No space left on device")
            return add(blobs, content)

        with monkeypatch.context() as patch:
            patch.setattr(Blobs, "add", full)
            with pytest.raises(LowDisk, match="the disk filled up"):
                fetched.apply(silent)
        assert not fetched.origin.file.exists()
        fetched.apply(silent)
        assert fetched.origin.file.read_bytes() == bundle.archive.file.read_bytes()


# --- a registry that plays up ------------------------------------------------------------


Answer = Callable[[BaseHTTPRequestHandler], None]
TOO_SLOW = r"it sends too slowly, [0-9]+ bytes in 0 s"


class Scripted(Protocol):
    """Serves a registry that answers as a test says; `files` are of its certificate and key, with TLS."""

    def __call__(self, answer: Answer, files: tuple[Path, Path] | None = None) -> Registry: ...


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scripted]:
    servers: list[ThreadingHTTPServer] = []
    monkeypatch.setattr(registries, "_PAUSE", 0.01)
    monkeypatch.setenv("DOCKER_CONFIG", "/nowhere")

    def serve(answer: Answer, files: tuple[Path, Path] | None = None) -> Registry:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                answer(self)

            do_POST = do_PUT = do_HEAD = do_DELETE = do_GET  # noqa: N815

            def log_message(self, format: str, *args: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if files:
            server.socket = server_context(files).wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        host = "localhost" if files else "127.0.0.1"
        authority = str(files[0]) if files else ""
        return mirror_of(Settings(mirror=f"{host}:{server.server_port}", registry_ca=authority))

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


def server_context(files: tuple[Path, Path]) -> ssl.SSLContext:
    """Returns what has a server show a certificate; the files are of that and of its key."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*files)
    return context


def says(handler: BaseHTTPRequestHandler, status: int, body: bytes = b"", **headers: str) -> None:
    handler.send_response(status)
    for name, value in {**headers, "Content-Length": str(len(body))}.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    if handler.command != "HEAD":
        handler.wfile.write(body)


def errors(message: str, code: str = "DENIED") -> bytes:
    return json.dumps({"errors": [{"code": code, "message": message}]}).encode()


@pytest.mark.parametrize(
    ("status", "words", "hint"),
    [
        (507, "", "it is full"),
        (500, "filesystem: write: no space left on device", "it is full"),
        (403, "project quota of 1 GiB is used up", "it is full"),
        (403, "adding 1 GiB of storage would exceed the upper limit", "it is full"),
        (403, "no", "it was asked without a login"),
        (429, "Quota exceeded for requests per minute", "it has too much to do"),
        (405, "unsupported", "it is read-only"),
        (429, "slow down", "it has too much to do"),
        (404, "the repository does not exist", "make the repository team/rayside/bundle, or its project,"),
        (400, "quota is used up", "it is full"),
        (400, "invalid repository name", "make the repository team/rayside/bundle, or its project,"),
        (418, "tea \x1b[31m\nin red", "run the command again"),
    ],
)
def test_each_refusal_is_in_its_words_with_the_one_thing_to_do(
    scripted: Scripted, status: int, words: str, hint: str
) -> None:
    registry = scripted(lambda handler: says(handler, status, errors(words) if words else b""))
    with pytest.raises(RegistryRefused) as caught:
        registry.require("team/rayside/bundle")
    assert f"HTTP {status}" in caught.value.message
    assert caught.value.hint.startswith(hint)
    assert "\x1b" not in caught.value.message
    assert "\n" not in caught.value.message


def test_a_repository_that_lacks_is_said_before_anything_is_made(
    scripted: Scripted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a registry that makes none by itself, in which some were made by hand."""
    made: list[Path] = []
    monkeypatch.setattr(bundles, "written", lambda *words: made.append(tmp_path))
    lacking, asked = "", set[str]()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        repository = handler.path.partition("/blobs/")[0].removeprefix("/v2/")
        asked.add(repository)
        if repository == lacking:
            says(handler, 404, errors("it does not exist", "NAME_UNKNOWN"))
        else:
            says(handler, 202, Location=f"/v2/{repository}/blobs/uploads/1")

    host = scripted(answer).address.host
    names = ["bundle", *(f"bundled-{image}" for image in IMAGES)]
    for lacking in (f"team/rayside/{name}" for name in names):
        with pytest.raises(RegistryRefused, match=f"to take anything for {lacking}: HTTP 404") as caught:
            mirror.fill(Settings(cache_folder=tmp_path), Console(), f"{host}/team", None, bundles.Asked())
        assert caught.value.hint.startswith(f"make the repository {lacking}, or its project,")
    assert asked == {f"team/rayside/{name}" for name in names}
    assert made == []


def test_a_content_that_a_registry_lacks_is_no_repository_that_it_lacks(scripted: Scripted) -> None:
    registry = scripted(lambda handler: says(handler, 404, errors("unknown", "BLOB_UNKNOWN")))
    with pytest.raises(RegistryRefused, match="HTTP 404") as caught:
        list(registry.read("x", Blob("0" * 64, 5)))
    assert caught.value.hint.startswith("run the command again")


def test_one_that_is_busy_is_asked_again_when_it_says(scripted: Scripted) -> None:
    asked: list[str] = []

    def answer(handler: BaseHTTPRequestHandler) -> None:
        asked.append(handler.command)
        if len(asked) < 3:
            says(handler, 429, Retry_After="1")
        else:
            says(handler, 202, Location="/v2/x/blobs/uploads/1")

    told: list[str] = []
    replace(scripted(answer), report=told.append).require("x")
    assert asked == ["POST", "POST", "POST", "DELETE"]
    assert told == ["HTTP 429: again in 1 s"] * 2


def test_nobody_waits_longer_for_one_that_is_busy_than_a_minute(
    scripted: Scripted,
) -> None:
    registry = scripted(lambda handler: says(handler, 429, Retry_After="86400"))
    told: list[str] = []

    def report(text: str) -> None:
        told.append(text)
        registry.end()

    with pytest.raises(RegistryRefused):
        replace(registry, report=report).require("x")
    assert told == ["HTTP 429: again in 60 s"]


def test_a_line_that_breaks_goes_on_from_there(
    scripted: Scripted,
) -> None:
    content, ranges = os.urandom(300_000), list[str]()
    blob = Blob(hashlib.sha256(content).hexdigest(), len(content))

    def answer(handler: BaseHTTPRequestHandler) -> None:
        ranges.append(handler.headers.get("Range", ""))
        begin = int(ranges[-1][6:-1] or 0)
        handler.send_response(206 if begin else 200)
        handler.send_header("Content-Length", str(blob.size - begin))
        handler.end_headers()
        handler.wfile.write(content[begin : begin + 150_000])
        handler.close_connection = True

    assert b"".join(scripted(answer).read("x", blob)) == content
    assert ranges == ["", "bytes=150000-"]


def trickle(file: io.BufferedIOBase, text: bytes, size: int, pause: float) -> None:
    """Sends a text in parts of that size, with so many seconds between them, until nobody reads any more."""
    with contextlib.suppress(OSError):
        for begin in range(0, len(text), size):
            file.write(text[begin : begin + size])
            file.flush()
            time.sleep(pause)


@pytest.mark.parametrize("part", ["head", "text"])
def test_one_that_sends_a_byte_now_and_then_is_not_waited_for(scripted: Scripted, part: str) -> None:
    """Each byte comes within the connection's own patience."""
    asked: list[str] = []

    def answer(handler: BaseHTTPRequestHandler) -> None:
        asked.append(handler.path)
        handler.close_connection = True
        if part == "head":
            trickle(handler.wfile, b"HTTP/1.1 200 OK\r\nX: " + bytes(500), 1, 0.02)
        else:
            handler.send_response(200)
            handler.send_header("Content-Length", str(10**6))
            handler.end_headers()
            trickle(handler.wfile, bytes(500), 1, 0.02)

    registry = at_pace(scripted(answer), 0.2)
    began = time.monotonic()
    with pytest.raises(RegistryUnreachable, match=TOO_SLOW) as caught:
        registry.manifest("x", "latest")
    assert caught.value.hint.startswith("where the line is better, run the command again")
    assert len(asked) == 1
    asked.clear()
    with pytest.raises(RegistryUnreachable, match=TOO_SLOW):
        list(registry.read("x", Blob("0" * 64, 10**6)))
    assert len(asked) == 6
    assert time.monotonic() - began < 20


@pytest.mark.parametrize("who", ["registry", "proxy"])
def test_nor_is_one_with_tls_nor_a_proxy(who: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", "/nowhere")
    authority, key = self_signed("localhost", tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host = f"localhost:{listener.getsockname()[1]}"

        def answer() -> None:
            connection, _ = listener.accept()
            if who == "registry":
                connection = server_context((authority, key)).wrap_socket(connection, server_side=True)
            with contextlib.suppress(OSError), connection, connection.makefile("rwb") as file:
                trickle(file, b"HTTP/1.1 200 OK\r\nX: " + bytes(500), 1, 0.02)

        thread = threading.Thread(target=answer)
        thread.start()
        if who == "proxy":
            monkeypatch.setenv("HTTPS_PROXY", f"http://{host}")
        mine = Settings(mirror="registry.test" if who == "proxy" else host, registry_ca=str(authority))
        with pytest.raises(RegistryUnreachable, match=TOO_SLOW):
            at_pace(mirror_of(mine), 0.2).manifest("x", "latest")
        thread.join()


def at_pace(registry: Registry, seconds: float) -> Registry:
    """Returns the same registry, each of whose answers has to come within so many seconds of waiting."""
    return replace(registry, exchange=replace(registry.exchange, pace=Pace(seconds=seconds)))


def test_one_that_gives_a_few_bytes_each_time_is_not_asked_for_ever(
    scripted: Scripted,
) -> None:
    asked: list[str] = []

    def answer(handler: BaseHTTPRequestHandler) -> None:
        asked.append(handler.headers.get("Range", ""))
        handler.close_connection = True
        handler.send_response(206 if asked[-1] else 200)
        handler.end_headers()
        trickle(handler.wfile, b"some", 4, 0)

    with pytest.raises(RegistryUnreachable, match="the content breaks off"):
        list(scripted(answer).read("x", Blob("0" * 64, 1000)))
    assert asked == ["", *(f"bytes={begin}-" for begin in range(4, 24, 4))]


def test_a_slow_line_and_a_slow_reader_are_waited_for(scripted: Scripted) -> None:
    content = os.urandom(250_000)

    def answer(handler: BaseHTTPRequestHandler) -> None:
        time.sleep(1.1)  # It has to think.
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        trickle(handler.wfile, content, 20_000, 0.05)

    pieces = b""
    for piece in at_pace(scripted(answer), 1).read("x", Blob(hashlib.sha256(content).hexdigest(), 250_000)):
        if not pieces:
            time.sleep(1.1)
        pieces += piece
    assert pieces == content


def test_an_answer_that_never_ends_is_read_to_its_bound(scripted: Scripted, bundle: Bundle) -> None:
    blob = min(bundle.blobs())
    broken: list[str] = []

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Connection", "close")
        handler.end_headers()
        for _ in range(64):
            try:
                handler.wfile.write(bytes(1024 * 1024))
            except OSError:
                broken.append(handler.path)
                return

    registry = scripted(answer)
    with pytest.raises(RegistryRefused, match="another content"):
        list(registry.read("x", blob))
    text = registry.manifest("x", "latest")
    assert text is not None
    assert len(text) == 4 * 1024 * 1024
    # Neither could send all of it.
    assert until(lambda: len(broken), lambda number: number == 2, PATIENCE) == 2


def test_a_password_goes_to_the_registry_and_to_nobody_it_points_to(
    scripted: Scripted, bundle: Bundle
) -> None:
    seen: list[str] = []

    def elsewhere(handler: BaseHTTPRequestHandler) -> None:
        seen.append(handler.headers.get("Authorization", "none"))
        says(handler, 201)

    other = scripted(elsewhere)

    def answer(handler: BaseHTTPRequestHandler) -> None:
        if not handler.headers.get("Authorization"):
            says(handler, 401, WWW_Authenticate='Basic realm="x"')
        elif handler.command == "POST":
            says(handler, 202, Location=f"http://{other.address.host}/upload")
        else:
            says(handler, 404)

    registry = replace(scripted(answer), login=Login(USER, PASSWORD))
    blob = min(bundle.blobs())
    registry.send("x", blob, lambda: bundle.read(blob))
    assert seen == ["none"]


@pytest.mark.parametrize("realm", ["http://tokens.test/token", "http://[", "ftp://127.0.0.1/x", ""])
def test_tokens_are_asked_for_over_tls_alone(scripted: Scripted, realm: str) -> None:
    challenge = f'Bearer realm="{realm}",service="x"'
    registry = scripted(lambda handler: says(handler, 401, WWW_Authenticate=challenge))
    registry = replace(registry, login=Login(USER, PASSWORD))
    with pytest.raises(RegistryRefused, match=r"no address of HTTPS|HTTP 401"):
        registry.require("x")


def test_who_is_asked_for_a_content_elsewhere_gets_no_login_by_any_challenge(
    scripted: Scripted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor that of ~/.netrc, which Requests would send."""
    (tmp_path / ".netrc").write_text("default login me password mine\n")
    (tmp_path / ".netrc").chmod(0o600)
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    seen: list[str] = []

    def evil(handler: BaseHTTPRequestHandler) -> None:
        seen.append(handler.headers.get("Authorization", "none"))
        says(handler, 401, WWW_Authenticate=f'Bearer realm="http://{handler.headers["Host"]}/token"')

    other = scripted(evil).address.host

    def answer(handler: BaseHTTPRequestHandler) -> None:
        if not handler.headers.get("Authorization"):
            says(handler, 401, WWW_Authenticate='Basic realm="x"')
        else:
            says(handler, 307, b"x" * 1000, Location=f"http://{other}/elsewhere")

    registry = replace(scripted(answer), login=Login(USER, PASSWORD))
    with pytest.raises(RegistryRefused):
        list(registry.read("x", Blob("0" * 64, 5)))
    assert set(seen) == {"none"}
    assert PASSWORD not in repr(registry)
    assert registry.login is not None
    assert registry.login.basic not in repr(registry)


def test_nobody_is_followed_without_end_nor_to_where_there_is_no_tls(
    scripted: Scripted,
) -> None:
    for place in ("/v2/again", "http://elsewhere.test/x", "http://[", "file:///etc/passwd"):
        registry = scripted(lambda handler, place=place: says(handler, 302, Location=place))  # type: ignore[misc]
        with pytest.raises(RegistryRefused, match="leads to"):
            registry.has("x", Blob("0" * 64, 5))
        uploads = scripted(lambda handler, place=place: says(handler, 202, Location=place))  # type: ignore[misc]
        if place != "/v2/again":
            with pytest.raises(RegistryRefused, match="leads to"):
                uploads.send("x", Blob("0" * 64, 5), lambda: iter([b"12345"]))


def test_no_proxy_is_asked_for_what_is_on_this_machine(
    scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def note(handler: BaseHTTPRequestHandler) -> None:
        seen.append(handler.path)
        says(handler, 404)

    proxy = scripted(note)
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://{proxy.address.host}")
    registry = scripted(lambda handler: says(handler, 404))
    assert registry.manifest("x", "latest") is None
    assert seen == []


@pytest.mark.parametrize(
    ("refusal", "login", "told", "hint"),
    [
        ("403 Blocked", "", "HTTP 403 Blocked", "have the proxy's keeper let it through"),
        ("", "me:secret", "HTTP 407 Proxy Authentication Required", "the proxy wants a login, or another"),
    ],
)
def test_a_proxy_that_refuses_is_told_at_once(
    refusal: str, login: str, told: str, hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", "/nowhere")
    with connect_proxy(login=login) as proxy:
        proxy.refusal = refusal
        monkeypatch.setenv("HTTPS_PROXY", f"http://{proxy.host}:{proxy.port}")
        with pytest.raises(RegistryUnreachable) as caught:
            mirror_of(Settings(mirror="registry.test")).manifest("x", "latest")
    assert caught.value.message == f"the registry registry.test is not reached, for the proxy refuses: {told}"
    assert caught.value.hint.startswith(hint)
    assert proxy.targets == ["registry.test:443"]


def test_a_token_of_strange_signs_and_one_that_never_comes_are_refused(
    scripted: Scripted,
) -> None:
    for body in (b'{"token": "a\\nb"}', '{"token": "\u20ac"}'.encode(), b"[" * 60_000, b"{}", b"\xff"):
        where = scripted(lambda handler, body=body: says(handler, 200, body)).address.host  # type: ignore[misc]
        challenge = f'Bearer realm="http://{where}/token"'
        registry = scripted(
            lambda handler, challenge=challenge: says(handler, 401, WWW_Authenticate=challenge)  # type: ignore[misc]
        )
        with pytest.raises(RegistryRefused, match="which gives none"):
            registry.require("x")
    gone = scripted(
        lambda handler: says(handler, 401, WWW_Authenticate='Bearer realm="http://127.0.0.1:9/x"')
    )
    with pytest.raises(RegistryUnreachable):
        gone.require("x")


def test_answers_that_break_off_or_are_none_are_no_defects(scripted: Scripted) -> None:
    def cut(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "1000")
        handler.end_headers()
        handler.wfile.write(b"x")
        handler.close_connection = True

    def chunks(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        handler.wfile.write(b"no number\r\n")
        handler.close_connection = True

    def nothing(handler: BaseHTTPRequestHandler) -> None:
        handler.close_connection = True

    for answer in (cut, chunks, nothing):
        with pytest.raises(RegistryUnreachable):
            scripted(answer).manifest("x", "latest")
    for name in ("a..b", f"{'a' * 70}.test"):
        with pytest.raises(RegistryUnreachable):
            mirror_of(Settings(mirror=name)).manifest("x", "latest")


def test_one_that_sends_all_whatever_it_is_asked_for_is_read_on(
    scripted: Scripted,
) -> None:
    content = os.urandom(200_000)
    asked: list[str] = []

    def answer(handler: BaseHTTPRequestHandler) -> None:
        asked.append(handler.headers.get("Range", ""))
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content[: 100_000 if len(asked) == 1 else None])
        handler.close_connection = True

    blob = Blob(hashlib.sha256(content).hexdigest(), len(content))
    assert b"".join(scripted(answer).read("x", blob)) == content
    assert asked == ["", "bytes=100000-"]


def test_connections_are_used_again(scripted: Scripted) -> None:
    clients = set()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        clients.add(handler.client_address)
        says(handler, 404)

    registry = scripted(answer)
    for _ in range(20):
        registry.has("x", Blob("0" * 64, 5))
    assert len(clients) == 1


def test_a_failure_is_told_whatever_it_is(scripted: Scripted) -> None:
    """An IndexError is what a list that is empty says, too."""

    def fails(_: int) -> None:
        raise IndexError("a defect")

    with pytest.raises(IndexError, match="a defect"):
        mirrored._side_by_side(scripted(lambda handler: says(handler, 404)), fails, [1, 2, 3])


def test_the_first_failure_ends_the_others(scripted: Scripted) -> None:
    failed, broken = threading.Event(), threading.Event()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        if handler.path.endswith("1" * 64):
            says(handler, 403)
            failed.set()
            return
        handler.send_response(200)
        handler.send_header("Content-Length", str(10**9))
        handler.end_headers()
        failed.wait(30)
        try:
            for _ in range(10_000):
                handler.wfile.write(bytes(100_000))
        except OSError:
            broken.set()

    registry = scripted(answer)

    def read(blob: Blob) -> None:
        for _ in registry.read("x", blob):
            pass

    blobs = [Blob("2" * 64, 10**9), Blob("1" * 64, 10**9)]
    with pytest.raises(RegistryRefused, match="HTTP 403"):
        mirrored._side_by_side(registry, read, blobs)
    assert broken.wait(10)


def test_a_token_is_asked_for_what_is_done_and_sent(scripted: Scripted) -> None:
    asked: list[str] = []

    def tokens(handler: BaseHTTPRequestHandler) -> None:
        asked.append(f"{handler.path} {handler.headers.get('Authorization', '')}".strip())
        says(handler, 200, b'{"token": "t0ken"}')

    where = scripted(tokens).address.host

    def answer(handler: BaseHTTPRequestHandler) -> None:
        if handler.headers.get("Authorization") == "Bearer t0ken":
            says(handler, 202, Location="/v2/x/blobs/uploads/1")
        else:
            says(handler, 401, WWW_Authenticate=f'Bearer realm="http://{where}/token",service="r"')

    scripted(answer).require("x")
    assert asked == ["/token?service=r&scope=repository%3Ax%3Apull%2Cpush"]


def test_the_authority_of_a_registry_is_that_of_all_to_whom_it_leads(
    scripted: Scripted, tmp_path: Path
) -> None:
    """A company has its tokens and its storage on hosts of their own, under the same authority."""
    files = self_signed("localhost", tmp_path)
    tokens = scripted(lambda handler: says(handler, 200, b'{"token": "t0ken"}'), files).address.host
    storage = scripted(lambda handler: says(handler, 200, b"12345"), files).address.host

    def answer(handler: BaseHTTPRequestHandler) -> None:
        if handler.headers.get("Authorization") == "Bearer t0ken":
            says(handler, 307, Location=f"https://{storage}/a-content")
        else:
            says(handler, 401, WWW_Authenticate=f'Bearer realm="https://{tokens}/token"')

    blob = Blob(hashlib.sha256(b"12345").hexdigest(), 5)
    assert b"".join(scripted(answer, files).read("x", blob)) == b"12345"


@pytest.mark.parametrize(
    ("fault", "host", "told", "hint"),
    [
        ("tomorrow", "127.0.0.1", "not yet valid", "set this machine's clock"),
        ("expired", "localhost", "has expired", "if this machine's clock is right, ask"),
        ("other", "localhost", "Hostname mismatch", "name the registry as its certificate does"),
        ("local", "127.0.0.1", "IP address mismatch", "name the registry as its certificate does"),
    ],
)
def test_what_is_wrong_with_a_certificate_is_said_with_the_one_thing_to_do(
    scripted: Scripted, tmp_path: Path, fault: str, host: str, told: str, hint: str
) -> None:
    if fault == "tomorrow":
        files = of_tomorrow("127.0.0.1", tmp_path)
    else:
        name = "other.test" if fault == "other" else "localhost"
        files = self_signed(name, tmp_path, days=-1 if fault == "expired" else 2)
    name = scripted(lambda handler: says(handler, 404), files).address.host.replace("localhost", host)
    registry = mirror_of(Settings(mirror=name, registry_ca=str(files[0])))
    with pytest.raises(
        RegistryUnreachable, match=f"certificate of the registry .* not trusted.*{told}"
    ) as caught:
        registry.require("x")
    assert caught.value.hint.startswith(hint)


def test_one_that_speaks_no_tls_says_so(
    scripted: Scripted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = scripted(lambda handler: says(handler, 404)).address.host
    authority, _ = self_signed("localhost", tmp_path)
    with pytest.raises(RegistryUnreachable, match=f"the registry {host} speaks no TLS") as caught:
        mirror_of(Settings(mirror=host, registry_ca=str(authority))).require("x")
    assert caught.value.hint.startswith("leave out the setting registry_ca")
    # As of a registry on another machine, which is never asked without TLS.
    monkeypatch.setattr(Address, "is_loopback", False)
    with pytest.raises(RegistryUnreachable, match=f"the registry {host} speaks no TLS") as caught:
        mirror_of(Settings(mirror=host)).require("x")
    assert caught.value.hint.startswith("correct its port, or have TLS set up there")


def test_a_line_that_breaks_in_a_handshake_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", "/nowhere")
    monkeypatch.setattr(registries, "_PAUSE", 0.01)
    files = self_signed("localhost", tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            first, _ = listener.accept()
            with first:
                first.recv(64 * 1024)  # What is left unread would reset the connection.
            connection, _ = listener.accept()
            with server_context(files).wrap_socket(connection, server_side=True) as second:
                second.recv(64 * 1024)
                second.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n12345")

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        told: list[str] = []
        host = f"localhost:{listener.getsockname()[1]}"
        registry = mirror_of(Settings(mirror=host, registry_ca=str(files[0])), told.append)
        blob = Blob(hashlib.sha256(b"12345").hexdigest(), 5)
        assert b"".join(registry.read("x", blob)) == b"12345"
        thread.join()
    assert len(told) == 1
    assert "EOF" in told[0]


def test_what_is_no_bundle_is_refused(scripted: Scripted) -> None:
    for text in (b"[]", b"{}", b'{"config": {}, "layers": []}', b"\xff", b"[" * 100_000):
        registry = scripted(lambda handler, text=text: says(handler, 200, text))  # type: ignore[misc]
        with pytest.raises(NotMirrored, match="no bundle of Rayside's"):
            listed(registry, this_version(), this_platform())
