"""Tests `down --purge`: it removes the cache too, and nothing beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from bootstrap import cache
from tests.integration.conftest import Rayside, apart

pytestmark = pytest.mark.gate


def test_down_with_purge_removes_the_whole_cache_and_nothing_beside_it(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    settings = apart(tmp_path / "state", target="local", cache_folder=folder)
    # Without an engine: the images of this machine's are those of every other test.
    rayside = Rayside(settings, {"DOCKER_HOST": f"unix://{tmp_path}/none.sock"})
    with cache.making(folder / "program-1", lambda _: None) as draft:
        assert draft
        (draft / "program").write_text("x")
    (folder / ".program-2").mkdir()  # what a build that was killed left
    (tmp_path / "mine").write_text("mine")

    done = rayside.run("down")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (folder / "program-1" / "program").exists()

    done = rayside.run("down", "--purge")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"Everything is removed, the cache {folder} too." in done.stdout
    assert sorted(file.name for file in tmp_path.iterdir()) == ["mine"]
    assert rayside.run("down", "--purge").returncode == 0
