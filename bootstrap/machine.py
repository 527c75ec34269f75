"""Reads what this machine has: memory, disk, free ports and who holds a port that is taken."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
from dataclasses import dataclass
from pathlib import Path

import psutil

GIB = 2**30


@dataclass(frozen=True)
class Holder:
    """The process that listens on a port; where it is another user's, the pid is None."""

    pid: int | None
    program: str

    @property
    def words(self) -> str:
        """Returns it as an error names it."""
        return f"{self.program} (pid {self.pid})" if self.pid else self.program


def installed(program: str) -> str | None:
    """Returns the path of a program; None where it is not installed."""
    # Debian has daemons where only root looks for programs.
    return shutil.which(program, path=f"{os.environ.get('PATH', os.defpath)}{os.pathsep}/usr/sbin")


def free_memory() -> float:
    """Returns how many GiB new processes can have, the container's limit (cgroup) included."""
    return min(float(psutil.virtual_memory().available), _cgroup_room()) / GIB


def free_disk(folder: Path) -> float:
    """Returns how many GiB are free where `folder` is, or will be."""
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free / GIB


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


def environment(pid: int) -> dict[str, str]:
    """Returns the environment of a process; empty where it has ended, or is another user's."""
    with contextlib.suppress(psutil.Error, OSError):
        return dict(psutil.Process(pid).environ())
    return {}


def _listener(port: int) -> Holder:
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            for connection in process.net_connections(kind="tcp"):
                if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port:
                    return Holder(process.pid, process.name())
    return Holder(None, "another user's program")


def _cgroup_room() -> float:
    # https://docs.kernel.org/admin-guide/cgroup-v2.html (memory.max, memory.current, and
    # inactive_file, which the kernel gives back on demand) and its version 1 counterpart.
    # Outside a container the root has no limit.
    for folder, limit, usage, reclaimable in (
        ("/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"),
        ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        with contextlib.suppress(OSError, ValueError):
            used = float(Path(folder, usage).read_text())
            stat = dict(line.split() for line in Path(folder, "memory.stat").read_text().splitlines())
            return float(Path(folder, limit).read_text()) - used + float(stat.get(reclaimable, 0))
    return float("inf")
