"""Defines what a cluster is made of that this checkout does not have in itself."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

ArtifactKind = Literal["image", "program", "wheel", "extension", "manifest"]


@dataclass(frozen=True)
class Artifact:
    """A thing that is fetched, or built here, before a cluster can be made of it.

    Attributes:
        name: targets list it by this name.
        reference: it is used by this: an image's reference in the Docker engine, a wheel's requirement, or
            else a path on this machine.
        digest: it is held to this digest. It is empty where none is known yet, where a language's own lock
            file has it, and where it is built here: then the reference has the hash of its inputs.
        platform: it runs there, as in linux/amd64 or, for extensions, linux-x64; empty where any will do.
    """

    name: str
    kind: ArtifactKind
    reference: str
    digest: str = ""
    platform: str = ""

    @property
    def path(self) -> Path:
        """Returns the reference of what is a file or a folder."""
        return Path(self.reference)
