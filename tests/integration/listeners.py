"""Says what listens for connections, process by process, in words that are the same each time."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path

import psutil

from tests.integration.conftest import of_each

# An address, as in 127.0.0.1 or * for all of the machine, and a port's name; FREE where it has none.
Listener = tuple[str, str]
FREE = "a free port"


def listeners(folder: Path, ports: Mapping[int, str]) -> dict[str, set[tuple[Listener, ...]]]:
    """Returns by program what its processes listen at, for all that have `folder` in their environment.

    Args:
        ports: the names of ports.
    """
    marked = [
        process
        for process, variables in of_each(list(psutil.process_iter()), _environment)
        if any(str(folder) in value for value in variables.values())
    ]
    by_program: dict[str, set[tuple[Listener, ...]]] = {}
    for _, (program, addresses) in of_each(marked, lambda process: (_program(process), _listens(process))):
        if addresses:
            by_program.setdefault(program, set()).add(
                tuple(sorted((address, ports.get(port, FREE)) for address, port in addresses))
            )
    return by_program


def _environment(process: psutil.Process) -> dict[str, str]:
    try:
        return process.environ()
    except (psutil.AccessDenied, OSError):  # another user's, or the kernel's
        return {}


def _program(process: psutil.Process) -> str:
    """Returns the process's own name, as Ray sets it; for a Python, that of its module or script."""
    if not process.name().startswith("python"):
        return process.name()
    words = [word for word in process.cmdline()[1:] if not word.startswith("-")]
    return Path(words[0]).name if words else process.name()


def _listens(process: psutil.Process) -> list[tuple[str, int]]:
    """Returns address and port of each of its listeners, UDP's too."""
    return [
        (_address(connection.laddr.ip), connection.laddr.port)
        for connection in process.net_connections(kind="inet")
        if connection.status == psutil.CONN_LISTEN
        or (connection.type == socket.SOCK_DGRAM and not connection.raddr)
    ]


def _address(ip: str) -> str:
    return "*" if ip in ("::", "0.0.0.0") else ip.removeprefix("::ffff:")
