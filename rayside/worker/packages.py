"""Adds one package to what a runtime_env installs, in whichever form the user wrote that."""

from __future__ import annotations

import pathlib
import re
from typing import Any


def with_package(runtime_env: dict[str, Any], package: str) -> dict[str, Any]:
    """Returns a copy whose `uv`, `conda` or `pip` installs `package` too; `pip` where there is none of them.

    `conda` as the name of an environment, or of its file, stays as it is: nothing can be added.
    A version that the user asks for stays. `package` is a requirement as pip takes it.
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
