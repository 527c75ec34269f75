"""Installs what a lock file names, by its hashes and nothing else."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from bootstrap.errors import CommandFailed, NoNetwork
from bootstrap.shell import Shell

# pip's message when an index can't be reached ends in "No matching distribution".
UNREACHABLE = (
    "NewConnectionError",
    "No matching distribution",
    "Max retries",
    "ReadTimeout",
    "ConnectTimeout",
)

# These are the tags of wheels for any Linux with glibc of this century, in the words of PEP 600.
_MANYLINUX = ("2_34", "2_28", "2_24", "2_17", "2_12", "2_5")
_MACHINES = {"arm64": "aarch64", "AMD64": "x86_64"}


def for_linux(python: str) -> list[str]:
    """Returns the options for wheels of a Linux with that Python, as 3.11, and this machine's processor."""
    machine = _MACHINES.get(platform.machine(), platform.machine())
    platforms = [word for tag in _MANYLINUX for word in ("--platform", f"manylinux_{tag}_{machine}")]
    return ["--python-version", python, *platforms]


def install(
    shell: Shell,
    python: str | Path,
    lock_file: Path,
    options: Sequence[str | Path] = (),
    *,
    env: Mapping[str, str] = os.environ,
    report: Callable[[str], None] = lambda _: None,
) -> None:
    """Installs into the environment of `python`, or into another place that `options` name.

    Raises NoNetwork where the index can't be reached, else CommandFailed.
    """
    pip = [
        python,
        "-m",
        "pip",
        "install",
        "--disable-pip-version-check",
        "--no-input",
        "--progress-bar",
        "off",
    ]

    def report_package(line: str) -> None:
        if line.startswith(("Collecting ", "Installing ")):
            report(" ".join(line.split()[:2]))

    try:
        # The lock is the whole closure: nothing to resolve. It takes wheels alone, as what builds a source
        # package would be fetched without a hash, and run.
        exact = ["--no-deps", "--require-hashes", "--only-binary", ":all:"]
        command = [*pip, *exact, "--requirement", lock_file, *options]
        shell.run(command, env=env, on_line=report_package)
    except CommandFailed as error:
        if any(sign in error.message for sign in UNREACHABLE):
            raise NoNetwork(
                f"the Python package index could not be reached, for what {lock_file.name} names",
                hint="connect, or set pip's index-url and proxy (pip config), and run it again",
            ) from None
        raise
