"""debugpy packages for images without debugpy: they are uploaded with the job, in its `py_modules`.

The workers then need no network, no pip and no other image.
"""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path

from rayside import versions

# The debugger's packages. Ray includes the dependencies of bytecode.
_PACKAGES = "bytecode", "debugpy"
# Compiled extensions: without one for its Python version, debugpy falls back to slower Python code.
_COMPILED = "*.so", "*.pyd", "*.dylib", "__pycache__"


def packages_for(python: str, folder: Path) -> tuple[str, ...]:
    """Returns the folder of each package, for workers with the Python version `python`, as in 3.11.7.

    The packages are this environment's; if their compiled extensions are for another Python version or
    another system, copies without these in `folder`. A Python on another processor ignores foreign
    extensions.
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
