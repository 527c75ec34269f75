"""Debian's apt-get, which waits while another program installs or updates packages."""

from __future__ import annotations

import os
import re

from bootstrap.errors import AptBusy
from rayside.errors import CommandFailed
from rayside.steps.step import Report
from rayside.system.shell import Shell
from rayside.waiting import until

# Timeout in seconds: a fresh machine of a cloud installs its upgrades in its first minutes.
PATIENCE = 600.0
# apt-get's messages for a lock of another program; newer versions name the program.
_LOCKED = re.compile(r"(?:Could not get lock|Unable to lock|Unable to acquire the dpkg frontend lock).*")


def install(shell: Shell, report: Report, *packages: str, patience: float = PATIENCE) -> None:
    """Installs Debian packages, without prompts and recommended packages.

    Each of its two commands waits `patience` seconds for a lock that another program holds.
    Raises AptBusy, CommandFailed, MissingProgram, Interrupted.
    """
    _run(shell, report, "update", "-qq", patience=patience)
    _run(shell, report, "install", "-y", "-qq", "--no-install-recommends", *packages, patience=patience)


def _run(shell: Shell, report: Report, *arguments: str, patience: float) -> None:
    # apt-get's own wait is for dpkg's locks alone, and silent.
    command = ["apt-get", "-o", "DPkg::Lock::Timeout=0", *arguments]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}

    def hindrance() -> str:
        """Runs the command; returns apt-get's message about a lock, empty after success."""
        try:
            shell.run(command, env=environment, on_line=report)
        except CommandFailed as error:
            if not (locked := _LOCKED.search(error.message)):
                raise
            report(f"waiting: {locked[0]}")
            return locked[0]
        return ""

    report(f"apt-get {' '.join(arguments)}")
    if words := until(hindrance, lambda words: not words, patience):
        raise AptBusy(
            f"another program has kept apt-get from running for {patience:.0f} s: {words}",
            hint="wait until it has ended, or end it; then run the command again",
        )
