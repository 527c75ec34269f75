"""Checks of this machine for a cluster: system, Python, memory, ports, disk; before anything is fetched."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from bootstrap import machine
from bootstrap.errors import LowDisk, LowMemory, UnsupportedSystem
from bootstrap.settings import NEWEST_PYTHON, OLDEST_PYTHON, Settings
from rayside.errors import UnsupportedPython
from rayside.settings import environment_name
from rayside.steps.step import Status, ready
from rayside.system.free_port import require_port

_IN_USE = "in use by the cluster"


@dataclass(frozen=True)
class System:
    """The operating system is one that Rayside runs on."""

    name: str = "system"
    title: str = "operating system"
    needs: tuple[str, ...] = ()

    def check(self) -> Status:
        system = f"{platform.system()} on {platform.machine()}"
        if platform.system() not in ("Linux", "Darwin"):
            raise UnsupportedSystem(
                f"{system} is not supported", hint="use Linux, macOS, or Windows through WSL 2"
            )
        return ready(system)


@dataclass(frozen=True)
class Python:
    """Ray has wheels for this Python."""

    name: str = "python"
    title: str = "Python"
    needs: tuple[str, ...] = ()

    def check(self) -> Status:
        version = ".".join(map(str, sys.version_info[:3]))
        if not OLDEST_PYTHON <= sys.version_info[:2] <= NEWEST_PYTHON:
            oldest, newest = (".".join(map(str, bound)) for bound in (OLDEST_PYTHON, NEWEST_PYTHON))
            raise UnsupportedPython(
                f"this is Python {version}; Ray has wheels for {oldest} to {newest}",
                hint="name another in RAYSIDE_PYTHON, remove .venv and run ./invokew again",
            )
        return ready(version)


@dataclass(frozen=True)
class Memory:
    """The memory that `setting` requires is free, unless the cluster is `present` and uses it."""

    settings: Settings
    setting: str
    present: Callable[[], bool]
    # Hint for a machine that is too small, where nothing can be freed, as a codespace.
    too_small: str = ""
    needs: tuple[str, ...] = ()
    name: str = "memory"
    title: str = "free memory"

    def check(self) -> Status:
        if self.present():
            return ready(_IN_USE)
        free, needed = machine.free_memory(), getattr(self.settings, self.setting)
        if free < needed:
            raise LowMemory(
                f"{free:.1f} GiB of memory is free, {needed:g} GiB is needed",
                hint=self.too_small
                or f"end something, or set {environment_name(self.setting)} lower at your own risk",
            )
        return ready(f"{free:.1f} GiB free")


@dataclass(frozen=True)
class Ports:
    """The ports, each by the name of its setting, are free, unless the cluster is `present`."""

    ports: Mapping[str, int]
    present: Callable[[], bool]
    needs: tuple[str, ...] = ()
    name: str = "ports"
    title: str = "free ports"

    def check(self) -> Status:
        listed = ", ".join(map(str, self.ports.values()))
        if self.present():
            return ready(f"{listed}, {_IN_USE}")
        for setting, port in self.ports.items():
            require_port(setting, port)
        return ready(f"{listed} free")

    def each(self) -> list[Ports]:
        """Returns a step for each port, with its own name, so that all taken ports are reported."""
        return [
            replace(
                self, ports={setting: port}, name=setting.replace("_", "-"), title=setting.replace("_", " ")
            )
            for setting, port in self.ports.items()
        ]


@dataclass(frozen=True)
class Disk:
    """The disk space that `setting` requires is free at the cache and at each of `folders`.

    It is the last check of the machine: steps that fetch, build or start something need it.
    """

    settings: Settings
    setting: str
    present: Callable[[], bool]
    # Besides the cache: the Docker engine's folder of images.
    folders: tuple[Path, ...] = ()
    too_small: str = ""
    name: str = "disk"
    title: str = "free disk"
    needs: tuple[str, ...] = ("python", "memory", "ports")

    def check(self) -> Status:
        if self.present():
            return ready(_IN_USE)
        folders = (self.settings.cache_folder, *self.folders)
        free, folder = min((machine.free_disk(folder), folder) for folder in folders)
        needed = getattr(self.settings, self.setting)
        if free < needed:
            raise LowDisk(
                f"{free:.1f} GiB of disk is free at {folder}, {needed:g} GiB is needed",
                hint=self.too_small
                or f"free some, or set {environment_name('cache_folder')} to a folder on another disk",
            )
        return ready(f"{free:.0f} GiB free at {folder}")
