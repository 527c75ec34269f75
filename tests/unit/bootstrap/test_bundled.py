"""Tests source `bundle`: what it takes out of a file, what it remembers of it, and what it refuses."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bootstrap.bundle import archive
from bootstrap.bundle.archive import Archive
from bootstrap.bundle.blobs import Blob
from bootstrap.bundle.opened import Bundle
from bootstrap.errors import BadBundle, LowDisk
from bootstrap.given_settings import parse
from bootstrap.instance import configured
from bootstrap.pip import for_python
from bootstrap.settings import ROOT, Settings
from bootstrap.sources.bundle_origin import RECORD, Origin
from bootstrap.sources.bundled import bundled
from bootstrap.sources.checked_bundle import CheckedBundle, FetchedBundle
from bootstrap.sources.registry_client import RegistryClient
from bootstrap.sources.source import Source
from bootstrap.targets import preparation
from bootstrap.targets.preparation import removable
from rayside.errors import CommandFailed, InvalidSetting
from rayside.private_file import write_private
from rayside.steps.graph import check, up
from rayside.steps.step import Condition
from rayside.system.shell import Shell
from tests.bundles import recorded, small
from tests.targets import kind_target
from tests.unit.rayside.test_graph import Diary

WITHOUT_ENGINE = ("wheels", "kind", "kubectl", "kubectl-ray", "kuberay")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    wheel = tmp_path / "acme-1.0-py3-none-any.whl"
    wheel.write_bytes(b"wheel")
    return small(tmp_path, [wheel])


@pytest.fixture
def settings(tmp_path: Path, file: Path) -> Settings:
    return Settings(source="bundle", bundle=str(file), cache_folder=tmp_path / "cache")


def made(source: Source) -> None:
    up(source.steps_for(*WITHOUT_ENGINE), Diary())


def test_what_needs_no_engine_is_taken_out(settings: Settings, tmp_path: Path) -> None:
    source = bundled(settings, tmp_path / RECORD, Shell(), is_for_later=True)
    made(source)
    assert subprocess.check_output([source.resolve("kubectl").path], text=True) == "it runs\n"
    assert source.wheels
    assert (source.wheels / "acme-1.0-py3-none-any.whl").read_bytes() == b"wheel"
    statuses = check(source.steps_for(*WITHOUT_ENGINE))
    conditions = {name: status.condition for name, status in statuses.items() if name != "bundle"}
    assert set(conditions.values()) == {Condition.READY}
    assert source.archives
    assert set(source.archives.ids) == {
        source.resolve(name).reference for name in ("ray", "workspace", "operator", "node")
    }


def test_a_cluster_knows_its_bundle_without_the_file(settings: Settings, file: Path, tmp_path: Path) -> None:
    record = tmp_path / RECORD
    made(bundled(settings, record, Shell()))
    assert record.stat().st_mode & 0o777 == 0o600
    later = Settings(source="bundle", cache_folder=settings.cache_folder)
    file.unlink()
    source = bundled(later, record, Shell())
    # The others ask the engine, and docker-py leaves a socket open where none answers.
    (bundle,) = [step for step in source.steps if step.name == "bundle"]
    assert bundle.check().condition is Condition.READY
    made(source)  # all is there
    source.resolve("kind").path.parent.parent.rename(tmp_path / "away")
    with pytest.raises(BadBundle, match="no longer there"):
        made(source)


def test_another_file_in_its_place_is_refused(settings: Settings, file: Path, tmp_path: Path) -> None:
    record = tmp_path / RECORD
    source = bundled(settings, record, Shell())
    up([step for step in source.steps if step.name == "bundle"], Diary())
    other = tmp_path / "other"
    other.mkdir()
    small(other).replace(file)
    with pytest.raises(BadBundle, match="another bundle"):
        made(source)
    # Named, it is the cluster's from then on.
    made(bundled(settings, record, Shell()))


def test_a_changed_byte_is_found_before_unpacking(settings: Settings, file: Path, tmp_path: Path) -> None:
    source = bundled(settings, tmp_path / RECORD, Shell(), is_for_later=True)
    content = bytearray(file.read_bytes())
    wheel = next(iter(Archive.of(file).members.values()))
    assert wheel.offset == 512
    content[content.index(b"wheel" + b"\0" * 10)] ^= 1
    file.write_bytes(content)
    with pytest.raises(BadBundle, match="was changed since it was made"):
        made(source)
    assert not list(settings.cache_folder.glob("bundle-*/*"))


@pytest.mark.parametrize("spoilt", ["cut off", "empty", "zeros", "changed"])
def test_what_a_mirror_gave_is_fetched_anew_if_spoilt(file: Path, tmp_path: Path, spoilt: str) -> None:
    manifest, content = Bundle.of(file).manifest, file.read_bytes()
    wheel = content.index(b"wheel" + b"\0" * 10)
    changes = {
        "cut off": content[:-1000],
        "empty": b"",
        "zeros": bytes(len(content)),
        "changed": content[:wheel] + b"x" + content[wheel + 1 :],
    }
    origin = Origin(file, manifest, "registry.test")
    fetched = FetchedBundle(RegistryClient(Settings(), Shell()), origin)
    assert fetched.check().condition is Condition.READY
    file.write_bytes(changes[spoilt])
    if spoilt != "changed":  # That is seen by all that is read, later.
        assert fetched.check().condition is Condition.MISSING
    with pytest.raises(BadBundle):
        CheckedBundle(origin, tmp_path / RECORD, tmp_path / "cache").apply(lambda _: None)
    assert not file.exists()


def test_one_for_another_machine_is_refused_before_anything_is_taken_out(tmp_path: Path) -> None:
    settings = Settings(
        source="bundle",
        bundle=str(small(tmp_path, platform="linux/riscv64")),
        cache_folder=tmp_path / "cache",
    )
    with pytest.raises(BadBundle, match="is for linux/riscv64"):
        made(bundled(settings, tmp_path / RECORD, Shell(), is_for_later=True))
    assert not (tmp_path / "cache").exists()


def test_a_full_disk_leaves_none(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = bundled(settings, tmp_path / RECORD, Shell(), is_for_later=True)
    up([step for step in source.steps if step.name == "bundle"], Diary())

    def fills_up(self: Archive, blob: Blob) -> Iterator[bytes]:
        yield b"some"
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Archive, "read", fills_up)
        with pytest.raises(LowDisk, match="the disk filled up"):
            up([step for step in source.steps if step.name == "wheels"], Diary())
    assert not source.wheels or not source.wheels.exists()
    made(source)


def test_without_a_file_and_without_a_record_it_says_what_to_name(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match="source is bundle, and none is named"):
        bundled(Settings(source="bundle", cache_folder=tmp_path), tmp_path / "nothing", Shell())
    (tmp_path / "broken").write_text("{}")
    with pytest.raises(InvalidSetting, match="can't be read"):
        bundled(Settings(source="bundle", cache_folder=tmp_path), tmp_path / "broken", Shell())


def test_a_mirror_may_be_named_for_good(tmp_path: Path) -> None:
    def chosen(**more: str) -> tuple[str, str]:
        settings = parse({"mirror": "registry.test:5000/a-team", **more}, {})
        return settings.source, settings.target

    # It chooses nothing by itself: which source a cluster is of, its record says.
    assert chosen() == ("auto", "auto")
    assert chosen(target="cluster") == ("auto", "cluster")
    assert chosen(source="packages") == ("packages", "auto")
    assert chosen(target="local") == ("auto", "local")
    assert chosen(address="http://head:8265") == ("auto", "auto")
    assert chosen(bundle="a bundle") == ("bundle", "kind")
    with pytest.raises(InvalidSetting) as caught:
        bundled(Settings(source="mirror", target="kind"), tmp_path / "none", Shell())
    assert "./invokew up --mirror REGISTRY" in caught.value.hint


def test_naming_a_bundle_chooses_source_and_target() -> None:
    settings = parse({"bundle": "a bundle"}, {})
    assert (settings.source, settings.target) == ("bundle", "kind")
    assert parse({"source": "bundle", "target": "kind"}, {}).target == "kind"
    created = parse({"bundle": "a bundle", "context": "prod", "create": "true"}, {})
    assert (created.source, created.target) == ("bundle", "auto")


def test_a_broken_disk_is_said(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = bundled(settings, tmp_path / RECORD, Shell(), is_for_later=True)

    def broken(*_: object) -> Iterator[bytes]:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(archive, "pieces", broken)
    with pytest.raises(BadBundle, match="can't be read: Input/output error"):
        made(source)


def test_a_pipe_at_its_place_keeps_nobody_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in ("pipe", "nothing", "."):
        settings = Settings(source="bundle", bundle=str(tmp_path / path), cache_folder=tmp_path / "cache")
        with pytest.raises(BadBundle, match=r"can't be read|is no file"):
            bundled(settings, tmp_path / RECORD, Shell())
    with pytest.raises(BadBundle, match=r"no-such-user|determine"):
        bundled(replace(settings, bundle="~no-such-user/x"), tmp_path / RECORD, Shell())


def test_a_clusters_record_waits_for_its_bundle(settings: Settings, tmp_path: Path) -> None:
    """Else a bundle that is refused would be the source of a cluster that is healthy."""
    target = kind_target(replace(settings, target="kind", state_folder=tmp_path))
    needs = {step.name: set(step.needs) for step in target.steps()}
    assert "bundle" in needs["state-folder"]
    assert {need for each in needs.values() for need in each} - set(needs) <= {
        *("ray-image", "workspace-image", "operator-image"),  # The node has them without the engine.
        "kuberay-manifests",
    }


def test_down_needs_no_bundle(tmp_path: Path) -> None:
    settings = Settings(
        source="bundle",
        target="kind",
        bundle=str(tmp_path / "gone"),
        state_folder=tmp_path,
        cache_folder=tmp_path,
    )
    identity = replace(configured(settings, "kind"), source="bundle")
    identity.folder.mkdir(mode=0o700)
    write_private(identity.record, identity.document())
    (target,) = removable(settings, Shell())
    assert [step for step in target.steps() if step.name == "cluster"]


def test_conditions_of_a_lock_file_are_those_of_the_python_that_is_meant() -> None:
    locked = (ROOT / "requirements" / "ray.txt").read_text()
    for python, numpy in (("3.10", "2.2.6"), ("3.11", "2.4.6"), ("3.12", "2.5.5")):
        lines = for_python(locked, python).splitlines()
        assert [line for line in lines if line.startswith("numpy==")] == [f"numpy=={numpy} \\"]
        assert any(line.startswith("exceptiongroup==") for line in lines) == (python == "3.10")
        assert not [line for line in lines if ";" in line and not line.lstrip().startswith("#")]


def test_what_feeds_a_program_says_why_both_failed() -> None:
    feed = ["sh", "-c", "echo the stick is gone >&2; exit 3"]
    with pytest.raises(CommandFailed, match="the stick is gone"):
        Shell().run(["sh", "-c", "cat > /dev/null; echo no archive >&2; exit 1"], feed=feed)


def test_what_is_typed_and_what_is_read() -> None:
    assert Shell().run(["cat"], typed="secret\n").out == "secret"
    with Shell().reading(["sh", "-c", "printf 12345"]) as output:
        assert output.read() == b"12345"
    with (
        pytest.raises(CommandFailed, match="why it failed"),
        Shell().reading(["sh", "-c", "echo why it failed >&2; exit 2"]) as output,
    ):
        output.read()


def test_what_takes_too_long_is_ended() -> None:
    with pytest.raises(CommandFailed, match=r"did not end within 0\.2 s"):
        Shell().run(["sleep", "60"], limit=0.2, check=False)
    assert Shell().run(["echo", "in time"], limit=60).out == "in time"


def test_a_mirror_is_asked_once_for_a_cluster_and_not_for_what_has_no_images(tmp_path: Path) -> None:
    settings = Settings(mirror="registry.test", state_folder=tmp_path)
    assert preparation.asks_mirror(settings)
    for other in (
        {"mirror": ""},
        {"source": "packages"},
        {"bundle": "a bundle"},
        {"target": "local"},
        {"address": "http://head:8265"},
    ):
        assert not preparation.asks_mirror(replace(settings, **other))  # type: ignore[arg-type]
    folder = tmp_path / settings.name
    recorded(folder, "registry.test")
    assert not preparation.asks_mirror(settings)
    assert preparation.asks_mirror(replace(settings, mirror="elsewhere.test"))
