"""Tests the difference between two bundles, and the whole one that is made of it again."""

from __future__ import annotations

import fcntl
import os
from dataclasses import replace
from pathlib import Path

import pytest

from bootstrap.bundle import archive
from bootstrap.bundle.archive import INDEX, LAYOUT, MANIFEST
from bootstrap.bundle.opened import Bundle, require_fit, write
from bootstrap.console import Console
from bootstrap.errors import BadBundle, InvalidArgument
from bootstrap.settings import Settings
from bootstrap.sources.bundle_file import require_free
from bootstrap.targets import choice
from bootstrap.verbs import bundle as bundles
from bootstrap.verbs.bundle import Asked, inspect, join, make
from tests.bundles import small


@pytest.fixture
def earlier(tmp_path: Path) -> Path:
    (tmp_path / "earlier").mkdir()
    return small(tmp_path / "earlier")


@pytest.fixture
def newer(tmp_path: Path) -> Path:
    folder = tmp_path / "newer"
    folder.mkdir()
    (folder / "acme-1.0-py3-none-any.whl").write_bytes(b"wheel" * 1000)
    return small(folder, [folder / "acme-1.0-py3-none-any.whl"])


@pytest.fixture
def difference(tmp_path: Path, earlier: Path, newer: Path) -> Path:
    whole, file = Bundle.of(newer), tmp_path / "a difference"
    write(file, whole.manifest, whole.read, Bundle.of(earlier).manifest)
    return file


def texts(bundle: Bundle) -> dict[str, bytes]:
    return {name: bundle.archive.text(name) or b"" for name in (LAYOUT, INDEX)}


def test_it_has_only_what_the_earlier_one_lacks(earlier: Path, newer: Path, difference: Path) -> None:
    assert [blob.size for blob in Bundle.of(difference).blobs()] == [5000]
    Bundle.of(difference).require_whole()


def test_both_make_the_same_bytes_as_at_once(
    tmp_path: Path, earlier: Path, newer: Path, difference: Path
) -> None:
    join(Console(), tmp_path / "joined", earlier, difference)
    assert (tmp_path / "joined").read_bytes() == newer.read_bytes()


def test_the_difference_to_another_one_is_refused(tmp_path: Path, newer: Path, difference: Path) -> None:
    for other, file in ((newer, difference), (newer, newer)):
        with pytest.raises(BadBundle, match="is not the difference to"):
            join(Console(), tmp_path / "joined", other, file)
    with pytest.raises(InvalidArgument, match="needs the earlier"):
        join(Console(), tmp_path / "joined", None, difference)
    assert not (tmp_path / "joined").exists()


def test_a_changed_byte_of_either_is_found(tmp_path: Path, earlier: Path, difference: Path) -> None:
    for file in (earlier, difference):
        content = file.read_bytes()
        place = Bundle.of(file).archive.members[Bundle.of(file).blobs()[0].name].offset
        file.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises(BadBundle, match="was changed"):
            join(Console(), tmp_path / "joined", earlier, difference)
        file.write_bytes(content)
    assert not list(tmp_path.glob("*joined*"))


def test_a_difference_alone_is_no_bundle_for_a_cluster(difference: Path) -> None:
    with pytest.raises(BadBundle, match="only the difference") as refused:
        require_fit(Bundle.of(difference).manifest, difference)
    assert "--join" in refused.value.hint


