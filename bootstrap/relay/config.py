"""Describes the relay's process, for it and for who starts it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from bootstrap.relay.masking import UNSET, Masking

# In a pod these say what is masked: the file is in the image.
NAMES, VALUES = "RAYSIDE_MASKED_NAMES", "RAYSIDE_MASKED_VALUES"


def variables(masking: Masking) -> dict[str, str]:
    """Returns the variables that say what is masked; the value is empty where nothing is said."""
    return {NAMES: masking.names, VALUES: masking.values}


@dataclass(frozen=True)
class Config:
    """The configuration of the process."""

    host: str
    port: int
    dashboard: str
    token_file: Path
    shared_files: bool
    masking: Masking = UNSET
    # Whether Ray asks for that token, too; where it does not, it is the relay's alone.
    rays_token: bool = True
    # The name of whom it is for where several people debug on that Ray.
    user: str = ""

    @classmethod
    def read(cls, file: Path, environment: Mapping[str, str] = os.environ) -> Config:
        """Reads `file`. Raises OSError, ValueError, KeyError or TypeError unless it is a configuration."""
        document = json.loads(file.read_text())
        host, masking = str(document["host"]), document.get("masking") or {}
        return cls(
            host=host,
            port=int(document["port"]),
            dashboard=str(document["dashboard"]),
            token_file=Path(document["token_file"]),
            shared_files=document["shared_files"] is True,
            masking=Masking(
                str(masking.get("names") or environment.get(NAMES, "")),
                str(masking.get("values") or environment.get(VALUES, "")),
            ),
            rays_token=document.get("rays_token") is not False,
            user=str(document.get("user") or ""),
        )

    def document(self) -> str:
        """Returns the text that `read` reads."""
        return json.dumps({**asdict(self), "token_file": str(self.token_file)})
