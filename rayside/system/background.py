"""Background process, which outlives the command that started it: its record, its log, its mark."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from rayside.debugger_files import ROOT
from rayside.settings import UNTOLD
from rayside.system import processes
from rayside.system.processes import PidFile
from rayside.system.shell import Shell
from rayside.waiting import until

# Timeout in seconds until a new process shows its environment; it takes milliseconds.
_SHOWN = 10.0


@dataclass(frozen=True)
class Background:
    """Background program with at most one process for each `folder`.

    Attributes:
        folder: contains its files, and identifies the process.
        name: names its files.
        mark: environment variable with the folder as its value: identifies the process without a
            record, so that no other process is ended.
        patience: timeout in seconds for it to end by itself.
        without: prefixes of variables that it does not inherit. RAYSIDE_ variables never are: a process
            started from the workspace's terminal must not carry the workspace's mark.
        variables: additional variables; by default our code is first on Python's path, whatever the
            user's folder contains.
    """

    shell: Shell
    folder: Path
    name: str
    mark: str
    patience: float
    without: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=lambda: {"PYTHONPATH": str(ROOT)})

    @property
    def log(self) -> Path:
        return self.folder / f"{self.name}.log"

    @property
    def earlier_log(self) -> Path:
        return self.folder / f"{self.name}.log.1"

    @property
    def record(self) -> PidFile:
        return PidFile(self.folder / f"{self.name}-process.json")

    @property
    def pid(self) -> int | None:
        """Returns the recorded pid of the last started process, or None."""
        return (self.record.read() or {}).get("pid")

    def absent(self, spec: Mapping[str, Any] | None = None) -> str:
        """Returns why it does not run, or not with this `spec`; empty if it does."""
        record = self.record.read()
        if record is None:
            return "not running"
        if not processes.alive(record["pid"], record["created"]):
            return f"its process {record['pid']} has ended{self.last_words()}"
        if spec is not None and record.get("spec") != spec:
            return f"process {record['pid']} was started for other settings, or by another version"
        return ""

    def start(self, command: Sequence[str], **more: Any) -> None:
        """Starts it; `more` goes into the record."""
        with contextlib.suppress(FileNotFoundError):
            self.log.replace(self.earlier_log)
        pid = self.shell.spawn(list(command), env=self.environment(), log=self.log, cwd=ROOT)
        self.record.write(pid, **more)
        until(lambda: processes.shows_environment(pid), bool, _SHOWN)  # so that `end` finds it

    def environment(self) -> dict[str, str]:
        """Returns its environment: inherited variables, its own variables, its mark."""
        unwanted = (*self.without, "RAYSIDE_", *UNTOLD)
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(unwanted)}
        return {**inherited, **self.variables, self.mark: str(self.folder)}

    def leftovers(self) -> list[psutil.Process]:
        """Returns every running process of this folder, recorded or not."""
        return processes.marked(self.mark, str(self.folder))

    def end(self, report: Callable[[str], None]) -> None:
        if running := self.leftovers():
            report(f"ending process {', '.join(str(process.pid) for process in running)}")
            # The process first ends its own children in order; then the remaining ones are ended.
            processes.end(lambda: [each for each in self.leftovers() if each.pid == self.pid], self.patience)
            processes.end(self.leftovers, self.patience)
        self.record.forget()

    def last_words(self) -> str:
        """Returns the last line of its log, to append to an error; empty without a log."""
        with contextlib.suppress(OSError):
            lines = self.log.read_text(errors="replace").strip().splitlines()
            if lines:
                return f"; its log ends: {lines[-1]}"
        return ""
