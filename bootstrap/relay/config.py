"""Describes the relay's process, for it and for who starts it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Config:
    """The configuration of the process."""

    host: str
    port: int
    dashboard: str
    token_file: Path
    shared_files: bool

    @classmethod
    def read(cls, file: Path) -> Config:
        """Reads `file`. Raises OSError, ValueError, KeyError or TypeError unless it is a configuration."""
        document = json.loads(file.read_text())
        return cls(
            host=str(document["host"]),
            port=int(document["port"]),
            dashboard=str(document["dashboard"]),
            token_file=Path(document["token_file"]),
            shared_files=document["shared_files"] is True,
        )

    def document(self) -> str:
        """Returns the text that `read` reads."""
        return json.dumps({**vars(self), "token_file": str(self.token_file)})
