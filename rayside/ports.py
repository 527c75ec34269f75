"""Ports of this machine: which process listens on one."""

from __future__ import annotations

import contextlib
import socket
from dataclasses import dataclass

import psutil


@dataclass(frozen=True)
class Holder:
    """The process that listens on a port; where it is another user's, the pid is None."""

    pid: int | None
    program: str

    @property
    def words(self) -> str:
        """Returns it as an error names it."""
        return f"{self.program} (pid {self.pid})" if self.pid else self.program


def port_holder(port: int) -> Holder | None:
    """Returns who listens on `port` of the loopback address; None where it is free."""
    with socket.socket() as probe:
        # It binds as a server would, so that a connection that lingers in TIME_WAIT does not count.
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
