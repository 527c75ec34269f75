"""Validation of a runtime_env's field types as in Ray, before a job is submitted.

Sources: ray/_private/runtime_env/validation.py and ray/runtime_env/runtime_env.py (2.60).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rayside import yaml_file
from rayside.errors import InvalidYaml

# URIs, which the nodes fetch. Ray itself refuses unknown ones:
# https://docs.ray.io/en/latest/ray-core/handling-dependencies.html
URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")

_Fits = Callable[[Any], bool]
# Ray accepts at most one installer, and an image only together with few other fields.
_INSTALLERS, _IMAGES = ("pip", "uv", "conda"), ("container", "image_uri")
_BESIDE_IMAGES = ("config", "env_vars")
_CONDA_FILES = (".yaml", ".yml")
_PATHS = ("working_dir", "py_modules", "pip", "pip.packages", "uv", "conda")


def _is(*types: type) -> _Fits:
    return lambda value: isinstance(value, types)


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _is_time_limit(value: Any) -> bool:
    return isinstance(value, int) and (value > 0 or value == -1)


_TEXT = (_is(str), "a text")
_TEXTS = (_are_texts, "a list of texts")
_MAPPING = (_is(dict), "a mapping")
_FLAG = (_is(bool), "true or false")
_TEXT_OR_MAPPING = (_is(str, dict), "a text or a mapping")
_PACKAGES = (
    lambda value: isinstance(value, str | dict) or _are_texts(value),
    "a list of texts, a requirements file or a mapping",
)
# Types of the fields, and of the nested fields that Ray checks; it accepts anything in other fields.
_FIELDS: dict[str, tuple[_Fits, str]] = {
    "working_dir": _TEXT,
    "py_modules": _TEXTS,
    "py_executable": _TEXT,
    "excludes": _TEXTS,
    "java_jars": _TEXTS,
    "pip": _PACKAGES,
    "pip.packages": (lambda value: isinstance(value, str) or _are_texts(value), "a list of texts, or a file"),
    "pip.pip_check": _FLAG,
    "pip.pip_version": _TEXT,
    "pip.pip_install_options": _TEXTS,
    "uv": _PACKAGES,
    "uv.packages": _TEXTS,
    "uv.uv_check": _FLAG,
    "uv.uv_version": _TEXT,
    "uv.uv_pip_install_options": _TEXTS,
    "conda": _TEXT_OR_MAPPING,
    "container": _MAPPING,
    "image_uri": _TEXT,
    "env_vars": _MAPPING,
    "worker_process_setup_hook": _TEXT,
    "config": _MAPPING,
    "config.setup_timeout_seconds": (_is_time_limit, "a number of seconds above 0, or -1"),
    "config.eager_install": _FLAG,
    "config.log_files": (lambda value: value is None or _are_texts(value), "a list of texts"),
    **dict.fromkeys(("nsight", "_nsight", "rocprof_sys", "_rocprof_sys"), _TEXT_OR_MAPPING),
}
_KINDS = {bool: "true or false", int: "a number", float: "a number", str: "a text", dict: "a mapping"}
_KINDS |= {list: "a list", type(None): "not given"}


def read(file: Path | None, **given: Any) -> dict[str, Any]:
    """Returns the fields in a YAML file, overridden by the `given` ones. Raises InvalidYaml."""
    loaded = _mapping(yaml_file.read(file), str(file)) if file else {}
    given = {name: value for name, value in given.items() if value}
    return checked({**loaded, **given}, str(file or "the options"))


def checked(fields: Any, where: str) -> dict[str, Any]:
    """Returns the fields that are not null; `where` names their source in errors. Raises InvalidYaml."""
    # Ray accepts an empty list of variables.
    present = {
        name: value
        for name, value in _mapping(fields, where).items()
        if value is not None and not (name == "env_vars" and value in ([], ""))
    }
    for name, value in present.items():
        _require(isinstance(name, str), f"the name of the field {name!r} in {where}", "a text", name)
        _check(name, value, where)
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError, RecursionError):
            raise InvalidYaml(
                f"{name} in {where} has a value that JSON lacks, as a date", hint="put it in quotes"
            ) from None
    if len(both := [name for name in _INSTALLERS if name in present]) > 1:
        raise InvalidYaml(
            f"{where} has {' and '.join(both)}, and Ray takes only one of them", hint="leave out the others"
        )
    return present


def with_files_read(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields with the content of the local files that `pip`, `uv` and `conda` name.

    Ray's nodes lack these files. Raises InvalidYaml.
    """
    changed = dict(fields)
    for name in ("pip", "uv"):
        value = fields.get(name)
        if isinstance(value, str):
            changed[name] = _lines(value)
        elif isinstance(value, dict) and isinstance(value.get("packages"), str):
            changed[name] = {**value, "packages": _lines(value["packages"])}
    conda = fields.get("conda")
    if isinstance(conda, str) and Path(conda).suffix in _CONDA_FILES:
        changed["conda"] = yaml_file.read(Path(conda))
    return checked(changed, "the job")


