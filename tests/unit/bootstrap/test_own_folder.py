"""Tests that a folder that another user could have made, or could change, is refused; one's own is not."""

from __future__ import annotations

import grp
import os
import pwd
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from bootstrap.instance import configured
from bootstrap.settings import ROOT, Settings
from bootstrap.targets.target import Target
from rayside.errors import UnsafeFolder
from rayside.own_folder import make_own, require_own
from tests.targets import kind_target, local_target

STRANGER = 12345
as_root = pytest.mark.skipif(os.getuid() != 0, reason="gives files to another user, which only root may")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    state = tmp_path / "way" / "state"
    make_own(state)
    return state


def test_ones_own_folder_and_one_that_is_not_there_yet_are_taken(folder: Path, tmp_path: Path) -> None:
    assert require_own(folder) == folder
    assert require_own(tmp_path / "not" / "there") == tmp_path / "not" / "there"
    assert not (tmp_path / "not").exists()


def test_what_is_made_is_its_owners_alone_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        make_own(tmp_path / "a" / "b" / "c")
    finally:
        os.umask(before)
    for name in ("a", "a/b", "a/b/c"):
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("mode", [0o701, 0o704, 0o710, 0o740, 0o770, 0o777])
def test_a_folder_to_which_others_have_any_right_is_refused(folder: Path, mode: int) -> None:
    folder.chmod(mode)
    with pytest.raises(UnsafeFolder, match=re.escape(f"{folder} is not a folder that only you can read")):
        require_own(folder)


def test_a_link_or_file_in_its_place_or_a_file_on_the_way_is_refused(folder: Path, tmp_path: Path) -> None:
    folder.rename(tmp_path / "real")
    folder.symlink_to(tmp_path / "real")
    with pytest.raises(UnsafeFolder):
        require_own(folder)
    (tmp_path / "file").touch(mode=0o600)
    for path in (tmp_path / "file", tmp_path / "file" / "state"):
        for look in (require_own, make_own):
            with pytest.raises(UnsafeFolder):
                look(path)


@pytest.mark.parametrize("absent", [False, True], ids=["made already", "not there yet"])
def test_a_way_that_others_may_change_is_refused_unless_it_is_sticky(folder: Path, absent: bool) -> None:
    if absent:
        folder.rmdir()
    folder.parent.chmod(0o777)
    with pytest.raises(UnsafeFolder, match=re.escape(f"{folder.parent}, on the way to {folder}")):
        require_own(folder)
    folder.parent.chmod(0o1777)
    assert require_own(folder) == folder


@as_root
def test_a_folder_of_somebody_else_is_refused_there_and_on_the_way(folder: Path, tmp_path: Path) -> None:
    for theirs, message in ((folder, "is not a folder that only you"), (folder.parent, "on the way")):
        os.chown(theirs, STRANGER, STRANGER)
        with pytest.raises(UnsafeFolder, match=message):
            require_own(folder)
        os.chown(theirs, 0, 0)
    # So is a link of theirs.
    tmp_path.chmod(0o1777)
    link = tmp_path / "link"
    link.symlink_to(folder.parent)
    require_own(link / "state")
    os.lchown(link, STRANGER, STRANGER)
    with pytest.raises(UnsafeFolder):
        require_own(link / "state")


def test_a_way_that_a_group_may_change_is_ones_own(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.parent.chmod(0o770)
    gid = folder.parent.stat().st_gid
    user = pwd.struct_passwd(("me", "", os.getuid(), gid, "", "/", ""))
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: user)
    for name, members, is_own in (
        ("me", [], True),
        ("me", ["me"], True),
        ("me", ["x"], False),
        ("lab", [], False),
    ):
        group = grp.struct_group((name, "", gid, members))
        monkeypatch.setattr(grp, "getgrgid", lambda _, group=group: group)
        if is_own:
            assert require_own(folder) == folder
        else:
            with pytest.raises(UnsafeFolder):
                require_own(folder)


def test_links_on_the_way_are_followed_and_their_way_is_looked_at(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("hop")
    (tmp_path / "hop").symlink_to(folder.parent)
    way = tmp_path / "link" / "state"
    assert require_own(way) == way
    folder.parent.chmod(0o777)
    with pytest.raises(UnsafeFolder):
        require_own(way)
    (tmp_path / "round").symlink_to("round")
    with pytest.raises(UnsafeFolder):
        require_own(tmp_path / "round" / "state")


# --- the one way to it -------------------------------------------------------------------


@pytest.mark.parametrize("target", [local_target, kind_target])
def test_no_target_is_made_of_a_folder_that_may_be_anothers_nor_leads_to_one_later(
    target: Callable[[Settings], Target], tmp_path: Path
) -> None:
    settings = Settings(state_folder=tmp_path)
    made_in_time = target(settings)
    assert made_in_time.instance.folder == tmp_path / "rayside"
    (tmp_path / "rayside").mkdir(mode=0o755)
    with pytest.raises(UnsafeFolder):
        target(settings)
    with pytest.raises(UnsafeFolder):
        _ = made_in_time.instance.folder


def test_the_folder_of_rays_sockets_is_looked_at_too(tmp_path: Path) -> None:
    settings = Settings(state_folder=tmp_path / ("long" * 9))
    folder = configured(settings, "local").ray_folder
    assert folder.parent == Path("/tmp")
    folder.mkdir(mode=0o755)
    try:
        with pytest.raises(UnsafeFolder, match=re.escape(str(folder))):
            local_target(settings)
    finally:
        folder.rmdir()


def test_nothing_but_the_instance_and_its_choice_know_where_the_folders_are() -> None:
    users = {
        str(file.relative_to(ROOT))
        for folder in ("bootstrap", "rayside")
        for file in (ROOT / folder).rglob("*.py")
        if re.search(r"settings\.state_folder\b", file.read_text())
    }
    # The verb `list` shows all of one, and the cluster's file says which.
    assert users == {
        *("bootstrap/instance.py", "bootstrap/targets/choice.py", "bootstrap/targets/preparation.py"),
        *("bootstrap/targets/target.py", "bootstrap/verbs/up_and_down.py", "rayside/verbs/connecting.py"),
    }
