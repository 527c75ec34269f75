"""Packing of files into a tar archive, the same bytes for the same files; unpacking of an untrusted one."""

from __future__ import annotations

import os
import shutil
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from bootstrap.bundle.blobs import PIECE, pieces
from bootstrap.bundle.tar import BLOCK, END, member, stream
from bootstrap.errors import BadBundle

# Limit: members of an archive.
_MOST_MEMBERS = 50_000
# Errors that `tarfile` raises for forged headers, besides its own.
_MADE_UP = (ValueError, LookupError, OverflowError, RecursionError, EOFError)


def packed(files: Sequence[tuple[str, Path]]) -> Iterator[bytes]:
    """Yields an archive of files, by their names in it; symbolic links are followed."""
    for name, file in sorted(files):
        with file.open("rb") as content:
            size = os.fstat(content.fileno()).st_size
            mode = 0o755 if os.access(file, os.X_OK) else 0o644
            yield from member(name, size, pieces(content, size), mode)
    yield END


def size_of(files: Sequence[tuple[str, Path]]) -> int:
    """Returns how many bytes `packed` yields."""
    sizes = (file.stat().st_size for _, file in files)
    return len(END) + sum(BLOCK + size + -size % BLOCK for size in sizes)


def below(folder: Path, name: str = "") -> list[tuple[str, Path]]:
    """Returns a file, or all files of a folder, with their names in an archive, below `name`."""
    if folder.is_file():
        return [(name or folder.name, folder)]
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    return [(str(PurePosixPath(name, path.relative_to(folder).as_posix())), path) for path in found]


def unpack(content: Iterator[bytes], folder: Path) -> None:
    """Unpacks an archive of regular files below a folder. Raises BadBundle, OSError, and errors of `content`.

    Nothing is written outside of it, and nothing but regular files with the modes 0644 and 0755.
    """
    try:
        with tarfile.open(fileobj=stream(content), mode="r|") as tar:
            for number, entry in enumerate(tar):
                path = PurePosixPath(entry.name)
                is_plain = entry.type in (tarfile.REGTYPE, tarfile.AREGTYPE) and not entry.issparse()
                if not is_plain or not path.parts or path.is_absolute() or ".." in path.parts:
                    raise tarfile.ReadError(f"it has {entry.name!r} in it")
                if number >= _MOST_MEMBERS:
                    raise tarfile.ReadError(f"it has more than {_MOST_MEMBERS:,} members")
                file = folder / path
                file.parent.mkdir(parents=True, exist_ok=True)
                data = tar.extractfile(entry)
                assert data is not None  # as of each regular file
                with file.open("xb") as target:
                    shutil.copyfileobj(data, target, PIECE)
                file.chmod(0o755 if entry.mode & 0o100 else 0o644)
    except (tarfile.TarError, *_MADE_UP, FileExistsError, NotADirectoryError, IsADirectoryError) as error:
        raise BadBundle(
            f"an archive in the bundle is not as it should be: {error}", hint="make the bundle anew"
        ) from None
    # The source verifies the content at its end.
    for _ in content:
        pass
