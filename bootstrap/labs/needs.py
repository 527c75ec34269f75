"""Requirements of labs besides a cluster: whether each is there, and what brings it."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from bootstrap.machine import installed
from bootstrap.targets.target import Target


@dataclass(frozen=True)
class Need:
    """`is_there` looks; `brings` is the command that brings it."""

    is_there: Callable[[Target], bool]
    brings: str


def _program(name: str) -> Need:
    packages = " ".join(PROGRAMS[name])
    return Need(lambda target: installed(name) is not None, f"sudo apt-get install {packages}")


def _module(name: str) -> Need:
    """Returns the need of a module that this Python, that of .venv, has to have."""
    brings = f".venv/bin/python -m pip install {name}"
    return Need(lambda target: importlib.util.find_spec(name) is not None, brings)


# Programs, and Debian's packages that have them; `./invokew doctor --fix --tests` installs them, for CI.
PROGRAMS = {
    "cc": ("gcc", "libc6-dev"),
    "gdb": ("gdb", "python3-dbg"),
    "prometheus": ("prometheus",),
    "rsyslogd": ("rsyslog",),
    "valgrind": ("valgrind",),
}
NEEDS = {"mypy": _module("mypy"), **{name: _program(name) for name in PROGRAMS}}


def lacking(names: Iterable[str], target: Target) -> dict[str, Need]:
    """Returns those that are not there, by their names."""
    return {name: NEEDS[name] for name in names if not NEEDS[name].is_there(target)}
