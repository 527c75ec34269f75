"""Archive format of a bundle: the same bytes for the same content; a file that is read is untrusted.

It is an uncompressed tar archive with these members, in this order:

- `manifest.json`: the bundle's manifest (`manifest.py`), with the digest of all that follows;
- `manifest.json.minisig`, if it is signed;
- `oci-layout` and `index.json`, so that tools for OCI images can read its images;
- `blobs/sha256/...`, sorted, each once.
"""

from __future__ import annotations

import hashlib
import os
import re
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from bootstrap.bundle.blobs import Blob, pieces
from bootstrap.bundle.tar import BLOCK, END, BrokenTar, header, member
from bootstrap.errors import BadBundle

MANIFEST, SIGNATURE = "manifest.json", "manifest.json.minisig"
LAYOUT, INDEX = "oci-layout", "index.json"
_BLOB = re.compile(r"blobs/sha256/([0-9a-f]{64})")
# Limits: bytes of a member that is held in memory, and members of a file.
_LONGEST, _MOST_MEMBERS = 16 * 1024 * 1024, 20_000


def write(
    target: IO[bytes],
    texts: Mapping[str, bytes],
    blobs: Sequence[Blob],
    read: Callable[[Blob], Iterator[bytes]],
) -> None:
    """Writes the members, `texts` in their order. Raises OSError, and errors of `read`."""
    for name, text in texts.items():
        target.writelines(member(name, len(text), [text]))
    for blob in sorted(set(blobs)):
        target.writelines(member(blob.name, blob.size, read(blob)))
    target.write(END)


@dataclass(frozen=True)
class Member:
    """Position of a member's content in the file."""

    offset: int
    size: int


@dataclass(frozen=True)
class Archive:
    """A bundle's file, with the names, offsets and sizes of its members."""

    file: Path
    members: Mapping[str, Member]

    @classmethod
    def of(cls, file: Path) -> Archive:
        """Reads the members' names. Raises BadBundle, OSError."""
        members: dict[str, Member] = {}
        if not file.is_file() and file.exists():
            raise _no_bundle(file, "it is no file")
        with file.open("rb") as stream:
            for entry, offset in _entries(file, stream):
                if not entry.isreg() or entry.name in members or not _is_known(entry.name):
                    raise _no_bundle(file, f"it has {entry.name!r} in it")
                if not members and entry.name != MANIFEST:
                    raise _no_bundle(file, f"it does not begin with {MANIFEST}")
                members[entry.name] = Member(offset, entry.size)
                if len(members) > _MOST_MEMBERS:
                    raise _no_bundle(file, f"it has more than {_MOST_MEMBERS:,} members")
        if not members:
            raise _no_bundle(file, "it is empty")
        return cls(file, members)

    def text(self, name: str) -> bytes | None:
        """Returns the content of a small member; None if there is none. Raises BadBundle."""
        member = self.members.get(name)
        if member is None:
            return None
        if member.size > _LONGEST:
            raise _no_bundle(self.file, f"its {name} has {member.size} bytes")
        return b"".join(self._read(member))

    def has(self, blob: Blob) -> bool:
        member = self.members.get(blob.name)
        return member is not None and member.size == blob.size

    def read(self, blob: Blob) -> Iterator[bytes]:
        """Yields a blob's content; its last piece only after the digest is verified. Raises BadBundle."""
        member = self.members.get(blob.name)
        if member is None or member.size != blob.size:
            raise _cut_off(self.file, f"it lacks {blob.name}")
        hashed, held = hashlib.sha256(), b""
        for piece in self._read(member):
            hashed.update(piece)
            if held:
                yield held
            held = piece
        if hashed.hexdigest() != blob.digest:
            raise BadBundle(
                f"{self.file} was changed since it was made: {blob.name} is another content",
                hint="get the file anew from where it was made",
            )
        if held:
            yield held

    def check(self, blobs: Sequence[Blob], report: Callable[[int], None] = lambda _: None) -> None:
        """Verifies the blobs; `report` gets the number of bytes of each piece read. Raises BadBundle."""
        for blob in sorted(blobs, key=lambda blob: self.members[blob.name].offset if self.has(blob) else 0):
            for piece in self.read(blob):
                report(len(piece))

    def _read(self, member: Member) -> Iterator[bytes]:
        left = member.size
        try:
            with self.file.open("rb") as stream:
                stream.seek(member.offset)
                for piece in pieces(stream, member.size):
                    left -= len(piece)
                    yield piece
        except OSError as error:
            raise BadBundle(
                f"{self.file} can't be read: {error.strerror}",
                hint="copy the file to a disk of this machine",
            ) from None
        if left:
            raise _cut_off(self.file, f"{left} bytes are lacking")


def _entries(file: Path, archive: IO[bytes]) -> Iterator[tuple[tarfile.TarInfo, int]]:
    """Yields the header of each member, and the offset of its content. Raises BadBundle."""
    at, whole = 0, archive.seek(0, os.SEEK_END)
    while True:
        archive.seek(at)
        try:
            entry = header(archive.read(BLOCK))
        except BrokenTar as error:
            refusal = _cut_off if at else _no_bundle
            raise refusal(file, str(error)) from None
        if entry is None:
            break
        begin = at + BLOCK
        if entry.size > whole - begin:
            raise _cut_off(file, f"{entry.name!r} ends after the file")
        yield entry, begin
        at = begin + entry.size + -entry.size % BLOCK
    if at and whole != at + len(END):
        raise _cut_off(file, "it does not end where its last member does")


def _is_known(name: str) -> bool:
    return name in (MANIFEST, SIGNATURE, LAYOUT, INDEX) or _BLOB.fullmatch(name) is not None


def _no_bundle(file: Path, reason: str) -> BadBundle:
    return BadBundle(f"{file} is no bundle of Rayside's: {reason}", hint="./invokew bundle FILE makes one")


def _cut_off(file: Path, reason: str) -> BadBundle:
    return BadBundle(
        f"{file} is not whole: {reason}",
        hint="copy the file again; ./invokew bundle FILE --inspect checks it",
    )
