"""Ports of this machine: which process listens on one."""

from __future__ import annotations

import contextlib
import socket
from dataclasses import dataclass

import psutil


@dataclass(frozen=True)
class Holder:
    """Process that listens on a port; the pid of another user's process is None."""

    pid: int | None
    program: str

    @property
    def words(self) -> str:
        """Returns the text for an error message."""
        return f"{self.program} (pid {self.pid})" if self.pid else self.program


def port_holder(port: int) -> Holder | None:
    """Returns the process that listens on `port` of the loopback address; None if the port is free."""
    with socket.socket() as probe:
        # Binding as a server does ignores connections in TIME_WAIT.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
            return None
        except OSError:
            return _listener(port)


def _listener(port: int) -> Holder:
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            for connection in process.net_connections(kind="tcp"):
                if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port:
                    return Holder(process.pid, process.name())
    return Holder(None, "another user's program")