def test_what_is_shown_of_it_says_what_it_is(
    earlier: Path, difference: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inspect(Console(), difference)
    shown = capsys.readouterr().out
    assert f"the difference to {Bundle.of(earlier).manifest.digest[:12]} alone" in shown
    assert "acme-1.0-py3-none-any.whl" in shown
    assert "is whole" not in shown
    inspect(Console(), earlier)
    shown = capsys.readouterr().out
    assert "difference" not in shown
    assert f"{earlier} is whole" in shown


def test_a_difference_that_lacks_a_content_is_said_to_before_anything_is_written(
    tmp_path: Path, earlier: Path, newer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, file, begun = Bundle.of(newer), tmp_path / "a difference", list[Path]()
    manifest = replace(whole.manifest, since=Bundle.of(earlier).manifest.digest)
    with file.open("wb") as target:
        archive.write(target, {MANIFEST: manifest.text(), **texts(whole)}, [], whole.read)
    inspect(Console(), file)
    monkeypatch.setattr(bundles, "write", lambda *_, **__: begun.append(file))
    with pytest.raises(BadBundle, match="a difference is not whole") as refused:
        join(Console(), tmp_path / "joined", earlier, file)
    assert "get the difference anew" in refused.value.hint
    assert not begun


def test_nothing_of_others_is_overwritten_and_no_link_is_followed(tmp_path: Path, newer: Path) -> None:
    bundle = Bundle.of(newer)
    precious = tmp_path / "precious"
    precious.write_text("mine")
    (tmp_path / "link").symlink_to(precious)
    for file in (precious, tmp_path / "link", tmp_path / "nowhere" / "file"):
        with pytest.raises(InvalidArgument):
            require_free(file)
    require_free(tmp_path / "new")
    require_free(newer)
    (tmp_path / ".new.part").symlink_to(precious)
    (tmp_path / ".new.x.part").symlink_to(precious)
    write(tmp_path / "new", bundle.manifest, bundle.read)
    assert precious.read_text() == "mine"


def test_what_a_killed_command_left_goes_and_what_another_writes_stays(tmp_path: Path, newer: Path) -> None:
    bundle = Bundle.of(newer)
    for name in ("left", "written"):
        (tmp_path / f".new.{name}.part").write_text(name)
    with (tmp_path / ".new.written.part").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        write(tmp_path / "new", bundle.manifest, bundle.read)
    assert [path.name for path in tmp_path.glob(".new.*")] == [".new.written.part"]
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o644


def test_the_content_is_on_the_disk_before_the_file_has_its_name(
    tmp_path: Path, newer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle, file, sizes = Bundle.of(newer), tmp_path / "new", []

    def synced(descriptor: int) -> None:
        assert not file.exists()
        sizes.append(os.fstat(descriptor).st_size)

    monkeypatch.setattr(os, "fsync", synced)
    write(file, bundle.manifest, bundle.read)
    assert sizes == [newer.stat().st_size]


def test_the_difference_to_a_difference_is_refused(tmp_path: Path, difference: Path) -> None:
    with pytest.raises(InvalidArgument, match="is itself only a difference"):
        make(Settings(target="kind"), Console(), tmp_path / "more", Asked(since=difference))


@pytest.mark.parametrize("name", ["earlier", "link", "hard link", "folder"])
def test_what_it_is_made_of_is_not_replaced(
    tmp_path: Path, earlier: Path, difference: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choice, "wait_for_engine", lambda *_: pytest.fail("it would be made"))
    (tmp_path / "link").symlink_to(earlier)
    (tmp_path / "hard link").hardlink_to(earlier)
    (tmp_path / "folder").symlink_to(earlier.parent)
    names = {"earlier": earlier, "folder": tmp_path / "folder" / earlier.name}
    other, content = names.get(name, tmp_path / name), [earlier.read_bytes(), difference.read_bytes()]
    for file, since in ((other, earlier), (earlier, other)):
        with pytest.raises(InvalidArgument, match="itself, which would be lost"):
            make(Settings(target="kind"), Console(), file, Asked(since=since))
        with pytest.raises(InvalidArgument, match="itself, which would be lost"):
            join(Console(), file, since, difference)
    with pytest.raises(InvalidArgument, match="itself, which would be lost"):
        join(Console(), difference, earlier, difference)
    assert [earlier.read_bytes(), difference.read_bytes()] == content


def test_a_bundle_for_another_platform_and_a_python_that_is_none_are_refused(tmp_path: Path) -> None:
    for asked in (Asked(platform="linux/riscv64"), Asked(python="3.9"), Asked(python="3.11,x")):
        with pytest.raises(InvalidArgument):
            make(Settings(target="kind"), Console(), tmp_path / "more", asked)
