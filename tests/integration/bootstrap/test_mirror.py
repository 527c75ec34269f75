"""Tests `mirror`, and source `mirror`, by a small bundle and a real registry with TLS and a password."""

from __future__ import annotations

import json
import os
import stat
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Protocol

import pytest
import yaml

from bootstrap.bundle.archive import Archive
from bootstrap.bundle.manifest import IMAGES
from bootstrap.bundle.opened import Bundle, this_platform, this_python, write
from bootstrap.bundle.version import this_version
from bootstrap.errors import BadBundle, LowDisk, NotMirrored, RegistryRefused, RegistryUnreachable
from bootstrap.registry import oras as client_program
from bootstrap.registry.address import Address
from bootstrap.registry.mirrored import fetch, listed, send
from bootstrap.registry.oras import Oras
from bootstrap.settings import Settings
from bootstrap.sources import bundle_origin
from bootstrap.sources import bundled as sources_bundled
from bootstrap.sources.bundle_origin import RECORD
from bootstrap.sources.bundled import bundled
from bootstrap.sources.checked_bundle import FetchedBundle
from bootstrap.sources.registry_client import RegistryClient
from bootstrap.verbs import bundle as bundles
from bootstrap.verbs import mirror
from rayside.console import Console
from rayside.errors import InvalidArgument, InvalidSetting, MissingProgram, RaysideError
from rayside.steps.graph import check, up
from rayside.steps.step import Condition
from rayside.system.shell import Shell
from tests.bundles import small
from tests.http_servers import Answer, answering, body_of, says
from tests.integration.connect_proxy import connect_proxy
from tests.integration.self_signed import self_signed
from tests.registries import PASSWORD, USER, Served, logged_in, private, served, with_oras
from tests.unit.rayside.test_graph import Diary

pytestmark = [pytest.mark.gate, pytest.mark.usefixtures("oras")]

ANOTHER_PYTHON = "3.10" if this_python() != "3.10" else "3.11"


def silent(_: str) -> None:
    pass


@pytest.fixture(scope="module")
def oras() -> Iterator[None]:
    with with_oras():
        yield