def _lines(file: str) -> list[str]:
    try:
        return Path(file).read_text().strip().split("\n")
    except (OSError, ValueError) as error:
        raise InvalidYaml(f"the requirements file {file} can't be read: {error}", hint="correct it") from None


def image_of(fields: Mapping[str, Any]) -> str:
    """Returns the name of the field that sets an image for workers; empty without one."""
    return next((name for name in _IMAGES if fields.get(name)), "")


def require_alone(fields: Mapping[str, Any], *, debug: bool) -> None:
    """Checks that Ray accepts the other fields next to an image for workers. Raises InvalidYaml."""
    image = image_of(fields)
    others = [name for name in fields if name not in (image, *_BESIDE_IMAGES)] + ["--debug"] * debug
    if image and others:
        raise InvalidYaml(
            f"{image} goes with {' and '.join(_BESIDE_IMAGES)} alone, and there is {', '.join(others)}",
            hint=f"leave out {image}, or {', '.join(others)}",
        )


def _check(name: str, value: Any, where: str) -> None:
    if name in _FIELDS:
        _require(_FIELDS[name][0](value), f"{name} in {where}", _FIELDS[name][1], value)
    if name in _PATHS:
        for path in value if name == "py_modules" else [value]:
            _check_path(name, path, where)
    if name == "env_vars":
        for variable, content in value.items():
            _require(isinstance(variable, str), f"a name in {name} in {where}", "a text", variable)
            _require(isinstance(content, str), f"{name}.{variable} in {where}", "a text", content)
    if name not in ("pip", "uv", "config") or not isinstance(value, dict):
        return
    if name != "config":
        _require("packages" in value, f"{name}.packages in {where}", _FIELDS[f"{name}.packages"][1], None)
        if unknown := [inner for inner in value if f"{name}.{inner}" not in _FIELDS]:
            hint = "leave it out"
            raise InvalidYaml(f"{name} in {where} has a field {unknown[0]!r}, unknown to Ray", hint=hint)
    for inner, item in value.items():
        _check(f"{name}.{inner}", item, where)


def _check_path(name: str, path: Any, where: str) -> None:
    """Checks the files that Ray reads on this machine, relative to the current folder."""
    is_code = name in ("working_dir", "py_modules")
    if not isinstance(path, str) or (is_code and URI.match(path)):
        return
    if name == "py_modules" and not path:
        raise InvalidYaml(f"{name} in {where} has an empty path", hint="leave it out")
    try:
        named = Path(path).expanduser() if is_code else Path(path)
        named.resolve()
        is_file, is_folder = named.is_file(), named.is_dir()
    except (OSError, ValueError, RuntimeError) as error:
        raise InvalidYaml(f"{name} in {where} is no path: {error}", hint="correct it") from None
    is_text = name != "conda" or named.suffix in _CONDA_FILES
    if not (is_code or (is_file if is_text else is_folder or not named.is_absolute())):
        what = "file" if is_text else "folder"
        raise InvalidYaml(f"{name} in {where} names a {what} that is not there: {path}", hint="correct it")


def _mapping(value: Any, where: str) -> Mapping[Any, Any]:
    if not isinstance(value, Mapping | None):
        raise InvalidYaml(
            f"{where} is not a mapping of runtime_env fields", hint="write `pip: [...]` or such"
        )
    return value or {}


def _require(fits: bool, what: str, form: str, value: Any) -> None:
    if not fits:
        others = [item for item in value if not isinstance(item, str)] if isinstance(value, list) else []
        kind = f"{_kind(value)} with {_kind(others[0])} in it" if others else _kind(value)
        raise InvalidYaml(f"{what} is {kind}, and Ray takes {form}", hint=f"make it {form}")


def _kind(value: Any) -> str:
    return _KINDS.get(type(value), f"a {type(value).__name__}")
