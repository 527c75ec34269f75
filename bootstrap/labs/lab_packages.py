"""Brings what labs show and Ray's environment lacks: profilers for the workers, and a plot on this machine.

Workers get them with the job, as one folder of `py_modules`: they need no network, no pip and no other image.
A wheel there would be installed by pip in the cluster, and what it requires fetched without a hash (Ray 2.60,
`install_wheel_package`); a module that is one file is refused by Ray's Jobs API.
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
    """Returns the package `profilers`, to be sent as one of `py_modules`.

    What is in it is for the Python of the cluster's workers. Raises NoNetwork, CommandFailed, NotRunning.
    """
    version = target.access.require().python_version()
    options = pip.for_linux(version) if target.kubernetes else ["--python-version", version]
    return _installed(target, PROFILERS, options, report)


def offer_profilers(target: Target, report: Report, folder: Path) -> None:
    """Puts a link to the package `profilers` into the folder of the labs. Raises as `profilers`."""
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
    """Returns a package in the cache that has what a lock file names; it is made where it is lacking."""
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
