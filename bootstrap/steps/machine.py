"""Checks that this machine has room for the cluster, before anything starts."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from bootstrap import machine
from bootstrap.errors import LowDisk, LowMemory, PortTaken, UnsupportedPython
from bootstrap.settings import NEWEST_PYTHON, OLDEST_PYTHON, Settings, environment_name
from bootstrap.step import Report, Status, ready
from bootstrap.steps import marks


@dataclass(frozen=True)
class Machine:
    """Memory, disk, ports and Python suffice; not asked while `present` says that the cluster has them."""

    settings: Settings
    present: Callable[[], bool]
    # Each port that the cluster will listen on, by its setting.
    ports: Mapping[str, int]
    memory_gib: float
    disk_gib: float
    # Besides the cache it is the folder in which the Docker engine keeps its images.
    folders: tuple[Path, ...] = ()
    name: str = "machine"
    title: str = "this machine"
    needs: tuple[str, ...] = ()
    patience: float = 0.0
    # It is the advice where the machine is too small and nothing on it can be freed, as in a codespace.
    too_small: str = ""

    def check(self) -> Status:
        if self.present():
            return ready("in use by the cluster")
        require_python()
        memory = self.require_memory()
        folders = (self.settings.cache_folder, *self.folders)
        disk = min(self.require_disk(folder) for folder in folders)
        for setting, port in self.ports.items():
            require_port(setting, port)
        return ready(f"{memory:.1f} GiB of memory and {disk:.0f} GiB of disk free")

    def apply(self, report: Report) -> None:
        raise AssertionError("a machine is as it is: check never says missing")

    def undo(self, report: Report) -> None:
        pass

    def require_memory(self) -> float:
        """Returns how many GiB of memory are free. Raises LowMemory."""
        free = machine.free_memory()
        if free < self.memory_gib:
            raise LowMemory(
                f"{free:.1f} GiB of memory is free, {self.memory_gib:g} GiB is needed",
                hint=self.too_small
                or f"end something, or set {environment_name('min_memory_gib')} lower at your own risk",
            )
        return free

    def require_disk(self, folder: Path) -> float:
        """Returns how many GiB are free where `folder` is. Raises LowDisk."""
        free = machine.free_disk(folder)
        if free < self.disk_gib:
            raise LowDisk(
                f"{free:.1f} GiB of disk is free at {folder}, {self.disk_gib:g} GiB is needed",
                hint=self.too_small
                or f"free some, or set {environment_name('cache_folder')} to a folder on another disk",
            )
        return free


def require_python() -> str:
    """Returns this Python's version. Raises UnsupportedPython."""
    version = ".".join(map(str, sys.version_info[:3]))
    if not OLDEST_PYTHON <= sys.version_info[:2] <= NEWEST_PYTHON:
        oldest, newest = (".".join(map(str, bound)) for bound in (OLDEST_PYTHON, NEWEST_PYTHON))
        raise UnsupportedPython(
            f"this is Python {version}; Ray has wheels for {oldest} to {newest}",
            hint="name another in RAYSIDE_PYTHON, remove .venv and run ./invokew again",
        )
    return version


def require_port(setting: str, port: int) -> None:
    """Checks that a port is free. Raises PortTaken, which names who has the port."""
    holder = machine.port_holder(port)
    if holder is None:
        return
    other_port = f"choose another port: {environment_name(setting)}={port + 1}"
    if owner := marks.owner(machine.environment(holder.pid)) if holder.pid else None:
        raise PortTaken(
            f"port {port} is taken by the {owner.part} of Rayside's own cluster {owner.folder.name}, whose "
            f"files are in {owner.folder}: {holder.program} (pid {holder.pid})",
            hint=f"./invokew down --name {owner.folder.name} removes that cluster; or {other_port}",
        )
    who = f"{holder.program} (pid {holder.pid})" if holder.pid else holder.program
    raise PortTaken(f"port {port} is taken by {who}", hint=f"end that program, or {other_port}")
