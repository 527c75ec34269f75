"""Validation of a command's settings against a cluster's record, and the choice of the cluster's ports."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rayside.connection.instance import Instance, Ports, all_recorded
from rayside.default_folders import DEFAULT_NAME
from rayside.errors import InvalidSetting
from rayside.ports import port_holder
from rayside.settings import Settings

# Settings, and the command-line options that set them.
_SWITCHES = {"create": "--create", "workspace_pod": "--workspace"}


def chosen_ports(known: Instance, state_folder: Path, asked: Ports, usual: Ports) -> Ports:
    """Returns the requested ports, and the recorded ports of the cluster for the rest.

    A new cluster gets the usual ports; unless it is the first, free ports replace the occupied ones.
    """
    recorded = known.record.exists()
    if recorded and asked == usual and all(vars(known.ports).values()):
        return known.ports
    others = {
        port
        for other in all_recorded(state_folder, Instance)
        if other.name != known.name
        for port in vars(other.ports).values()
    }
    named = {name: port for name, port in vars(asked).items() if port != getattr(usual, name)}
    ports = dict(named)
    for name, port in vars(asked).items():
        if name in named:
            continue
        if recorded and (given := getattr(known.ports, name)):
            ports[name] = given
        elif known.name == DEFAULT_NAME or not port:
            ports[name] = port
        else:
            taken = {*others, *ports.values()}
            free = (each for each in range(port, 65536) if each not in taken and not port_holder(each))
            ports[name] = next(free)
    return Ports(**ports)


def require_as_made(
    settings: Settings, recorded: Instance, made_with: Mapping[str, Any], *, hint: str
) -> None:
    """Raises InvalidSetting if a non-default setting differs from the cluster's recorded setting."""
    for key, value in made_with.items():
        asked = getattr(settings, key)
        # An earlier version recorded no user.
        if asked in (getattr(type(settings)(), key), value) or (key == "user" and not value):
            continue
        where = f" ({recorded.place})" if recorded.target == "cluster" else ""
        cluster = f"the cluster {settings.name}{where} was made"
        if option := _SWITCHES.get(key):
            raise InvalidSetting(f"{cluster} without {option}", hint=hint)
        raise InvalidSetting(f"{key} is {asked}, and {cluster} with {value or 'none'}", hint=hint)
