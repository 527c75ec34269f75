"""Resources of this machine: installed programs, free memory and free disk space."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

import psutil

GIB = 2**30


def installed(program: str) -> str | None:
    """Returns the path of a program; None if it is not installed."""
    # Debian installs daemons in /usr/sbin, which is in root's PATH alone.
    return shutil.which(program, path=f"{os.environ.get('PATH', os.defpath)}{os.pathsep}/usr/sbin")


def free_memory() -> float:
    """Returns the memory for new processes in GiB, within the container's cgroup limit."""
    return min(float(psutil.virtual_memory().available), _cgroup_room()) / GIB


def free_disk(folder: Path) -> float:
    """Returns how many GiB are free where `folder` is, or will be."""
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free / GIB


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
