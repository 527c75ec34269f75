"""Port check: a port of this machine is free, or an error names the program that has it."""

from __future__ import annotations

from rayside.errors import PortTaken
from rayside.ports import port_holder
from rayside.settings import environment_name
from rayside.system import marks, processes


def require_port(setting: str, port: int) -> None:
    """Checks that a port is free. Raises PortTaken, which names the program that holds it."""
    holder = port_holder(port)
    if holder is None:
        return
    other_port = f"choose another port: {environment_name(setting)}={port + 1}"
    if owner := marks.owner(processes.environment(holder.pid)) if holder.pid else None:
        raise PortTaken(
            f"port {port} is taken by the {owner.part} of Rayside's own cluster {owner.folder.name}, whose "
            f"files are in {owner.folder}: {holder.words}",
            hint=f"./invokew down --name {owner.folder.name} removes that cluster; or {other_port}",
        )
    raise PortTaken(f"port {port} is taken by {holder.words}", hint=f"end that program, or {other_port}")
