"""Blobs on disk, by their SHA-256, as in an OCI image layout: whole, or not there.

https://github.com/opencontainers/image-spec/blob/v1.1.0/image-layout.md
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

PIECE = 1024 * 1024  # bytes that are read at once


@dataclass(frozen=True, order=True)
class Blob:
    """Names a content: `digest` is its SHA-256 in hexadecimal, `size` its number of bytes."""

    digest: str
    size: int

    @property
    def name(self) -> str:
        """Returns its place in an OCI image layout."""
        return f"blobs/sha256/{self.digest}"


@dataclass(frozen=True)
class Blobs:
    """Keeps blobs in a folder of this user's alone."""

    folder: Path

    def path(self, digest: str) -> Path:
        return self.folder / digest

    def has(self, blob: Blob) -> bool:
        """Returns whether it is there; what is there was written whole."""
        try:
            return self.path(blob.digest).stat().st_size == blob.size
        except FileNotFoundError:
            return False

    def add(self, content: Iterable[bytes]) -> Blob:
        """Keeps a content, and returns its blob. Raises OSError, and what reading the content raises."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor, name = tempfile.mkstemp(prefix=".", dir=self.folder)
        draft, hashed, size = Path(name), hashlib.sha256(), 0
        try:
            with os.fdopen(descriptor, "wb") as stream:
                for piece in content:
                    stream.write(piece)
                    hashed.update(piece)
                    size += len(piece)
            blob = Blob(hashed.hexdigest(), size)
            draft.replace(self.path(blob.digest))
        finally:
            draft.unlink(missing_ok=True)
        return blob

    def keep(self, needed: Iterable[Blob]) -> None:
        """Removes all others, and what a killed command has left."""
        names = {blob.digest for blob in needed}
        if not self.folder.exists():
            return
        for path in self.folder.iterdir():
            if path.name not in names and path.suffix != ".json":
                path.unlink(missing_ok=True)

    def read(self, blob: Blob) -> Iterator[bytes]:
        with self.path(blob.digest).open("rb") as stream:
            yield from pieces(stream)


def pieces(stream: IO[bytes], size: int | None = None) -> Iterator[bytes]:
    """Yields what is left of a stream, or its next `size` bytes; fewer where it ends before."""
    left = size
    while data := stream.read(PIECE if left is None else min(PIECE, left)):
        yield data
        if left is not None:
            left -= len(data)
