"""Tests that files are replaced whole or not at all, and nobody else can read the private ones."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rayside.private_file import replace_whole, write_private


def test_only_its_owner_can_read_it_whatever_it_was_and_whatever_the_umask(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("old")
    file.chmod(0o644)
    before = os.umask(0)
    try:
        write_private(file, "new ✓")
    finally:
        os.umask(before)
    assert file.read_text() == "new ✓"
    assert file.stat().st_mode & 0o777 == 0o600
    write_private(file, b"bytes")
    assert file.read_bytes() == b"bytes"
    assert list(tmp_path.iterdir()) == [file]


def test_a_link_in_its_place_is_replaced_and_what_others_have_open_or_linked_stays(tmp_path: Path) -> None:
    file, other = tmp_path / "secret", tmp_path / "other"
    other.write_text("theirs")
    file.symlink_to(other)
    write_private(file, "old")
    assert (other.read_text(), file.is_symlink()) == ("theirs", False)
    with file.open() as stream:
        write_private(file, "new")
        assert stream.read() == "old"


def test_what_can_not_be_written_leaves_what_was_there_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    write_private(file, "old")
    with pytest.raises(UnicodeEncodeError):
        write_private(file, "half \ud800")
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


def test_a_file_for_everybody_has_the_permissions_that_are_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "digests.json"
    replace_whole(file, "{}", 0o644)
    assert file.stat().st_mode & 0o777 == 0o644
