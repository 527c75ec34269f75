"""Installs what a lock file names, by its hashes and nothing else."""

from __future__ import annotations

import os
import platform
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from bootstrap.errors import BadBundle, CommandFailed, NoNetwork
from bootstrap.shell import Shell
from bootstrap.venv import PIP_SETTINGS, for_pip

# pip's message when an index can't be reached ends in "No matching distribution".
UNREACHABLE = (
    "NewConnectionError",
    "No matching distribution",
    "Max retries",
    "ReadTimeout",
    "ConnectTimeout",
)

# These are the tags of wheels for any Linux with glibc of this century, in the words of PEP 600 and of those
# before it, the oldest first: what runs on the most systems is taken. pip knows of none that it is not told.
_OLDEST_GLIBC, _NEWEST_GLIBC = 5, 40
_MANYLINUX = (
    *("1", "2010", "2014"),
    *(f"_2_{minor}" for minor in range(_OLDEST_GLIBC, _NEWEST_GLIBC + 1)),
)
_MACHINES = {"arm64": "aarch64", "amd64": "x86_64", "AMD64": "x86_64"}


def for_linux(python: str, architecture: str = "") -> list[str]:
    """Returns the options for wheels of a Linux with that Python, as 3.11.

    `architecture`: of its processor, as images call it; default: this machine's.
    """
    machine = _machine(architecture)
    platforms = [word for tag in _MANYLINUX for word in ("--platform", f"manylinux{tag}_{machine}")]
    return ["--python-version", python, *platforms]


def _machine(architecture: str) -> str:
    """Returns what Linux calls a processor."""
    machine = architecture or platform.machine()
    return _MACHINES.get(machine, machine)


def install(
    shell: Shell,
    python: str | Path,
    lock_file: Path,
    options: Sequence[str | Path] = (),
    *,
    wheels: Path | None = None,
    env: Mapping[str, str] = os.environ,
    report: Callable[[str], None] = lambda _: None,
) -> None:
    """Installs into the environment of `python`, or into another place that `options` name.

    `wheels` is a folder that has all of it, where no index is to be asked. Raises NoNetwork where the index
    can't be reached, else CommandFailed.
    """
    origin: list[str | Path] = ["--no-index", "--find-links", wheels] if wheels else []
    _run(shell, python, "install", lock_file, [*origin, *options], env, report)


def download(
    shell: Shell,
    lock_file: Path,
    folder: Path,
    python: str,
    architecture: str = "",
    *,
    env: Mapping[str, str] = os.environ,
    report: Callable[[str], None] = lambda _: None,
) -> None:
    """Downloads the wheels for a Linux with that Python, as 3.11, into a folder. Raises as `install`.

    `architecture` is that of `for_linux`.
    """
    with tempfile.TemporaryDirectory() as name:
        lock_there = Path(name, lock_file.name)
        lock_there.write_text(for_python(lock_file.read_text(), python, architecture))
        options: list[str | Path] = ["--dest", folder, *for_linux(python, architecture)]
        _run(shell, sys.executable, "download", lock_there, options, env, report)


def for_python(locked: str, python: str, architecture: str = "") -> str:
    """Returns what a lock file has for a Linux with that Python, as 3.11, without conditions.

    `architecture` is that of `for_linux`.

    pip itself asks the Python that it runs on whether a condition holds
    (https://packaging.python.org/en/latest/specifications/dependency-specifiers/#environment-markers).
    """
    # Not at the top: seldom used.
    from packaging.markers import Marker

    there = {"python_version": python, "python_full_version": f"{python}.0", "sys_platform": "linux"}
    there |= {"platform_system": "Linux", "os_name": "posix", "platform_machine": _machine(architecture)}
    kept: list[str] = []
    holds = True
    for line in locked.splitlines():
        if line[:1].strip() and not line.startswith("#"):
            requirement, condition, marker = line.partition(";")
            holds = not condition or Marker(marker.strip().removesuffix("\\")).evaluate(there)
            line = f"{requirement.strip()} \\" if condition else line
        if holds:
            kept.append(line)
    return "\n".join(kept) + "\n"


def _run(
    shell: Shell,
    python: str | Path,
    verb: str,
    lock_file: Path,
    options: Sequence[str | Path],
    env: Mapping[str, str],
    report: Callable[[str], None],
) -> None:
    def report_package(line: str) -> None:
        if line.startswith(("Collecting ", "Installing ")):
            report(" ".join(line.split()[:2]))

    quiet = ["--disable-pip-version-check", "--no-input", "--progress-bar", "off"]
    # The lock is the whole closure: nothing to resolve. It takes wheels alone, as what builds a source
    # package would be fetched without a hash, and run.
    exact = ["--no-deps", "--require-hashes", "--only-binary", ":all:"]
    try:
        listed = shell.run([python, *PIP_SETTINGS], env=for_pip(env)).out
        command = [python, "-m", "pip", verb, *quiet, *exact, *options, "--requirement", lock_file]
        shell.run(command, env=for_pip(env, listed), on_line=report_package)
    except CommandFailed as error:
        if "--no-index" in options and UNREACHABLE[1] in error.message:
            raise BadBundle(
                f"the bundle lacks a package that {lock_file.name} names, for this Python and this system:\n"
                f"{error.message}",
                hint="make it anew, on a system like this one: ./invokew bundle FILE",
            ) from None
        if any(sign in error.message for sign in UNREACHABLE):
            raise NoNetwork(
                f"the Python package index could not be reached, for what {lock_file.name} names",
                hint="connect, or set pip's index-url and proxy (pip config), and run it again",
            ) from None
        raise
