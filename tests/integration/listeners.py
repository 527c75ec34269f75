"""Listening addresses of processes, in a form that is the same in each run."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path

import psutil

from tests.integration.conftest import of_each

# An address, as in 127.0.0.1 or * for all addresses, and a port's name; FREE for an unnamed port.
Listener = tuple[str, str]
FREE = "a free port"


def listeners(folder: Path, ports: Mapping[int, str]) -> dict[str, set[tuple[Listener, ...]]]:
    """Returns the listeners by program, for all processes with `folder` in their environment.

    Args:
        ports: names of ports, by number.
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
    """Returns the process's name, as Ray sets it; for a Python, the name of its module or script."""
    if not process.name().startswith("python"):
        return process.name()
    words = [word for word in process.cmdline()[1:] if not word.startswith("-")]
    return Path(words[0]).name if words else process.name()


def _listens(process: psutil.Process) -> list[tuple[str, int]]:
    """Returns address and port of each TCP and UDP listener."""
    return [
        (_address(connection.laddr.ip), connection.laddr.port)
        for connection in process.net_connections(kind="inet")
        if connection.status == psutil.CONN_LISTEN
        or (connection.type == socket.SOCK_DGRAM and not connection.raddr)
    ]


def _address(ip: str) -> str:
    return "*" if ip in ("::", "0.0.0.0") else ip.removeprefix("::ffff:")
