"""Packages of the labs that Ray's environment lacks: profilers for the workers, and plots on this machine.

Workers get the profilers with the job, as one folder of `py_modules`, without network, pip or another image.
A wheel there would be installed by pip in the cluster, with dependencies downloaded without hashes (Ray 2.60,
`install_wheel_package`); Ray's Jobs API refuses a module that is one file.
"""

from __future__ import annotations

import platform
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bootstrap import cache, pip
from bootstrap.settings import ROOT
from bootstrap.targets.target import Target
from rayside.system.shell import Shell

PROFILERS = ROOT / "requirements" / "lab-profilers.txt"
PLOTS = ROOT / "requirements" / "lab-plots.txt"
_PACKAGE = """\
\"\"\"Lets Python find the profilers that lie in this folder; import it before them.\"\"\"

import sys

sys.path.append(__path__[0])
"""

Report = Callable[[str], None]


def profilers(target: Target, report: Report) -> Path:
    """Returns the package `profilers`, for `py_modules`.

    Its content is for the Python version of the workers. Raises NoNetwork, CommandFailed, NotRunning.
    """
    version = target.access.require().python_version()
    options = pip.for_linux(version) if target.kubernetes else ["--python-version", version]
    return _installed(target, PROFILERS, options, report)


def offer_profilers(target: Target, report: Report, folder: Path) -> None:
    """Creates a link to the package `profilers` in the folder of the labs. Raises as `profilers`."""
    package = profilers(target, report)
    draft = folder / ".profilers"
    draft.unlink(missing_ok=True)
    draft.symlink_to(package)
    draft.replace(folder / package.name)


def mprof(target: Target, report: Report) -> tuple[list[str], dict[str, str]]:
    folder = _installed(target, PLOTS, [], report)
    return [sys.executable, "-m", "mprof"], {"PYTHONPATH": str(folder), "MPLBACKEND": "agg"}


def offer_mprof(target: Target, report: Report, folder: Path) -> None:
    command, variables = mprof(target, report)
    words = [f"{name}={shlex.quote(value)}" for name, value in variables.items()]
    file = folder / "mprof"
    file.write_text(f'#!/bin/sh\n{" ".join(words)} exec {shlex.join(command)} "$@"\n')
    file.chmod(0o755)


def _installed(target: Target, lock_file: Path, options: Sequence[str], report: Report) -> Path:
    """Returns a package in the cache with a lock file's packages; it is made if missing."""
    made_of = (lock_file.read_text(), _PACKAGE, *options, sys.version, sys.platform, platform.machine())
    folder = target.settings.cache_folder / f"{lock_file.stem}-{cache.key(*made_of)}"
    name = lock_file.stem.removeprefix("lab-")
    with cache.making(folder, report) as draft:
        if draft:
            report(f"downloading what {lock_file.name} names")
            into: list[str | Path] = ["--target", draft / name, *options]
            env = cache.environment(folder)
            origin: dict[str, Any] = {"wheels": target.wheels, "env": env, "report": report}
            pip.install(Shell(), sys.executable, lock_file, into, **origin)
            (draft / name / "__init__.py").write_text(_PACKAGE)
    return folder / name
