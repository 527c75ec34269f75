"""Tests the loader of a program in parts, by running it: on this processor, and on others under QEMU's."""

from __future__ import annotations

import os
import platform
import re
import shutil
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from bootstrap.delivery import loader as loaders
from bootstrap.delivery.loader import loader, parts

_OWN = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), "")
_EMULATORS = {"amd64": "x86_64", "arm64": "aarch64"}
SCRIPT = b'#!/bin/sh\necho "$0 has $# arguments, and the environment:" ; env\n'


def runners() -> dict[str, list[str]]:
    """Returns what a program of each architecture is run by here: nothing is before one of this machine's."""
    named = {_OWN: [""]} if _OWN else {}
    for architecture, processor in _EMULATORS.items():
        emulator = shutil.which(f"qemu-{processor}-static") or shutil.which(f"qemu-{processor}")
        if architecture != _OWN and emulator:
            named[architecture] = [emulator]
    return {architecture: [word for word in words if word] for architecture, words in named.items()}


@dataclass(frozen=True)
class Loader:
    """A loader in a folder without anything else that may be written."""

    folder: Path
    before: list[str]

    @property
    def out(self) -> Path:
        return self.folder / "out" / "program"

    def part(self, content: bytes) -> Path:
        path = self.folder / f"part-{len(list(self.folder.iterdir()))}"
        path.write_bytes(content)
        return path

    def __call__(self, *arguments: Path, **environment: str) -> subprocess.CompletedProcess[str]:
        command: list[str | Path] = [*self.before, self.folder / "loader", *arguments]
        return subprocess.run(
            command, capture_output=True, text=True, env=environment, timeout=60, check=False, cwd="/"
        )


@pytest.fixture(params=sorted(runners()))
def load(request: pytest.FixtureRequest, tmp_path: Path) -> Loader:
    (tmp_path / "loader").write_bytes(loader(request.param))
    (tmp_path / "loader").chmod(0o555)
    (tmp_path / "out").mkdir()
    return Loader(tmp_path, runners()[request.param])


def test_it_becomes_the_program_that_its_parts_are_with_its_environment_and_no_arguments(
    load: Loader,
) -> None:
    # A container that is started again has what the one before has left.
    load.out.write_bytes(b"of the one before, which was longer" * 100)
    load.out.chmod(0o700)
    pieces = [load.part(SCRIPT[:15]), load.part(b""), load.part(SCRIPT[15:40]), load.part(SCRIPT[40:])]
    done = load(load.out, *pieces, ADA="lovelace", EMPTY="")
    assert (done.returncode, done.stderr) == (0, "")
    first, *environment = done.stdout.splitlines()
    assert first == f"{load.out} has 0 arguments, and the environment:"
    assert {"ADA=lovelace", "EMPTY="} <= set(environment)
    assert load.out.read_bytes() == SCRIPT


def test_what_it_writes_is_this_users_alone(load: Loader) -> None:
    assert load(load.out, load.part(SCRIPT)).returncode == 0
    assert load.out.stat().st_mode & 0o777 == 0o700


def test_a_part_is_larger_than_what_is_copied_at_once(load: Loader) -> None:
    program = b"#!/bin/sh\nexit 7\n" + os.urandom(2_500_000)
    assert load(load.out, load.part(program)).returncode == 7
    assert load.out.read_bytes() == program


def test_its_exit_code_says_at_what_it_failed(load: Loader) -> None:
    part, nothing = load.part(SCRIPT), load.folder / "nothing"
    assert load().returncode == 2
    assert load(nothing / "program", part).returncode == 2
    assert load(load.out, part, nothing).returncode == 3
    assert load(load.out, part, load.folder).returncode == 4
    assert load(load.out).returncode == 5
    assert load(load.out, load.part(b"no program")).returncode == 5


def test_a_full_disk_is_a_failure_to_copy(load: Loader) -> None:
    assert load(Path("/dev/full"), load.part(SCRIPT)).returncode == 4


def test_parts_fit_into_a_config_map_and_are_the_whole() -> None:
    program = os.urandom(2_000_001)
    pieces = parts(program)
    assert [len(piece) for piece in pieces] == [1_000_000, 1_000_000, 1]
    assert b"".join(pieces) == program


@pytest.mark.parametrize(("architecture", "machine"), [("amd64", 62), ("arm64", 183)])
def test_it_is_a_static_program_of_one_segment_and_without_a_stack_that_can_be_executed(
    architecture: str, machine: int
) -> None:
    program = loader(architecture)
    assert program[:7] == b"\x7fELF\x02\x01\x01"
    kind, of_machine, _, entry, segments = struct.unpack_from("<HHIQQ", program, 16)
    assert (kind, of_machine, segments) == (2, machine, 64)
    load, stack = (struct.unpack_from("<IIQQQQQQ", program, 64 + 56 * number) for number in range(2))
    assert load == (1, 5, 0, 0x400000, 0x400000, len(program), len(program), 0x10000)
    assert stack[:2] == (0x6474E551, 6)
    assert entry - 0x400000 == 64 + 2 * 56
    # Base64 makes it a third longer: it fits beside a part.
    assert len(program) < 1000


def number(text: str) -> int:
    return int(text.lstrip("#"), 0)


def word(text: str) -> int:
    """Returns the word of an arm64 instruction, of a jump without its distance.

    Of the Arm Architecture Reference Manual for A-profile, chapter C6, this has what the loader needs.
    """
    name, *operands = re.findall(r"[#\w-]+", text)
    register = [31 if each in ("xzr", "sp") else int(each[1:]) if each[0] == "x" else 0 for each in operands]
    if name == "svc":
        return 0xD4000001
    if name == "b":
        return 0x14000000
    if name == "tbnz":
        bit = number(operands[1])
        return 0x37000000 | bit >> 5 << 31 | (bit & 31) << 19 | register[0]
    if name in ("cbz", "cbnz"):
        return {"cbz": 0xB4000000, "cbnz": 0xB5000000}[name] | register[0]
    if name == "mov" and operands[1] == "sp":
        return 0x91000000 | 31 << 5 | register[0]  # ADD (immediate)
    if name == "mov" and operands[1][0] == "#":
        value = number(operands[1])
        if value < 0:
            return 0x92800000 | ~value << 5 | register[0]  # MOVN
        shift = 1 if value >= 1 << 16 else 0
        return 0xD2800000 | shift << 21 | value >> 16 * shift << 5 | register[0]  # MOVZ
    if name == "mov":
        return 0xAA0003E0 | register[1] << 16 | register[0]  # ORR (shifted register)
    if name == "add" and operands[2][0] == "#":
        return 0x91000000 | number(operands[2]) << 10 | register[1] << 5 | register[0]
    if name == "add":
        return 0x8B000000 | register[2] << 16 | number(operands[4]) << 10 | register[1] << 5 | register[0]
    if text.endswith("], #8"):
        return 0xF8400400 | 8 << 12 | register[1] << 5 | register[0]  # LDR (immediate), post-index
    offset = number(operands[2]) if len(operands) > 2 else 0
    return {"ldr": 0xF9400000, "str": 0xF9000000}[name] | offset // 8 << 10 | register[1] << 5 | register[0]


def test_each_word_for_arm64_is_what_its_text_says() -> None:
    for text, encoding in loaders._ARM64:
        assert text.endswith(":") or int(encoding, 16) == word(text), text
