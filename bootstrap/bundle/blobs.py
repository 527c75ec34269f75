"""Blob store on disk, by SHA-256, as in an OCI image layout; only complete blobs exist.

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
    """Descriptor of a blob: `digest` is its SHA-256 in hexadecimal, `size` its number of bytes."""

    digest: str
    size: int

    @property
    def name(self) -> str:
        """Returns its path in an OCI image layout."""
        return f"blobs/sha256/{self.digest}"


@dataclass(frozen=True)
class Blobs:
    """Blob store in a private folder of this user."""

    folder: Path

    def path(self, digest: str) -> Path:
        return self.folder / digest

    def has(self, blob: Blob) -> bool:
        """Returns whether the blob is stored; stored blobs are complete."""
        try:
            return self.path(blob.digest).stat().st_size == blob.size
        except FileNotFoundError:
            return False

    def add(self, content: Iterable[bytes]) -> Blob:
        """Stores a content, and returns its descriptor. Raises OSError, and errors of reading the content."""
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
        """Removes all other blobs, and drafts of killed commands."""
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
    """Yields the rest of a stream, or its next `size` bytes; fewer if it ends before."""
    left = size
    while data := stream.read(PIECE if left is None else min(PIECE, left)):
        yield data
        if left is not None:
            left -= len(data)
