"""Tests the folder of a program that is run under the debugger."""

from __future__ import annotations

from pathlib import Path

import pytest

from rayside.errors import UnsafeFolder
from rayside.program_relay import own_folder


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def test_the_folder_is_this_users_alone_and_goes() -> None:
    with own_folder() as folder:
        made = folder, folder.parent, folder.parent.parent
        assert [each.stat().st_mode & 0o777 for each in made] == [0o700] * 3
    assert not folder.exists()


def test_a_folder_to_which_others_may_write_is_refused() -> None:
    with own_folder() as folder:
        runs = folder.parent
    runs.chmod(0o777)
    with pytest.raises(UnsafeFolder, match=f"{runs} is not a folder that only you can read"), own_folder():
        pass


def test_a_link_is_no_folder(tmp_path: Path) -> None:
    with own_folder() as folder:
        runs = folder.parent
    runs.rmdir()
    runs.symlink_to(tmp_path)
    with pytest.raises(UnsafeFolder, match=f"{runs} is not a folder that only you can read"), own_folder():
        pass
