"""Configuration of the relay's process; steps that start it import this too, so it imports no relay code."""

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

# Environment variables of the masking rules, for pods: there, the configuration file is in the image.
NAMES, VALUES, BY_VALUE = "RAYSIDE_MASKED_NAMES", "RAYSIDE_MASKED_VALUES", "RAYSIDE_MASK_BY_VALUE"


@dataclass(frozen=True)
class Masking:
    """Masking rules.

    Attributes:
        names: a rule for `SecretNames`, in addition to the usual ones; "none": mask nothing at all.
        values: a regular expression; matches are masked everywhere. Empty: none.
        by_value: whether debuggees report the values of their secret names, to mask these everywhere.
        token: the relay's token, always masked; never in a file.
    """

    names: str = ""
    values: str = ""
    by_value: bool = False
    token: str = field(default="", repr=False)

    @classmethod
    def of(cls, settings: Settings) -> Masking:
        """Returns the rules from the settings."""
        return cls(settings.masked_names, settings.masked_values, settings.mask_by_value)

    @property
    def is_on(self) -> bool:
        return self.names.strip().lower() != "none"

    @cached_property
    def secret(self) -> SecretNames:
        """Returns the matcher of secret names."""
        return SecretNames(self.rule)

    @property
    def rule(self) -> str:
        return f"{USUAL},{self.names}"

    def document(self) -> dict[str, str | bool]:
        """Returns the rules for a file: everything but the token."""
        return {"names": self.names, "values": self.values, "by_value": self.by_value}


UNSET = Masking()


def digest_of(token: str) -> bytes:
    """Returns the digest with which a relay verifies the token, also without having it (`relay_actor`).

    The digest of a long random token reveals nothing about it.
    """
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def variables(masking: Masking) -> dict[str, str]:
    """Returns the environment variables for the masking rules; an unset rule has an empty value."""
    return {NAMES: masking.names, VALUES: masking.values, BY_VALUE: "true" if masking.by_value else ""}


@dataclass(frozen=True)
class Config:
    """Configuration of the relay's process."""

    host: str
    port: int
    dashboard: str
    token_file: Path
    shared_files: bool
    masking: Masking = UNSET
    # Whether Ray needs the token, too; otherwise only the relay does.
    rays_token: bool = True
    # Name of the relay's user if several people debug on the cluster.
    user: str = ""
    # File in which a program of `rayside run` reports its Ray cluster; replaces `dashboard`.
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