def mirror_of(settings: Settings) -> Oras:
    return RegistryClient(settings, Shell()).mirror


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
def test_images_that_nodes_pull_themselves_stay_in_the_registry(
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
    assert next(step for step in near.steps if isinstance(step, FetchedBundle)).origin.images
    for module in (bundle_origin, sources_bundled):
        monkeypatch.setattr(module, "for_nodes", lambda mirror: mirror)
    source = bundled(mine, record, Shell(), nodes_pull=True)
    assert source.registry == mine.mirror
    up(source.steps_for("wheels", "kubectl"), Diary())
    here = bundled(replace(mine, mirror=""), record, Shell(), nodes_pull=True)
    assert here.resolve("ray") == source.resolve("ray")
    assert check(here.steps_for("wheels"))["bundle"].condition is Condition.READY
    file = next(step for step in here.steps if isinstance(step, FetchedBundle)).origin.file
    images = {*bundle.blobs()} - {*bundle.blobs(images=False)}
    assert {blob for blob in bundle.blobs() if not Archive.of(file).has(blob)} == images
    # What is there is checked as ever.
    up([step for step in here.steps if step.name == "bundle"], Diary())
    content = file.read_bytes()
    place = Archive.of(file).members[bundle.blobs(images=False)[0].name].offset
    file.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
    with pytest.raises(BadBundle, match="was changed"):
        Bundle.of(file).require_whole(images=False)


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
    with pytest.raises(RegistryRefused, match="credential"):
        mirror_of(settings(shared, tmp_path)).require("rayside/bundle")


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
    assert "credential not found" in error.message
    assert error.hint.startswith("docker login localhost:")
    monkeypatch.setenv("DOCKER_CONFIG", str(logged_in(shared.name, tmp_path / "docker", "wrong")))
    error = refusal(shared, bundle, tmp_path)
    assert "status code 401" in error.message
    assert error.hint.startswith("docker login localhost:")


@pytest.mark.usefixtures("login")
def test_a_certificate_of_an_authority_that_nobody_named_is_not_trusted(
    shared: Served, tmp_path: Path
) -> None:
    """It is as behind a proxy that breaks TLS, whose authority this machine does not know."""
    other, _ = self_signed("localhost", tmp_path)
    mine = replace(settings(shared, tmp_path), registry_ca=str(other))
    with pytest.raises(RegistryUnreachable, match="certificate signed by unknown authority") as caught:
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
    with pytest.raises(RegistryRefused) as caught:
        mirror_of(settings(shared, tmp_path)).require("rayside/bundle")
    assert f"docker login {shared.name}" in caught.value.hint
    assert "secret" not in caught.value.message


def test_one_that_is_read_only_says_so(bundle: Bundle, tmp_path: Path) -> None:
    with served(tmp_path / "read only", maintenance={"readonly": {"enabled": True}}) as registry:
        error = refusal(registry, bundle, tmp_path)
    assert "status code 405" in error.message


def test_none_that_is_there_and_none_that_is_filled(bundle: Bundle, tmp_path: Path) -> None:
    with served(tmp_path / "empty") as registry:
        mine = settings(registry, tmp_path)
        with pytest.raises(NotMirrored, match="has no bundle for linux") as caught:
            bundled(mine, tmp_path / RECORD, Shell())
        assert f"./invokew mirror {mine.mirror}" in caught.value.hint
        assert mirror_of(mine).manifest("rayside/bundle", "x") is None
    error = refusal(registry, bundle, tmp_path)
    assert isinstance(error, RegistryUnreachable)
    assert "refused" in error.message


def test_what_was_changed_in_the_registry_is_refused(bundle: Bundle, tmp_path: Path) -> None:
    with served(tmp_path / "registry") as registry:
        mine = settings(registry, tmp_path)
        send(mirror_of(mine), bundle, silent)
        layer = bundle.manifest.image("ray").layers[0].blob
        (data,) = registry.storage.glob(f"docker/registry/v2/blobs/sha256/*/{layer.digest}/data")
        data.write_bytes(bytes(layer.size))
        whole = listed(mirror_of(mine), this_version(), this_platform())
        with pytest.raises(RegistryRefused, match="mismatch") as caught:
            fetch(mirror_of(mine), whole, tmp_path / "file", tmp_path / "kept", silent)
        assert caught.value.hint.startswith("ask who looks after the registry")
        assert not (tmp_path / "file").exists()


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


def test_a_disk_that_fills_up_is_said(bundle: Bundle, tmp_path: Path) -> None:
    """oras says it in these words, which are the system's."""
    program = tmp_path / "oras"
    program.write_text(
        "#!/bin/sh\necho 'Error: write layout/ingest/x: no space left on device' >&2\nexit 1\n"
    )
    program.chmod(0o755)
    registry = Oras(Shell(), program, Address("127.0.0.1:9"))
    with pytest.raises(LowDisk, match="the disk filled up"):
        registry.fetch("rayside/bundle", "sha256:" + "0" * 64, tmp_path / "kept", silent)


@pytest.mark.usefixtures("login")
def test_a_login_is_in_no_process_list_and_the_authority_in_no_other_file(
    shared: Served, tmp_path: Path
) -> None:
    """What oras gets is written down by a program in its place."""
    program, seen = tmp_path / "oras", tmp_path / "seen"
    program.write_text(f'#!/bin/sh\necho "$@" "$SSL_CERT_FILE" >> {seen}\n')
    program.chmod(0o755)
    registry = replace(mirror_of(settings(shared, tmp_path)), program=program)
    registry.require("rayside/bundle")
    registry.send(tmp_path, "sha256:" + "0" * 64, "rayside/bundle", silent)
    words = seen.read_text()
    assert PASSWORD not in words
    assert USER not in words.split()
    assert not Path(words.split()[-1]).exists()


def test_without_the_program_it_is_said_how_to_get_it(
    tmp_path: Path, bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    old = tmp_path / "oras"
    old.write_text("#!/bin/sh\necho 'Version:    1.2.3'\n")
    old.chmod(0o755)
    nowhere = Settings(source="mirror", cache_folder=tmp_path / "cache", mirror="registry.test")
    client = RegistryClient(replace(nowhere, source="upstream", oras_releases="http://127.0.0.1:9"), Shell())
    assert client.check().condition is Condition.MISSING
    with pytest.raises(MissingProgram, match="neither on PATH nor fetched yet") as caught:
        bundled(nowhere, tmp_path / RECORD, Shell())
    assert "./invokew prepare" in caught.value.hint
    with pytest.raises(MissingProgram, match=r"need oras 1\.3 or newer") as caught:
        client.apply(silent)
    assert "oras.land/docs/installation" in caught.value.hint
    # A bundle has it: first where its signature was checked, and else last. That of a test is a shell script.
    unsigned = replace(client.settings, cache_folder=tmp_path / "unsigned", mirror="registry.test")
    for settings in (replace(nowhere, bundle_key="a key"), unsigned):
        taken = RegistryClient(settings, Shell(), bundle)
        assert ("_unpack" in str(next(taken._ways()))) == bool(settings.bundle_key)
        taken.apply(silent)
        assert taken.check().condition is Condition.READY
        assert taken.mirror.program.read_text().startswith("#!/bin/sh")


# --- a registry that plays up ------------------------------------------------------------


class Scripted(Protocol):
    """Serves a registry that answers as a test says; `files` are of its certificate and key, with TLS."""

    def __call__(self, answer: Answer, files: tuple[Path, Path] | None = None) -> Oras: ...


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scripted]:
    monkeypatch.setenv("DOCKER_CONFIG", "/nowhere")
    with ExitStack() as stack:

        def serve(answer: Answer, files: tuple[Path, Path] | None = None) -> Oras:
            def read_and_answer(request: BaseHTTPRequestHandler) -> None:
                body_of(request)
                answer(request)

            port = stack.enter_context(answering(read_and_answer, files=files))
            host, authority = ("localhost", str(files[0])) if files else ("127.0.0.1", "")
            return mirror_of(Settings(mirror=f"{host}:{port}", registry_ca=authority))

        yield serve


def errors(message: str, code: str = "DENIED") -> bytes:
    return json.dumps({"errors": [{"code": code, "message": message}]}).encode()


@pytest.mark.parametrize(
    ("status", "words", "hint"),
    [
        (507, "", "it is full"),
        (403, "DENIED: project quota of 1 GiB is used up", "it is full"),
        (403, "DENIED: adding 1 GiB of storage would exceed the upper limit", "it is full"),
        (403, "DENIED: no", "docker login 127.0.0.1:"),
        (403, "", "docker login 127.0.0.1:"),
        (405, "", "ask who looks after the registry"),
        (404, "NAME_UNKNOWN: not known", "make the repository team/rayside/bundle, or its project,"),
        (400, "DENIED: quota is used up", "it is full"),
        (400, "NAME_INVALID: invalid name", "make the repository team/rayside/bundle, or its project,"),
        (418, "TEA: " + "\x1b[31m" * 1000, "ask who looks after the registry"),
    ],
)
def test_each_refusal_is_in_its_words_with_the_one_thing_to_do(
    scripted: Scripted, status: int, words: str, hint: str
) -> None:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        if handler.command == "HEAD":
            says(handler, 404)
        else:
            code, _, text = words.partition(": ")
            says(handler, status, errors(text, code) if words else b"")

    with pytest.raises(RegistryRefused) as caught:
        scripted(answer).require("team/rayside/bundle")
    assert caught.value.hint.startswith(hint)
    assert caught.value.message.isprintable()
    assert len(caught.value.message) < 600


def test_one_that_never_answers_is_given_up(scripted: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_program, "_PATIENCE", 1.0)
    silence = threading.Event()

    def answer(_: BaseHTTPRequestHandler) -> None:
        silence.wait(30)

    with pytest.raises(RegistryUnreachable, match="did not answer within 1 s"):
        scripted(answer).manifest("x", "latest")
    silence.set()


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
        if repository == lacking or handler.command == "HEAD":
            says(handler, 404, errors("it does not exist", "NAME_UNKNOWN"))
        elif handler.command == "POST":
            says(handler, 202, Location=f"/v2/{repository}/blobs/uploads/1")
        else:
            says(handler, 201, Location=f"/v2/{repository}/blobs/1")

    host = scripted(answer).address.host
    names = ["bundle", *(f"bundled-{image}" for image in IMAGES)]
    for lacking in (f"team/rayside/{name}" for name in names):
        with pytest.raises(RegistryRefused, match=f"to take anything for {lacking}: name unknown") as caught:
            mirror.fill(Settings(cache_folder=tmp_path), Console(), f"{host}/team", None, bundles.Asked())
        assert caught.value.hint.startswith(f"make the repository {lacking}, or its project,")
    assert asked == {f"team/rayside/{name}" for name in names}
    assert made == []


def test_a_password_goes_to_the_registry_and_to_nobody_it_points_to(
    scripted: Scripted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def elsewhere(handler: BaseHTTPRequestHandler) -> None:
        seen.append(handler.headers.get("Authorization", "none"))
        says(handler, 200, b"{}")

    other = scripted(elsewhere).address.host.replace("127.0.0.1", "localhost")

    def answer(handler: BaseHTTPRequestHandler) -> None:
        if not handler.headers.get("Authorization"):
            says(handler, 401, WWW_Authenticate='Basic realm="x"')
        else:
            says(handler, 307, Location=f"http://{other}/elsewhere")

    registry = scripted(answer)
    monkeypatch.setenv("DOCKER_CONFIG", str(logged_in(registry.address.host, tmp_path / "docker")))
    with pytest.raises(RegistryRefused):
        registry.manifest("x", "latest")
    assert set(seen) == {"none"}


@pytest.mark.parametrize(
    ("refusal", "login", "told"),
    [("403 Blocked", "", "Blocked"), ("", "me:secret", "Proxy Authentication Required")],
)
def test_a_proxy_that_refuses_is_told_at_once(
    refusal: str, login: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", "/nowhere")
    with connect_proxy(login=login) as proxy:
        proxy.refusal = refusal
        monkeypatch.setenv("HTTPS_PROXY", f"http://{proxy.host}:{proxy.port}")
        with pytest.raises(RegistryUnreachable, match=f"registry.test can't be reached: .*{told}") as caught:
            mirror_of(Settings(mirror="registry.test")).manifest("x", "latest")
    assert "HTTPS_PROXY" in caught.value.hint
    assert set(proxy.targets) == {"registry.test:443"}


@pytest.mark.parametrize(
    ("host", "days", "told"), [("localhost", -1, "has expired"), ("other.test", 2, "valid for other.test")]
)
def test_what_is_wrong_with_a_certificate_is_said(
    scripted: Scripted, tmp_path: Path, host: str, days: int, told: str
) -> None:
    files = self_signed(host, tmp_path, days=days)
    registry = scripted(lambda handler: says(handler, 404), files)
    with pytest.raises(RegistryUnreachable, match=f"can't be reached: .*x509: .*{told}"):
        registry.require("x")


def test_one_that_speaks_no_tls_says_so(
    scripted: Scripted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = scripted(lambda handler: says(handler, 404)).address.host
    authority, _ = self_signed("localhost", tmp_path)
    with pytest.raises(RegistryUnreachable, match=r"HTTP response to HTTPS client|not look like a TLS"):
        mirror_of(Settings(mirror=host, registry_ca=str(authority))).require("x")
    # As of a registry on another machine, which is never asked without TLS.
    monkeypatch.setattr(Address, "is_loopback", False)
    with pytest.raises(RegistryUnreachable, match=r"HTTP response to HTTPS client|not look like a TLS"):
        mirror_of(Settings(mirror=host)).require("x")


@pytest.mark.parametrize(
    "text",
    [b"[]", b"{}", b'{"manifests": []}', b'{"manifests": [{"artifactType": 1}]}', b"\xff", b"[" * 100_000],
)
def test_what_is_no_bundle_is_refused(scripted: Scripted, text: bytes) -> None:
    kind = "application/vnd.oci.image.index.v1+json"
    registry = scripted(lambda handler: says(handler, 200, text, Content_Type=kind))
    with pytest.raises(NotMirrored, match="no bundle of Rayside's"):
        listed(registry, this_version(), this_platform())
