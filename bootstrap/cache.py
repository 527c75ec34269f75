"""Cache of downloads and builds: one folder each, named by a hash of its inputs; only complete ones exist."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rayside.system import processes
from rayside.system.lock import alone, trying

# Environment variable that marks a build's processes, so that those of a killed build are found and ended.
MARK = "RAYSIDE_BUILD"


def key(*inputs: str) -> str:
    """Returns the cache key of `inputs`: twelve hexadecimal digits."""
    digest = hashlib.sha256()
    for value in inputs:
        digest.update(f"{len(value)}:{value}".encode())
    return digest.hexdigest()[:12]


def content(folder: Path) -> str:
    """Returns one hash of the names, modes and contents of a folder's files."""
    digest = hashlib.sha256()
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        mode = "x" if os.access(file, os.X_OK) else "-"
        data = file.read_bytes()
        digest.update(f"{file.relative_to(folder).as_posix()} {mode} {len(data)}\n".encode())
        digest.update(data)
    return digest.hexdigest()


@contextmanager
def making(folder: Path, report: Callable[[str], None]) -> Iterator[Path | None]:
    """Yields a draft that becomes `folder` if the body ends without an error; None if it exists.

    One command at a time makes it; the processes and the draft of a killed command are removed first. Pass
    `environment(folder)` to the processes that the body starts.
    """
    folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = folder.with_name(f".{folder.name}")
    with alone(folder.with_name(f"{folder.name}.lock"), lambda: report("another command makes it: waiting")):
        if folder.exists():
            yield None
            return
        end_builds(folder)
        if draft.exists():
            shutil.rmtree(draft)
        draft.mkdir()
        yield draft
        draft.replace(folder)


def environment(folder: Path) -> dict[str, str]:
    """Returns the environment for processes that make `folder`."""
    return {**os.environ, MARK: str(folder)}


def end_abandoned(folder: Path) -> None:
    """Ends the processes that still make `folder` for a command that has ended; other builds continue."""
    with trying(folder.with_name(f"{folder.name}.lock")) as nobody:
        if nobody:
            end_builds(folder)


def end_builds(folder: Path) -> None:
    """Ends the processes that still make `folder` for a command that was killed."""
    processes.end(lambda: processes.marked(MARK, str(folder)), patience=2)
