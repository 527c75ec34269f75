"""Tar archives: written with the same bytes for the same content; headers of untrusted ones are parsed.

A bundle's own file is read header by header: all of its members are regular files, and no header changes how
the next one is read. The archives in it are unpacked by `tarfile` (`packed.py`).
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable, Iterator
from typing import IO, cast

BLOCK = tarfile.BLOCKSIZE
# End of an archive.
END = tarfile.NUL * (2 * BLOCK)


class BrokenTar(Exception):
    """An archive is incomplete, or contains something that is not allowed; the message names it."""


def member(name: str, size: int, content: Iterable[bytes], mode: int = 0o644) -> Iterator[bytes]:
    """Yields a member of an archive: its header, its content of that size, and padding."""
    entry = tarfile.TarInfo(name)  # its time is 0, and it has no owner
    entry.size, entry.mode = size, mode
    yield entry.tobuf(tarfile.USTAR_FORMAT)
    yield from content
    yield tarfile.NUL * (-size % BLOCK)


def header(data: bytes) -> tarfile.TarInfo | None:
    """Parses a header; returns None at the end of the archive. Raises BrokenTar."""
    if data == tarfile.NUL * BLOCK:
        return None
    try:
        entry = tarfile.TarInfo.frombuf(data, tarfile.ENCODING, "surrogateescape")
    except (tarfile.HeaderError, ValueError) as error:
        raise BrokenTar(f"a member's header: {error}") from None
    if entry.size < 0:
        raise BrokenTar(f"{entry.name!r} has a size below 0")
    return entry


def stream(content: Iterator[bytes]) -> IO[bytes]:
    """Returns a file object over these pieces, which can be read once."""
    return cast(IO[bytes], _Stream(content))


class _Stream(io.RawIOBase):
    def __init__(self, content: Iterator[bytes]) -> None:
        self._content, self._rest = content, memoryview(b"")

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """Returns at most `size` bytes, and none only at the end."""
        if not self._rest:
            self._rest = memoryview(next((piece for piece in self._content if piece), b""))
        data, self._rest = bytes(self._rest[:size]), self._rest[size:]
        return data
