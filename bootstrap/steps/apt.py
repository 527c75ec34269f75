"""Runs Debian's apt-get, and waits for its turn where another program installs or updates packages."""

from __future__ import annotations

import fcntl
import os
import re
import shlex
import struct
from collections.abc import Sequence
from pathlib import Path

import psutil

from bootstrap.errors import AptBusy, CommandFailed
from bootstrap.shell import Shell
from bootstrap.step import Report, until

# It waits so many seconds: a fresh machine of a cloud installs its upgrades in its first minutes.
PATIENCE = 600.0
# apt keeps what it locks in these folders, by the names of its own configuration.
_FOLDERS = {
    "LISTS": "Dir::State::lists/d",
    "ARCHIVES": "Dir::Cache::archives/d",
    "STATUS": "Dir::State::status/f",
}
# apt-get says this where somebody has taken a lock since we looked.
_LOCKED = re.compile(r"Could not get lock|Unable to lock|Unable to acquire the dpkg frontend lock")
# It is struct flock of fcntl(2), as 64-bit Linux has it: type, whence, start, length, process.
_FLOCK = struct.Struct("hhqqi")


def install(shell: Shell, report: Report, *packages: str, patience: float = PATIENCE) -> None:
    """Installs Debian's own packages, without asking and without what they recommend.

    Each of its two commands waits `patience` seconds for a lock that another program holds;
    `report` says which program that is. Raises AptBusy, CommandFailed, MissingProgram, Interrupted.
    """
    lists, *others = _locks(shell)
    _run(shell, report, ["update", "-qq"], [lists], patience)
    _run(shell, report, ["install", "-y", "-qq", "--no-install-recommends", *packages], others, patience)


def holder(lock: Path) -> str:
    """Returns who holds a lock of apt's or dpkg's, as in `apt-get (process 7)`; empty where nobody does."""
    try:
        descriptor = os.open(lock, os.O_RDONLY)
    except FileNotFoundError:
        return ""
    try:
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, *_, pid = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
    finally:
        os.close(descriptor)
    if kind == fcntl.F_UNLCK:
        return ""
    try:
        return f"{psutil.Process(pid).name()} (process {pid})"
    except (psutil.Error, ValueError):  # It is in another container, or has just ended.
        return "another program"


def _locks(shell: Shell) -> tuple[Path, Path, Path, Path]:
    """Returns the lock of `apt-get update`, then those of `apt-get install`."""
    names = [word for pair in _FOLDERS.items() for word in pair]
    words = shlex.split(shell.run(["apt-config", "shell", *names]).out)
    place = {name: Path(value) for name, _, value in (word.partition("=") for word in words)}
    dpkg = place["STATUS"].parent
    return place["LISTS"] / "lock", dpkg / "lock-frontend", dpkg / "lock", place["ARCHIVES"] / "lock"


def _run(
    shell: Shell, report: Report, arguments: Sequence[str], locks: Sequence[Path], patience: float
) -> None:
    """Runs `apt-get` with those arguments, once nobody holds any of the locks that it takes."""
    # apt-get itself waits for dpkg's locks alone, and fails at once for the others.
    command = ["apt-get", "-o", f"DPkg::Lock::Timeout={patience:.0f}", *arguments]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}

    def hindrance() -> str:
        """Runs it; returns who keeps it from running, empty once it has run."""
        for lock in locks:
            if name := holder(lock):
                report(f"waiting for {name}, which holds {lock}")
                return name
        report(f"apt-get {' '.join(arguments)}")
        try:
            shell.run(command, env=environment, on_line=report)
        except CommandFailed as error:
            if not _LOCKED.search(error.message):
                raise
            return "another program"
        return ""

    if name := until(hindrance, lambda name: not name, patience):
        raise AptBusy(
            f"{name} has kept apt-get from running for {patience:.0f} s",
            hint="wait until it has ended, or end it; then run the command again",
        )
