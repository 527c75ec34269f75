"""Packs a lab of this clone, which a teacher has changed, for the places of a workshop."""

from __future__ import annotations

import io
import tarfile
from dataclasses import dataclass
from pathlib import Path

from rayside.errors import InvalidArgument

# In bytes. A lab is some files of text.
_LARGEST = 4 * 1024 * 1024


@dataclass(frozen=True)
class Packed:
    """A lab; `archive` is a tar file with its folder's contents, `files` their names."""

    lab: str
    archive: bytes
    files: frozenset[str]


def packed(lab: Path) -> Packed:
    """Returns the lab of that folder. Raises InvalidArgument where it is larger than 4 MiB."""
    stream, names = io.BytesIO(), set()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for file in sorted(lab.rglob("*")):
            if file.is_file() and not file.is_symlink() and "__pycache__" not in file.parts:
                names.add(file.relative_to(lab).as_posix())
                archive.add(file, file.relative_to(lab).as_posix(), filter=_nobodys)
            if stream.tell() > _LARGEST:
                raise InvalidArgument(f"{lab} is larger than 4 MiB", hint="keep data out of a lab's folder")
    return Packed(lab.name, stream.getvalue(), frozenset(names))


def _nobodys(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member
