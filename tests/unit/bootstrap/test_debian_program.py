"""Tests that a program of Debian's is there with the files that it needs, or is installed."""

from __future__ import annotations

from pathlib import Path

from bootstrap.sources.base_image import KEYRING
from bootstrap.steps.debian_program import DebianProgram, program
from rayside.steps.step import Condition
from rayside.system.shell import Shell


def test_a_program_without_a_file_that_it_needs_is_not_there(tmp_path: Path) -> None:
    keys = tmp_path / "keys.gpg"
    step = DebianProgram(Shell(), "sh", ("dash", "keys"), files=(keys,))
    status = step.check()
    assert (status.condition, status.detail) == (Condition.MISSING, f"there is no {keys}")
    keys.touch()
    assert step.check().condition is Condition.READY


def test_debootstrap_is_not_there_without_debians_keys() -> None:
    step = program(Shell(), "debootstrap")
    assert step.files == (KEYRING,)
    assert "debian-archive-keyring" in step.packages
