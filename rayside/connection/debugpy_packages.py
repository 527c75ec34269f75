"""debugpy packages for jobs whose image lacks debugpy: they travel with the job, among its `py_modules`.

So the cluster's workers need no network, no pip and no other image.
"""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path

from rayside import versions

# The debugger's packages. What bytecode requires, Ray has.
_PACKAGES = "bytecode", "debugpy"
# Their compiled parts: debugpy takes its Python ones, which are slower, where these are for another Python.
_COMPILED = "*.so", "*.pyd", "*.dylib", "__pycache__"


def packages_for(python: str, folder: Path) -> tuple[str, ...]:
    """Returns the folder of each package, for workers with this Python, as in 3.11.7.

    They are this environment's own; or, where their compiled parts are for another Python than the
    workers', or another system, copies without these in `folder`. A Python on another processor ignores
    compiled parts that are not its own.
    """
    own = tuple(_own(name) for name in _PACKAGES)
    is_same_python = python.split(".")[:2] == [str(part) for part in sys.version_info[:2]]
    if sys.platform == "linux" and is_same_python:
        return tuple(map(str, own))
    copies = folder / f"debugpy-{versions.DEBUGPY}"
    if not copies.exists():
        draft = folder / f"{copies.name}.draft"
        shutil.rmtree(draft, ignore_errors=True)
        for package in own:
            shutil.copytree(package, draft / package.name, ignore=shutil.ignore_patterns(*_COMPILED))
        draft.rename(copies)
    return tuple(str(copies / package.name) for package in own)


def _own(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    assert spec is not None and spec.submodule_search_locations, f"rayside requires {name}"
    return Path(next(iter(spec.submodule_search_locations)))
