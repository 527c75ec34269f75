"""Installs what a lock file names, by its hashes and nothing else."""

from __future__ import annotations

import os
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
