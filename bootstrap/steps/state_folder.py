"""The folder for what a cluster keeps on this machine, and files in it that are its owner's alone."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path

from bootstrap.errors import UnsafeFolder
from bootstrap.step import Condition, Report, Status, missing, ready


@dataclass(frozen=True)
class StateFolder:
    """The folder for what the cluster keeps outside the cache; only its owner may look into it."""

    folder: Path
    name: str = "state-folder"
    title: str = "folder for the cluster's files"
    needs: tuple[str, ...] = ("machine",)
    patience: float = 0.0

    def check(self) -> Status:
        try:
            found = self.folder.lstat()
        except FileNotFoundError:
            return missing("not made yet")
        # It lies in a folder that everybody may write to: what is there must be ours alone.
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
            hint = f"look who made it (ls -ld {self.folder}) and remove it, or set state_folder"
            if found.st_uid == 0 and (self.folder / "node").is_dir():
                # Docker makes the source of a mount that is gone, when it starts a node that it kept.
                hint = f"sudo rm -r {self.folder}, which Docker made when it was gone, then ./invokew up"
            raise UnsafeFolder(f"{self.folder} is not a folder that only you can read", hint=hint)
        return ready(str(self.folder))

    def apply(self, report: Report) -> None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def undo(self, report: Report) -> None:
        if self.check().condition is Condition.READY:
            report(f"removing {self.folder}")
            shutil.rmtree(self.folder)


def write_private(file: Path, text: str) -> None:
    """Replaces `file` whole, readable by its owner alone at every moment."""
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    with contextlib.suppress(FileNotFoundError):
        draft.unlink()
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
        stream.write(text)
    draft.replace(file)
