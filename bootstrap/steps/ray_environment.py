"""Python environment for Ray on this machine, made once from a lock file and cached."""

from __future__ import annotations

import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from bootstrap import cache, pip
from bootstrap.settings import RAY_VERSION, ROOT
from rayside.steps.step import Report, Status, missing, ready
from rayside.system.lock import alone
from rayside.system.shell import Shell

LOCK_FILE = ROOT / "requirements" / "ray.txt"
# With it, each Python process of the environment runs the file in RAYSIDE_START: rayside/worker/start.py.
START_FILE = ROOT / "image" / "ray" / "rayside.pth"


@dataclass(frozen=True)
class RayEnvironment:
    """A virtual environment with Ray and debugpy, in a folder named by the hash of its inputs.

    `version`: Ray's version in the lock file. `wheels`: as in `Source`.
    """

    shell: Shell
    cache_folder: Path
    lock_file: Path = LOCK_FILE
    version: str = RAY_VERSION
    wheels: Path | None = None
    name: str = "ray-environment"

    @property
    def needs(self) -> tuple[str, ...]:
        return ("disk", "wheels") if self.wheels else ("disk",)

    @property
    def title(self) -> str:
        return f"Python environment with Ray {self.version}"

    @cached_property
    def folder(self) -> Path:
        version = ".".join(map(str, sys.version_info[:3]))
        # A virtual environment can't be moved, nor outlive its Python: both are inputs.
        made_of = (self.lock_file.read_text(), START_FILE.read_text())
        key = cache.key(*made_of, version, sys.base_prefix, str(self.cache_folder))
        return self.cache_folder / f"ray-{self.version}-py{version}-{key}"

    @property
    def programs(self) -> Path:
        """Returns the folder of `ray` and `python`."""
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
            cache.end_builds(self.folder)
            report("making a virtual environment")
            # A killed process leaves unpacked files in its temporary folder: here the next --clear removes
            # them.
            temporary = self.folder / "tmp"
            env = {**cache.environment(self.folder), "TMPDIR": str(temporary)}
            venv = [sys.executable, "-I", "-m", "venv", "--clear", "--without-pip"]
            self.shell.run([*venv, self.folder], env=env)
            temporary.mkdir()
            report("installing, about 500 MB" if self.wheels else "downloading and installing, about 500 MB")
            python = self.programs / "python"
            # uv's cache stays until the environment is complete: after a failure the next `up` reuses it.
            kept = self.folder.with_name(f"{self.folder.name}.uv")
            with ThreadPoolExecutor() as pool:
                # Jobs with `pip` in their runtime_env need pip; uv does not, and both take some seconds.
                pip_there = pool.submit(self.shell.run, [python, "-I", "-m", "ensurepip"], env=env)
                if pip.uv_of(sys.executable) is None:
                    pip_there.result()
                pip.install(
                    *(self.shell, python, self.lock_file),
                    wheels=self.wheels,
                    kept=kept,
                    env=env,
                    report=report,
                )
                pip_there.result()
            shutil.rmtree(kept, ignore_errors=True)
            shutil.rmtree(temporary)
            packages = next(self.folder.glob("lib/python3*/site-packages"))
            shutil.copyfile(START_FILE, packages / START_FILE.name)
            self._complete.touch()

    def undo(self, report: Report) -> None:
        cache.end_abandoned(self.folder)
