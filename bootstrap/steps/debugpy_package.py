"""Brings debugpy for jobs on a Ray whose image lacks it: it travels with the job, among its `py_modules`.

So the cluster's workers need no network, no pip and no other image.
"""

from __future__ import annotations

import re
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from bootstrap import cache, pip
from bootstrap.settings import DEBUGPY_VERSION
from bootstrap.shell import Shell
from bootstrap.step import Report, Status, missing, ready
from bootstrap.steps.ray_environment import LOCK_FILE
from bootstrap.steps.their_ray import TheirRay
from rayside.errors import NotRunning

# The debugger's packages: of the lock file a line of each, and its hashes. What bytecode requires, Ray has.
_PACKAGES = "bytecode", "debugpy"
_LOCKED = re.compile(rf"^(?:{'|'.join(_PACKAGES)})==[^\n]*\\\n(?:    --hash=[^\n]*\n)+", re.MULTILINE)


@dataclass(frozen=True)
class DebugpyPackage:
    """debugpy, and what it needs to compile breakpoints in, for the Python of the cluster's workers.

    They are in a folder named by what it is of.

    debugpy's compiled parts are for Linux and this machine's kind of processor; elsewhere debugpy takes those
    in Python, which are slower. `wheels`: as `Source` has it.
    """

    shell: Shell
    cache_folder: Path
    ray: TheirRay
    wheels: Path | None = None
    name: str = "debugpy-package"
    title: str = f"debugpy {DEBUGPY_VERSION} for jobs"
    needs: tuple[str, ...] = ("ray",)

    @property
    def packages(self) -> tuple[str, ...]:
        """Returns each package's own folder. Raises NotRunning where nobody has looked at the Ray yet."""
        return tuple(str(self._folder / name) for name in _PACKAGES)

    def check(self) -> Status:
        return ready(str(self._folder)) if self._folder.exists() else missing("not downloaded yet")

    def apply(self, report: Report) -> None:
        """Downloads and unpacks it. Raises NoNetwork, CommandFailed."""
        with cache.making(self._folder, report) as draft, tempfile.TemporaryDirectory() as home:
            if draft is None:
                return
            lock_file = Path(home, "debugpy.txt")
            lock_file.write_text(self.locked)
            options = ["--target", str(draft), *pip.for_linux(self._python)]
            env = cache.environment(self._folder)
            pip.install(
                *(self.shell, sys.executable, lock_file, options), wheels=self.wheels, env=env, report=report
            )

    def undo(self, report: Report) -> None:
        if self.ray.known:
            cache.end_abandoned(self._folder)

    @property
    def _folder(self) -> Path:
        key = cache.key(self.locked, *pip.for_linux(self._python))
        return self.cache_folder / f"debugpy-{DEBUGPY_VERSION}-{key}"

    @property
    def locked(self) -> str:
        """Returns the lines of the lock file that are of these packages."""
        locked = _LOCKED.findall(LOCK_FILE.read_text())
        assert len(locked) == len(_PACKAGES), LOCK_FILE
        return "".join(entry.rstrip().removesuffix("\\") + "\n" for entry in locked)

    @property
    def _python(self) -> str:
        """Returns the version of the workers' Python without its last part, as in 3.11."""
        version = self.ray.known.get("python", "")
        if not version:
            raise NotRunning("nobody has looked at this Ray yet", hint="./invokew up does")
        return ".".join(version.split(".")[:2])
