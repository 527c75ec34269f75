"""Tests what a bundle for another machine is made of: names of its own, and an emulator before all else."""

from __future__ import annotations

import io
import itertools
import re
from pathlib import Path

import pytest

from bootstrap import docker_engine, pip
from bootstrap.bundle.opened import PLATFORMS, made_by, this_platform
from bootstrap.settings import Settings
from bootstrap.sources.bundle_file import Wheels
from bootstrap.sources.chosen import chosen
from bootstrap.steps.emulation import Emulation
from bootstrap.verbs import bundle, mirror
from bootstrap.verbs.bundle import Asked, architecture_of
from rayside.console import Console
from rayside.errors import InvalidArgument, MissingProgram
from rayside.steps.step import Condition
from rayside.system.shell import Shell
from tests.integration.vsix import without_asking

# As Debian's qemu-user-static has it in the kernel's list.
REGISTERED = """\
{state}
interpreter /usr/libexec/qemu-binfmt/aarch64-binfmt-P
flags: {flags}
offset 0
magic 7f454c460201010000000000000000000200{machine}00
mask ffffffffffffff00fffffffffffffffffeffffff
"""


def registered(folder: Path, state: str = "enabled", flags: str = "POF", machine: str = "b7") -> Emulation:
    (folder / "qemu-aarch64").write_text(REGISTERED.format(state=state, flags=flags, machine=machine))
    (folder / "python3.11").write_text("enabled\ninterpreter /usr/bin/python3.11\nflags: \nmagic a70d0d0a\n")
    (folder / "register").mkdir()  # it can't be read
    return Emulation("arm64", folder)


def test_an_emulator_that_containers_have_too_is_enough(tmp_path: Path) -> None:
    status = registered(tmp_path).check()
    assert status.condition is Condition.READY
    assert "aarch64-binfmt-P" in status.detail
    # A kernel that has no such list emulates nothing.
    assert Emulation("arm64", tmp_path / "absent").check().condition is Condition.MISSING


@pytest.mark.parametrize(
    "lacks", [{"state": "disabled"}, {"flags": "OC"}, {"machine": "28"}], ids=lambda lacks: str(*lacks)
)
def test_without_one_it_is_said_how_to_have_one(lacks: dict[str, str], tmp_path: Path) -> None:
    step = registered(tmp_path, **lacks)
    assert step.check().condition is Condition.MISSING
    with pytest.raises(MissingProgram, match="no programs for arm64") as raised:
        step.apply(print)
    assert "qemu-user-static" in raised.value.hint


def test_this_machines_platform_is_no_other() -> None:
    (other,) = {*PLATFORMS} - {this_platform()}
    assert architecture_of(this_platform()) == ""
    assert other == f"linux/{architecture_of(other)}"
    for platform in ("", "linux/riscv64", "arm64", "plan9/arm64", "linux/arm64,linux/amd64"):
        with pytest.raises(InvalidArgument, match="a bundle is for linux/amd64 or linux/arm64"):
            architecture_of(platform)


@pytest.mark.parametrize("name", ["packages", "upstream"])
def test_nothing_for_another_machine_has_the_name_of_what_is_for_this_one(name: str, tmp_path: Path) -> None:
    (other,) = {*PLATFORMS} - {this_platform()}
    settings = Settings(cache_folder=tmp_path)
    here, there = (
        chosen(name, settings, without_asking(settings), Shell(), each)
        for each in ("", architecture_of(other))
    )
    of_machine = ("program", "image")
    mine, others = (
        {each.name: each for each in source.artifacts if each.kind in of_machine} for source in (here, there)
    )
    assert mine.keys() == others.keys()
    assert {each.platform for each in others.values()} == {other}
    shared = {each.reference for each in mine.values()} & {each.reference for each in others.values()}
    assert shared == set()


def test_the_packages_are_those_for_that_machine(tmp_path: Path) -> None:
    options = pip.for_linux("3.12", "arm64")
    platforms = [value for option, value in itertools.pairwise(options) if option == "--platform"]
    assert platforms
    assert all(each.endswith("_aarch64") for each in platforms)
    wheels = [Wheels(Shell(), tmp_path, ("3.12",), each) for each in ("amd64", "arm64")]
    assert [each.platform for each in wheels] == ["linux/amd64", "linux/arm64"]
    assert wheels[0].folder != wheels[1].folder
    locked = "a==1 ; platform_machine == 'aarch64' \\\n    --hash=sha256:1\nb==1 \\\n    --hash=sha256:2\n"
    assert "a==1" in pip.for_python(locked, "3.12", "arm64")
    assert "a==1" not in pip.for_python(locked, "3.12", "amd64")


@pytest.mark.parametrize(
    ("asked", "file", "values", "told"),
    [
        ("linux/arm64", "a bundle", None, "a bundle is for one already"),
        ("linux/amd64,linux/arm64", None, "values", "--helm-values goes with one platform"),
        (
            *("linux/amd64,linux/m68k", None, None),
            "'linux/m68k', and a bundle is for linux/amd64 or linux/arm64",
        ),
        ("linux/amd64,linux/amd64", None, None, "names linux/amd64 twice"),
        ("linux/amd64,", None, None, "'', and a bundle is for"),
    ],
)
def test_what_a_mirror_can_not_have_is_refused_before_anybody_is_asked(
    asked: str, file: str | None, values: str | None, told: str
) -> None:
    with pytest.raises(InvalidArgument, match=re.escape(told)):
        mirror.fill(
            *(Settings(), Console(), "registry.test"),
            *(Path(file) if file else None, Asked(asked), Path(values) if values else None),
        )


def refusal(file: Path, asked: Asked, folder: Path, source: str = "packages") -> str:
    """Returns with what a bundle is refused before any step."""
    settings = Settings(cache_folder=folder / "cache", state_folder=folder / "state", source=source)
    with pytest.raises((InvalidArgument, MissingProgram)) as raised:
        bundle.written(settings, Console(), file, asked)
    return raised.value.message


def test_on_an_engine_for_another_machine_or_without_an_emulator_nothing_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundle, "this_platform", lambda: "linux/amd64")
    monkeypatch.setattr(bundle, "Emulation", lambda name: Emulation(name, Path("/absent")))
    monkeypatch.setattr(docker_engine, "answers", lambda: True)
    monkeypatch.setattr(docker_engine, "architecture", lambda client: "arm64")
    monkeypatch.setattr(docker_engine, "new_client", lambda patience: io.BytesIO())
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    other = Asked("linux/arm64")
    for source in ("packages", "upstream"):
        assert "no programs for arm64" in refusal(tmp_path / "b", other, tmp_path, source)
    assert "another machine than this, linux/amd64" in refusal(tmp_path / "b", Asked(), tmp_path)
    # Debian is unpacked here, whoever builds.
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    assert "no programs for arm64" in refusal(tmp_path / "b", other, tmp_path)
    assert bundle._emulation("upstream", "arm64") == []
    assert bundle._emulation("packages", "amd64") == []


def test_only_what_can_be_made_is_named_in_a_hint() -> None:
    assert made_by("the command", "linux/arm64").endswith("the command")
    for platform in ("darwin/arm64", "linux/s390x"):
        assert "the command" not in made_by("the command", platform)
