"""Tests the names of what is cached, the same for the same inputs alone, and whose builds `down` ends."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from bootstrap import cache
from bootstrap.settings import Settings
from bootstrap.sources.go import Go, GoPrograms
from bootstrap.sources.source import Images
from bootstrap.steps.kuberay import OperatorManifest
from bootstrap.steps.ray_environment import RayEnvironment
from bootstrap.steps.workspace import WorkspaceFiles
from rayside.steps.step import Undoable
from rayside.system import processes
from rayside.system.shell import Shell
from tests.integration.vsix import without_asking


def test_a_key_depends_on_every_input_and_on_where_one_ends() -> None:
    keys = {cache.key("ab", "c"), cache.key("a", "bc"), cache.key("abc"), cache.key("ab", "c", "")}
    assert len(keys) == 4
    assert cache.key("ab", "c") == cache.key("ab", "c")
    assert all(len(key) == 12 for key in keys)


def folder(at: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (at / name).parent.mkdir(parents=True, exist_ok=True)
        (at / name).write_text(text)
    return at


def test_a_folder_is_its_names_modes_and_contents(tmp_path: Path) -> None:
    files = {"a": "1", "b/c": "2"}
    first, same = folder(tmp_path / "one", files), folder(tmp_path / "same", files)
    assert cache.content(first) == cache.content(same)
    (same / "a").chmod(0o755)
    other = folder(tmp_path / "other", {"a": "1", "b/d": "2"})
    assert len({cache.content(first), cache.content(same), cache.content(other)}) == 3


def test_what_fails_half_way_leaves_no_entry(tmp_path: Path) -> None:
    entry = tmp_path / "entry"
    with pytest.raises(ValueError, match="half-way"), cache.making(entry, print) as draft:
        assert draft
        (draft / "file").write_text("half")
        raise ValueError("half-way")
    assert not entry.exists()
    with cache.making(entry, print) as draft:
        assert draft
        assert list(draft.iterdir()) == []
        (draft / "file").write_text("whole")
    assert (entry / "file").read_text() == "whole"
    with cache.making(entry, print) as draft:
        assert draft is None


# --- builds of another command -----------------------------------------------------------


def building(folder: Path) -> subprocess.Popen[bytes]:
    """Starts a process as a command that makes `folder` has them."""
    return subprocess.Popen(["sleep", "30"], env=cache.environment(folder))


def test_down_of_one_leaves_builds_of_another(tmp_path: Path) -> None:
    shell = Shell()
    go, environment = Go(shell, tmp_path), RayEnvironment(shell, tmp_path)
    programs = GoPrograms(shell, go, tmp_path, "pause", "pause", "pause", "1", (("pause", "."),))
    images = Images("ray:1", "workspace:1", "operator:1")
    manifest = OperatorManifest(shell, tmp_path, tmp_path / "kubectl", tmp_path / "kuberay", images)
    workspace = WorkspaceFiles(shell, tmp_path, without_asking(Settings(cache_folder=tmp_path)))
    cached: list[tuple[Undoable, Path]] = [
        *((go, go.folder), (programs, programs.folder), (environment, environment.folder)),
        *((manifest, manifest._folder), (workspace, workspace.folder), (workspace, workspace._extensions)),
    ]
    for step, folder in cached:
        with cache.making(folder, print), building(folder) as build:
            step.undo(print)
            assert build.poll() is None, step
            build.kill()
        with building(folder):
            step.undo(print)
            assert processes.marked(cache.MARK, str(folder)) == [], step


def test_down_leaves_rays_environment_to_the_command_that_makes_it(tmp_path: Path) -> None:
    environment = RayEnvironment(Shell(), tmp_path)

    def down_meanwhile(_: str) -> None:
        with building(environment.folder) as build:
            environment.undo(print)
            assert build.poll() is None
            build.kill()
        raise ValueError("seen")

    with pytest.raises(ValueError, match="seen"):
        environment.apply(down_meanwhile)


def test_down_makes_no_lock_of_what_was_never_built(tmp_path: Path) -> None:
    cache.end_abandoned(tmp_path / "program-1")
    assert list(tmp_path.iterdir()) == []
