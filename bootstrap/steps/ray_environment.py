"""The Python environment that Ray runs in on this machine: made once from a lock file, then cached."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from bootstrap import shell as processes
from bootstrap.errors import CommandFailed, NoNetwork
from bootstrap.lock import alone
from bootstrap.settings import RAY_VERSION, ROOT
from bootstrap.shell import Shell
from bootstrap.step import Report, Status, missing, ready

LOCK_FILE = ROOT / "requirements" / "ray.txt"
# Marks the processes of a build, so that those of one that was killed are found and ended.
_MARK = "RAYSIDE_BUILD"


@dataclass(frozen=True)
class RayEnvironment:
    """A virtual environment with Ray and debugpy, in a folder named by the hash of what it is made of."""

    shell: Shell
    cache_folder: Path
    lock_file: Path = LOCK_FILE
    name: str = "ray-environment"
    title: str = f"Python environment with Ray {RAY_VERSION}"
    needs: tuple[str, ...] = ("machine",)
    patience: float = 0.0

    @property
    def folder(self) -> Path:
        version = ".".join(map(str, sys.version_info[:3]))
        # A virtual environment can't be moved, nor outlive its Python: both are inputs.
        inputs = f"{self.lock_file.read_text()}{version}{sys.base_prefix}{self.cache_folder}"
        key = hashlib.sha256(inputs.encode()).hexdigest()[:12]
        return self.cache_folder / f"ray-{RAY_VERSION}-py{version}-{key}"

    @property
    def programs(self) -> Path:
        """The folder of `ray` and `python`."""
        return self.folder / "bin"

    @property
    def _complete(self) -> Path:
        return self.folder / ".complete"

    def check(self) -> Status:
        return ready(str(self.folder)) if self._complete.exists() else missing("not made yet")

    def apply(self, report: Report) -> None:
        guard = self.cache_folder / f"{self.folder.name}.lock"
        with alone(guard, lambda: report("another command is making it: waiting")):
            if self._complete.exists():
                return
            self._end_builds()
            report("making a virtual environment")
            # A pip that is killed leaves what it unpacked in the temporary folder: here it goes with
            # the next --clear.
            temporary = self.folder / "tmp"
            env = {**os.environ, _MARK: str(self.folder), "TMPDIR": str(temporary)}
            self.shell.run([sys.executable, "-m", "venv", "--clear", self.folder], env=env)
            temporary.mkdir()
            report("downloading and installing, about 400 MB")
            # The lock is the whole closure: nothing to resolve.
            pip: list[str | Path] = [
                self.programs / "python",
                "-m",
                "pip",
                "install",
                "--disable-pip-version-check",
            ]
            pip += [
                "--no-input",
                "--progress-bar",
                "off",
                "--no-deps",
                "--require-hashes",
                "-r",
                self.lock_file,
            ]
            try:
                self.shell.run(pip, env=env, on_line=lambda line: self._told(line, report))
            except CommandFailed as error:
                raise _explained(error) from None
            shutil.rmtree(temporary)
            self._complete.touch()

    def undo(self, report: Report) -> None:
        self._end_builds()

    def _end_builds(self) -> None:
        processes.end(lambda: processes.marked(_MARK, str(self.folder)), patience=2)

    @staticmethod
    def _told(line: str, report: Report) -> None:
        if line.startswith(("Collecting ", "Installing ")):
            report(" ".join(line.split()[:2]))


def _explained(error: CommandFailed) -> CommandFailed | NoNetwork:
    # What pip says when an index can't be reached ends in "No matching distribution".
    signs = ("NewConnectionError", "No matching distribution", "Max retries", "ReadTimeout", "ConnectTimeout")
    if any(sign in error.message for sign in signs):
        return NoNetwork(
            "the Python package index could not be reached, and Ray is not in the cache yet",
            hint="connect, or set pip's index-url and proxy (pip config), and run it again",
        )
    return error
