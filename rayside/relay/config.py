"""Configuration of the relay's process, for it and for the steps that start it: imports none of the relay."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path

from rayside.settings import Settings
from rayside.worker.secret_names import USUAL, SecretNames

# In a pod these say what is masked: the file is in the image.
NAMES, VALUES, BY_VALUE = "RAYSIDE_MASKED_NAMES", "RAYSIDE_MASKED_VALUES", "RAYSIDE_MASK_BY_VALUE"


@dataclass(frozen=True)
class Masking:
    """Masking rules.

    Attributes:
        names: a rule as `SecretNames` has it, besides what looks secret; "none": mask nothing at all.
        values: a regular expression; what it matches is masked everywhere. Empty: none.
        by_value: whether debuggees are asked which values their secret names have, to mask these everywhere.
        token: the token of this relay, which it masks everywhere without asking anybody; none in a file.
    """

    names: str = ""
    values: str = ""
    by_value: bool = False
    token: str = field(default="", repr=False)

    @classmethod
    def of(cls, settings: Settings) -> Masking:
        """Returns the rules that the settings have."""
        return cls(settings.masked_names, settings.masked_values, settings.mask_by_value)

    @property
    def is_on(self) -> bool:
        return self.names.strip().lower() != "none"

    @cached_property
    def secret(self) -> SecretNames:
        """Returns which names are secret."""
        return SecretNames(self.rule)

    @property
    def rule(self) -> str:
        return f"{USUAL},{self.names}"

    def document(self) -> dict[str, str | bool]:
        """Returns what may be in a file: everything but the token."""
        return {"names": self.names, "values": self.values, "by_value": self.by_value}


UNSET = Masking()


def digest_of(token: str) -> bytes:
    """Returns what a relay knows of the token, which may be out of its own reach (`rayside.relay_actor`).

    Of a token that is random and long it tells nothing.
    """
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def variables(masking: Masking) -> dict[str, str]:
    """Returns the variables that say what is masked; the value is empty where nothing is said."""
    return {NAMES: masking.names, VALUES: masking.values, BY_VALUE: "true" if masking.by_value else ""}


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
    # The file in which a program of `rayside run` says where its Ray is, which `dashboard` then does not.
    program: str = ""

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
                masking.get("by_value") is True or environment.get(BY_VALUE) == "true",
            ),
            rays_token=document.get("rays_token") is not False,
            user=str(document.get("user") or ""),
            program=str(document.get("program") or ""),
        )

    def document(self) -> str:
        """Returns the text that `read` reads."""
        document = {**asdict(self), "token_file": str(self.token_file), "masking": self.masking.document()}
        if not self.program:
            del document["program"]
        return json.dumps(document)
