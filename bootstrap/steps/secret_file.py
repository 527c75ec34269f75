"""Secret of a local cluster in a private file."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from pathlib import Path

from rayside.private_file import write_private
from rayside.steps.step import Report, Status, missing, ready


@dataclass(frozen=True)
class SecretFile:
    """A random secret of `size` bytes, made once, for URLs and headers."""

    file: Path
    size: int
    name: str
    title: str
    needs: tuple[str, ...] = ("state-folder",)

    def text(self) -> str | None:
        """Returns the secret; None if there is none yet."""
        try:
            return self.file.read_text()
        except FileNotFoundError:
            return None

    def check(self) -> Status:
        return ready(str(self.file)) if self.text() else missing("not made yet")

    def apply(self, report: Report) -> None:
        write_private(self.file, secrets.token_urlsafe(self.size))

    def undo(self, report: Report) -> None:
        self.file.unlink(missing_ok=True)
