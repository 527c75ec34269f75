"""Sources of settings (pyproject.toml, the environment, the command line), and validation of the values."""

from __future__ import annotations

import difflib
import math
import os
import re
import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from rayside import options
from rayside.default_folders import DEFAULT_NAME
from rayside.errors import InvalidSetting, UnknownSetting
from rayside.settings import (
    ENVIRONMENT_PREFIX,
    LONGEST_NAME,
    NO_TOKEN,
    THEIRS,
    WITH_LOGIN,
    Settings,
    environment_name,
)
from rayside.users import is_name

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PROJECT = "pyproject.toml"
# Limit: bytes of a pyproject.toml.
_LONGEST_PROJECT = 2_000_000
# Settings that choose the Ray cluster. A cloned repository may choose one, which gets no token of this user.
_LEADS = (*THEIRS, "namespace", "ray_cluster")
# All settings that a project may set. The others are files and folders of this machine, and program sources.
_MASKS = ("masked_names", "masked_values", "mask_by_value")
_OF_A_PROJECT = (*_LEADS, "name", "user", "dashboard_port", "relay_port", *_MASKS)
_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_MASKED_NAMES = re.compile(r"\s*(!?[\w.*?\-\[\]]+\s*(,\s*|$))*")
_BOOLEANS = {
    **dict.fromkeys(("true", "yes", "on", "1"), True),
    **dict.fromkeys(("false", "no", "off", "0"), False),
}
# Similarity at which an unknown variable counts as misspelled: the bootstrapper has more settings there.
_NEAR = 0.85

AnySettings = TypeVar("AnySettings", bound=Settings)


def read(
    given: Mapping[str, Any], environment: Mapping[str, str] = os.environ, folder: Path | None = None
) -> Settings:
    """Returns the debugger's settings: `given` on the command line, then the environment, then the project.

    `folder` is the working directory (default: the current one); None in `given` means "not set". Raises
    UnknownSetting, InvalidSetting.
    """
    known = [spec.name for spec in fields(Settings)]
    by_option = {key: value for key, value in given.items() if value is not None}
    values: dict[str, Any] = {}
    for name in environment:
        key = name.removeprefix(ENVIRONMENT_PREFIX).lower()
        if not name.startswith(ENVIRONMENT_PREFIX):
            continue
        if key in known:
            values[key] = environment[name]
        elif difflib.get_close_matches(key, known, n=1, cutoff=_NEAR):
            require_known(key, known, f"from {name} in the environment")
    settings = converted(Settings, with_project(values, environment, folder, by_option) | by_option)
    validate(settings)
    return settings


def with_project(
    values: Mapping[str, Any],
    environment: Mapping[str, str] = os.environ,
    folder: Path | None = None,
    given: Collection[str] = (),
) -> dict[str, Any]:
    """Returns `values` with the project's settings, except those that the environment or an option sets.

    `values` include the environment's; `given` are the keys that options set. If the project chooses the
    Ray cluster, only an option can name a token for it.
    """
    own = {
        key: value
        for key, value in project(folder or Path.cwd()).items()
        if key not in given and environment_name(key) not in environment
    }
    return {**values, **own, **({"token_file": NO_TOKEN} if own.keys() & {*_LEADS} else {})}


def project(folder: Path) -> dict[str, Any]:
    """Returns the table `[tool.rayside]` of the nearest pyproject.toml, from `folder` upwards.

    Empty without one. Another user's table is refused. Raises InvalidSetting, UnknownSetting.
    """
    is_own = True
    try:
        file = next(
            (each / PROJECT for each in (folder, *folder.parents) if (each / PROJECT).is_file()), None
        )
        if file is None:
            return {}
        with file.open("rb") as stream:
            is_own = os.fstat(stream.fileno()).st_uid in (os.getuid(), 0)
            table = tomllib.loads(stream.read(_LONGEST_PROJECT).decode()).get("tool", {}).get("rayside", {})
    except PermissionError:
        return {}
    except (OSError, ValueError, AttributeError, RecursionError) as error:
        if not is_own:  # Another user's broken file, as in /tmp, must not block this user.
            return {}
        raise InvalidSetting(f"{file} can't be read: {error}", hint="correct that file") from None
    if not isinstance(table, dict):
        raise InvalidSetting(f"[tool.rayside] of {file} is no table", hint="correct that file")
    if table and not is_own:
        raise InvalidSetting(
            f"{file} has settings for Rayside and belongs to another user", hint="work in another folder"
        )
    for key in table:
        require_known(key, _OF_A_PROJECT, f"in [tool.rayside] of {PROJECT}")
    return table


