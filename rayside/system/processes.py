"""Processes that outlive a command: recorded, identified, and ended."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from rayside.private_file import write_private


def alive(pid: int, created: float) -> bool:
    """Returns whether `pid` runs and is the process that was created at `created` (seconds since 1970)."""
    try:
        process = psutil.Process(pid)
        # The tolerance is the clock tick in which the kernel records a start.
        return abs(process.create_time() - created) < 0.1 and _runs(process)
    except psutil.Error:
        return False


def created(pid: int) -> float:
    """Returns when `pid` was created, in seconds since 1970; 0 if it has ended already."""
    try:
        return float(psutil.Process(pid).create_time())
    except psutil.Error:
        return 0.0


def children(pid: int) -> dict[int, str]:
    """Returns the pid and program name of each living child of `pid`."""
    programs: dict[int, str] = {}
    with contextlib.suppress(psutil.Error):
        for child in psutil.Process(pid).children():
            with contextlib.suppress(psutil.Error):
                if child.status() != psutil.STATUS_ZOMBIE:
                    programs[child.pid] = child.name()
    return programs


def marked(name: str, value: str) -> list[psutil.Process]:
    """Returns this user's processes with `name=value` in their environment, and all their descendants.

    This process and its ancestors are never among them, whatever their environment contains.
    """
    never = {process.pid for process in psutil.Process().parents()} | {os.getpid()}
    below: dict[int, list[psutil.Process]] = {}
    reached: list[psutil.Process] = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            below.setdefault(process.ppid(), []).append(process)
            if process.pid not in never and process.environ().get(name) == value:
                reached.append(process)
    descendants: dict[int, psutil.Process] = {}
    while reached:
        process = reached.pop()
        if process.pid not in descendants and process.pid not in never:
            descendants[process.pid] = process
            reached.extend(below.get(process.pid, ()))
    return [process for process in descendants.values() if _runs(process)]


def shows_environment(pid: int) -> bool:
    """Returns whether `marked` can find a process by its environment; True if the process has ended.

    Linux shows no environment for a moment after `execve`, and longer on a busy machine.
    """
    try:
        return bool(psutil.Process(pid).environ())
    except psutil.Error:
        return True


def end(processes: Callable[[], list[psutil.Process]], patience: float) -> list[int]:
    """Ends the processes that `processes` finds, until it finds none: terminate, then kill.

    `patience` is the time in seconds between the two. Returns their pids.
    """
    ended: set[int] = set()
    for _ in range(5):  # New ones may be forked meanwhile; each round kills the ones that it found.
        running = processes()
        if not running:
            break
        ended.update(process.pid for process in running)
        for process in running:
            with contextlib.suppress(psutil.Error):
                process.terminate()
        _, stubborn = psutil.wait_procs(running, timeout=patience)
        for process in stubborn:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(stubborn, timeout=patience)
    return sorted(ended)


def _runs(process: psutil.Process) -> bool:
    """Returns whether any of its threads runs: until the last one ends, its files and ports stay open.

    The main thread of a killed process may be a zombie before the other threads have ended.
    """
    try:
        return process.status() != psutil.STATUS_ZOMBIE or process.num_threads() > 1
    except psutil.Error:
        return False


def environment(pid: int) -> dict[str, str]:
    """Returns the environment of a process; empty if it has ended, or is another user's."""
    with contextlib.suppress(psutil.Error, OSError):
        return dict(psutil.Process(pid).environ())
    return {}


@dataclass(frozen=True)
class PidFile:
    """Record of a process; the creation time detects a reused pid."""

    file: Path

    def read(self) -> dict[str, Any] | None:
        """Returns the record: `pid`, `created` and more; None without a readable one."""
        try:
            return dict(json.loads(self.file.read_text()))
        except (FileNotFoundError, ValueError):
            return None

    def write(self, pid: int, **more: Any) -> None:
        write_private(self.file, json.dumps({"pid": pid, "created": created(pid), **more}))

    def running(self) -> bool:
        """Returns whether the recorded process still runs, in any state."""
        record = self.read()
        return record is not None and alive(record["pid"], record["created"])

    def forget(self) -> None:
        self.file.unlink(missing_ok=True)
