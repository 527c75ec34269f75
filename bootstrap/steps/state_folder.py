"""Makes the folders of what a cluster keeps on this machine, and files in them that are private."""

from __future__ import annotations

import contextlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from bootstrap.own_folder import make_own, require_own
from bootstrap.step import Report, Status, missing, ready


@dataclass(frozen=True)
class StateFolder:
    """The folder for what the cluster keeps outside the cache, and `more`; only their owner may look in."""

    folder: Path
    more: tuple[Path, ...] = ()
    name: str = "state-folder"
    title: str = "folder for the cluster's files"
    needs: tuple[str, ...] = ("machine",)
    patience: float = 0.0

    @property
    def _folders(self) -> tuple[Path, ...]:
        return (self.folder, *self.more)

    def check(self) -> Status:
        """Checks the folders. Raises UnsafeFolder."""
        absent = [str(folder) for folder in self._folders if not require_own(folder).exists()]
        return missing(f"{' and '.join(absent)} not made yet") if absent else ready(str(self.folder))

    def apply(self, report: Report) -> None:
        for folder in self._folders:
            make_own(folder)

    def undo(self, report: Report) -> None:
        for folder in self._folders:
            if require_own(folder).exists():
                report(f"removing {folder}")
                shutil.rmtree(folder)


def write_private(file: Path, text: str) -> None:
    """Replaces `file` whole, readable by its owner alone at every moment."""
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    with contextlib.suppress(FileNotFoundError):
        draft.unlink()
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
        stream.write(text)
    draft.replace(file)
