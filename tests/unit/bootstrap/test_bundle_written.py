"""Tests where a bundle is written: nothing of others is lost, and the file is whole or not there."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from bootstrap.bundle.opened import Bundle, write
from bootstrap.settings import Settings
from bootstrap.sources.bundle_file import require_free
from bootstrap.verbs.bundle import Asked, inspect, make
from rayside.console import Console
from rayside.errors import InvalidArgument
from tests.bundles import small


@pytest.fixture
def newer(tmp_path: Path) -> Path:
    folder = tmp_path / "newer"
    folder.mkdir()
    (folder / "acme-1.0-py3-none-any.whl").write_bytes(b"wheel" * 1000)
    return small(folder, [folder / "acme-1.0-py3-none-any.whl"])


def test_what_is_shown_of_it_says_what_it_is(newer: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inspect(Console(), newer)
    shown = capsys.readouterr().out
    assert f"{newer} is whole" in shown
    assert "acme-1.0-py3-none-any.whl" in shown


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


def test_a_bundle_for_another_platform_and_a_python_that_is_none_are_refused(tmp_path: Path) -> None:
    for asked in (Asked(platform="linux/riscv64"), Asked(python="3.9"), Asked(python="3.11,x")):
        with pytest.raises(InvalidArgument):
            make(Settings(target="kind"), Console(), tmp_path / "more", asked)