def require_known(key: str, known: Iterable[str], where: str) -> None:
    """Raises UnknownSetting for a key that is not among the `known`; `where` says where it was found."""
    known = list(known)
    if key in known:
        return
    close = difflib.get_close_matches(key, known, n=1)
    hint = f"did you mean {close[0]}?" if close else f"the settings are {', '.join(known)}"
    raise UnknownSetting(f"unknown setting {key!r} {where}", hint=hint)


def converted(kind: type[AnySettings], values: Mapping[str, Any]) -> AnySettings:
    """Returns the settings with these values, converted to the fields' types. Raises InvalidSetting."""
    kinds = get_type_hints(kind)
    return kind(**{k: _convert(k, value, kinds[k]) for k, value in values.items() if value is not None})


def _convert(key: str, value: Any, kind: type) -> Any:
    try:
        if kind is bool:
            return _BOOLEANS[str(value).lower()]
        if isinstance(value, (bool, list, dict)) or (kind is int and isinstance(value, float)):
            raise ValueError
        if kind is Path:
            return Path(str(value)).expanduser().absolute()
        return kind(str(value).rstrip("/") if key == "address" else value)
    except (KeyError, ValueError):
        names = {int: "a whole number", float: "a number", bool: "true or false"}
        kind_name = names.get(kind, "a single value")
        # The value may contain a login.
        shown = f"{key} is" if key in WITH_LOGIN else f"{key} is {value!r},"
        raise InvalidSetting(f"{shown} not {kind_name}", hint=f"correct {key}") from None


def validate(settings: Settings) -> None:
    """Raises InvalidSetting for an invalid value, and for values that exclude each other."""
    if not _NAME.fullmatch(settings.name) or len(settings.name) > LONGEST_NAME:
        raise InvalidSetting(
            f"name is {settings.name!r}, which can't be a name in Kubernetes",
            hint=f"choose at most {LONGEST_NAME} of a-z, 0-9 and -, a letter first and no - at the end",
        )
    _validate_way(settings)
    for spec in fields(settings):
        value = getattr(settings, spec.name)
        if spec.name.endswith("_port") and not 1024 <= value <= 65535:
            raise InvalidSetting(f"{spec.name} is {value}", hint="choose a port from 1024 to 65535")
        if isinstance(value, (int, float)) and not 0 <= value < math.inf:
            raise InvalidSetting(f"{spec.name} is {value}", hint="choose a number that is not negative")
    if not _MASKED_NAMES.fullmatch(settings.masked_names):
        raise InvalidSetting(
            f"masked_names is {settings.masked_names!r}",
            hint="write names with commas between, as in '*iban*, !max_tokens': * and ? stand for characters",
        )
    try:
        re.compile(settings.masked_values)
    except re.error as error:
        raise InvalidSetting(
            f"masked_values is no regular expression: {error}", hint="correct masked_values"
        ) from None
    if settings.masked_values and re.search(settings.masked_values, ""):
        raise InvalidSetting(
            "masked_values also matches an empty text, which is everywhere",
            hint="let it match one character at least",
        )
    ports: dict[int, str] = {}
    for key in (spec.name for spec in fields(settings) if spec.name.endswith("_port")):
        port = getattr(settings, key)
        # A cluster other than the default one gets free ports instead of the default ports.
        if settings.name != DEFAULT_NAME and port == getattr(type(settings), key):
            continue
        if port in ports:
            raise InvalidSetting(f"{ports[port]} and {key} are the same", hint="choose two ports")
        ports[port] = key


def _validate_way(settings: Settings) -> None:
    if not is_name(settings.user):
        raise InvalidSetting(
            f"user is {settings.user!r}", hint="choose a name in one line, of at most 64 characters"
        )
    if settings.address and not options.is_address(settings.address):
        raise InvalidSetting(
            f"address is {settings.address!r}, which is no address of a dashboard",
            hint="give it as http://HOST:8265",
        )
    if settings.ssh and not options.is_ssh_host(settings.ssh):
        raise InvalidSetting(
            f"ssh is {settings.ssh!r}, which is no host for ssh",
            hint="give a name of ~/.ssh/config, USER@HOST or ssh://USER@HOST:PORT",
        )
    if settings.ssh and settings.context:
        raise InvalidSetting("ssh and context are two ways to a Ray", hint="leave out one of the two")
    way = "ssh" if settings.ssh else "context" if settings.context else ""
    if way and settings.address and not re.match(r"http://127\.0\.0\.1:[0-9]+$", settings.address):
        raise InvalidSetting(
            f"address is {settings.address}, and with {way} it is what the head itself reaches",
            hint="give it as http://127.0.0.1:8265, or leave it out",
        )
    for key in ("namespace", "ray_cluster"):
        if (named := getattr(settings, key)) and not options.is_kubernetes_name(named):
            raise InvalidSetting(
                f"{key} is {named!r}, which can't be a name in Kubernetes",
                hint=f"kubectl get {key.replace('_', '')}s lists them",
            )
