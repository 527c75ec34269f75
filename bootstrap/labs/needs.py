"""Says what labs need besides a cluster, whether it is there, and what brings it."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from bootstrap.targets.target import Target


@dataclass(frozen=True)
class Need:
    """`is_there` looks; `brings` is the command that brings it."""

    is_there: Callable[[Target], bool]
    brings: str


def _program(name: str, package: str) -> Need:
    return Need(lambda target: shutil.which(name) is not None, f"sudo apt-get install {package}")


def _module(name: str) -> Need:
    """Returns the need of a module that this Python, that of .venv, has to have."""
    brings = f".venv/bin/python -m pip install {name}"
    return Need(lambda target: importlib.util.find_spec(name) is not None, brings)


NEEDS = {
    "mypy": _module("mypy"),
    "gdb": _program("gdb", "gdb python3-dbg"),
    "valgrind": _program("valgrind", "valgrind"),
    "prometheus": _program("prometheus", "prometheus"),
}


def missing(needs: Iterable[str], target: Target) -> str:
    """Returns what is lacking and what brings it, as half a sentence; empty where nothing is lacking."""
    lacking = [name for name in needs if not NEEDS[name].is_there(target)]
    return "; ".join(f"it needs {name}: {NEEDS[name].brings}" for name in lacking)
