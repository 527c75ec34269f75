"""Keeps the record of a process that outlives the command that started it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bootstrap import processes
from rayside.private_file import write_private


@dataclass(frozen=True)
class PidFile:
    """A process's record, believed only while the pid is that of the very process that was recorded."""

    file: Path

    def read(self) -> dict[str, Any] | None:
        """Returns the record: `pid`, `created` and more; None where there is none that can be read."""
        try:
            return dict(json.loads(self.file.read_text()))
        except (FileNotFoundError, ValueError):
            return None

    def write(self, pid: int, **more: Any) -> None:
        write_private(self.file, json.dumps({"pid": pid, "created": processes.created(pid), **more}))

    def running(self) -> bool:
        """Returns whether the recorded process still runs, whatever its state."""
        record = self.read()
        return record is not None and processes.alive(record["pid"], record["created"])

    def forget(self) -> None:
        self.file.unlink(missing_ok=True)
