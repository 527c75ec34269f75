"""A Python program of ours that outlives the command which started it: its record, its log, its mark."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from bootstrap import shell as processes
from bootstrap.settings import ROOT
from bootstrap.shell import Shell
from bootstrap.step import Report
from bootstrap.steps.pid_file import PidFile


@dataclass(frozen=True)
class Background:
    """At most one process for each `folder`.

    Attributes:
        folder: for its files; found again by it.
        name: of its files.
        mark: the process has it, with the folder, in its environment, so that it is found without a
            record, and no other is ended.
        patience: seconds that it gets to end by itself.
        without: what it does not inherit from our environment.
    """

    shell: Shell
    folder: Path
    name: str
    mark: str
    patience: float
    without: tuple[str, ...] = ()

    @property
    def log(self) -> Path:
        return self.folder / f"{self.name}.log"

    @property
    def earlier_log(self) -> Path:
        return self.folder / f"{self.name}.log.1"

    @property
    def record(self) -> PidFile:
        return PidFile(self.folder / f"{self.name}-process.json")

    def absent(self) -> str:
        """Why it does not run; empty where it does."""
        record = self.record.read()
        if record is None:
            return "not running"
        if processes.alive(record["pid"], record["created"]):
            return ""
        return f"its process {record['pid']} has ended{self._last_words()}"

    def start(self, command: Sequence[str], **more: Any) -> None:
        """Starts it; `more` goes into the record."""
        with contextlib.suppress(FileNotFoundError):
            self.log.replace(self.earlier_log)
        pid = self.shell.spawn(list(command), env=self.environment(), log=self.log, cwd=ROOT)
        self.record.write(pid, **more)

    def environment(self) -> dict[str, str]:
        """With our code first on Python's path, whatever the user's folder has."""
        inherited = {name: value for name, value in os.environ.items() if name not in self.without}
        return {**inherited, "PYTHONPATH": str(ROOT), self.mark: str(self.folder)}

    def leftovers(self) -> list[psutil.Process]:
        """Every process of this folder that runs, whether it is recorded or not."""
        return processes.marked(self.mark, str(self.folder))

    def end(self, report: Report) -> None:
        if found := self.leftovers():
            report(f"ending process {', '.join(str(process.pid) for process in found)}")
            processes.end(self.leftovers, patience=self.patience)
        self.record.forget()

    def _last_words(self) -> str:
        with contextlib.suppress(OSError):
            lines = self.log.read_text(errors="replace").strip().splitlines()
            if lines:
                return f"; its log ends: {lines[-1]}"
        return ""
