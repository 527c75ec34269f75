"""Configuration of a debugged job's processes: JSON in an environment variable, and packages for workers."""

from __future__ import annotations

import json
import os
import pathlib
import re
from dataclasses import dataclass
from typing import Any

VARIABLE = "RAYSIDE_DEBUG"
# A day, as for `submit --attach-timeout`.
LONGEST_WAIT = 86_400
_LONGEST = 131_072  # characters; Linux's limit of a variable
_MOST_PARENTS = 4
# Limits; `waited_until` is a wall-clock time, at most some thousands of years from now.
_MOST = {"attach_timeout": LONGEST_WAIT, "carried": 16, "waited_until": 1e11}


@dataclass(frozen=True)
class Config:
    """Configuration of a process that opens a port. start.py reads `started` and `parents` as text."""

    attach_timeout: float = 0.0  # seconds to wait for a debugger
    quiet: bool = False  # whether to wait without a log line, for a debugger that is present
    # Whether a failed call without a debugger leaves a capsule, and the capsule's masking settings.
    record_failures: bool = False
    masked_names: str = ""
    masked_values: str = ""
    requirements: tuple[str, ...] = ()  # packages for workers to install, as pip requirements
    carried: int = 0  # number of the debugger's `py_modules` before the last one, which is this package
    # From the user's runtime_env: fields and variables that `ray.init` in the driver may not contradict, and
    # the dotted name of a `worker_process_setup_hook`.
    given: tuple[str, ...] = ()
    given_env_vars: tuple[str, ...] = ()
    setup_hook: str = ""
    # Whether a driver's port was opened at its Python's start (programs that it starts then open none), and
    # the wall-clock time until which the driver waited in vain.
    started: bool = False
    waited_until: float = 0.0
    # Socket names of the debugged ancestors of this process, nearest first (children.py).
    parents: str = ""

    @classmethod
    def read(cls) -> Config:
        """Returns this process's configuration, without unknown fields. Raises ValueError if malformed."""
        text = os.environ.get(VARIABLE, "{}")
        try:
            said = dict(json.loads(text[:_LONGEST]))
        except (ValueError, TypeError, RecursionError):
            raise ValueError(f"{VARIABLE} is not a JSON object") from None
        fields: dict[str, Any] = {name: said[name] for name in vars(cls()) if name in said}
        wrong = [name for name, value in fields.items() if not _is_valid(name, value)]
        if wrong:
            raise ValueError(f"{VARIABLE} has an invalid {', '.join(wrong)}")
        lists = {name: tuple(value) for name, value in fields.items() if isinstance(value, list)}
        return cls(**{**fields, **lists})

    def text(self) -> str:
        """Returns the configuration as JSON, without default values."""
        defaults = vars(Config())  # `dataclasses.fields` gives none in a class that came by pickle
        return json.dumps({name: value for name, value in vars(self).items() if value != defaults[name]})


def _is_valid(field: str, value: Any) -> bool:
    default = getattr(Config, field)
    if isinstance(default, tuple):
        return isinstance(value, list) and all(isinstance(each, str) for each in value)
    if field in _MOST:
        return type(value) in (type(default), int) and 0 <= value <= _MOST[field]
    return type(value) is type(default)


def change(**fields: Any) -> None:
    """Changes these fields for this process, and for the programs that it starts."""
    os.environ[VARIABLE] = Config(**{**vars(_readable()), **fields}).text()


def add_parent(name: str) -> None:
    """Adds this process's socket name as the nearest parent of programs that it starts."""
    # In a fork that becomes another program its own name is there, and the socket gone.
    others = [other for other in _readable().parents.split(":") if other]
    change(parents=":".join([name, *others][:_MOST_PARENTS]))


def forget() -> None:
    """Removes the configuration except `parents`, for this process and for programs that it starts."""
    parents = _readable().parents
    os.environ.pop(VARIABLE, None)
    if parents:
        change(parents=parents)


def _readable() -> Config:
    try:
        return Config.read()
    except ValueError:
        return Config()


# --- packages for workers ------------------------------------------------------------------


def with_package(runtime_env: dict[str, Any], package: str) -> dict[str, Any]:
    """Returns a copy whose `uv`, `pip` or `conda` also installs `package`; `pip` if it has none of them.

    `conda` as the name of an environment or of its file stays unchanged: nothing can be added.
    The user's own version of the package stays. `package` is a pip requirement.
    https://docs.ray.io/en/latest/ray-core/handling-dependencies.html#api-reference
    """
    for field in ("uv", "pip"):
        if runtime_env.get(field):
            return {**runtime_env, field: _added(runtime_env[field], package)}
    conda = runtime_env.get("conda")
    if isinstance(conda, dict):
        inside = list(conda.get("dependencies") or [])
        pips = [entry["pip"] for entry in inside if isinstance(entry, dict) and "pip" in entry]
        rest = [entry for entry in inside if not (isinstance(entry, dict) and "pip" in entry)]
        if "pip" not in rest:
            rest.append("pip")
        packages = _added([name for names in pips for name in names], package)
        return {**runtime_env, "conda": {**conda, "dependencies": [*rest, {"pip": packages}]}}
    if conda:
        return dict(runtime_env)
    return {**runtime_env, "pip": [package]}


def _added(value: Any, package: str) -> Any:
    if isinstance(value, dict):
        return {**value, "packages": _added(value.get("packages") or [], package)}
    if isinstance(value, str):  # It is a requirements file.
        value = pathlib.Path(value).read_text().splitlines()
    named = {_name(line) for line in value}
    return list(value) if _name(package) in named else [*value, package]


def _name(requirement: str) -> str:
    return re.split(r"[^A-Za-z0-9._-]", requirement.strip(), maxsplit=1)[0].lower()
