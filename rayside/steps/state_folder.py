"""State folder of a cluster on this machine, with its record."""

from __future__ import annotations

import contextlib
import shutil
from dataclasses import dataclass
from pathlib import Path

from rayside.connection.instance import Instance, all_recorded
from rayside.errors import PortTaken
from rayside.own_folder import make_own, require_own
from rayside.private_file import write_private
from rayside.settings import environment_name
from rayside.steps.step import Report, Status, missing, ready


@dataclass(frozen=True)
class StateFolder:
    """Private folder of the cluster with its record, and `more` private folders."""

    instance: Instance
    more: tuple[Path, ...] = ()
    name: str = "state-folder"
    title: str = "folder for the cluster's files"
    needs: tuple[str, ...] = ("disk",)

    @property
    def _folders(self) -> tuple[Path, ...]:
        # A local Ray cluster's files may be in the same folder.
        return tuple(dict.fromkeys((self.instance.folder, *self.more)))

    def check(self) -> Status:
        """Checks the folders. Raises UnsafeFolder."""
        absent = [str(folder) for folder in self._folders if not require_own(folder).exists()]
        if absent:
            return missing(f"{' and '.join(absent)} not made yet")
        if not self.instance.record.exists() or self.instance.record.read_text() != self.instance.document():
            return missing(f"{self.instance.record} is of other settings")
        return ready(str(self.instance.folder))

    def apply(self, report: Report) -> None:
        """Makes the folders. Raises PortTaken if another cluster of this user has one of the ports."""
        self._require_ports()
        for folder in self._folders:
            make_own(folder)
        write_private(self.instance.record, self.instance.document())

    def undo(self, report: Report) -> None:
        record = self.instance.record
        # The record is removed last: it identifies the rest of an interrupted removal.
        for folder in reversed(self._folders):
            if require_own(folder).exists():
                report(f"removing {folder}")
                for path in sorted(folder.iterdir(), key=lambda path: path == record):
                    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
                with contextlib.suppress(OSError):
                    folder.rmdir()
        with contextlib.suppress(OSError):
            # The parent folder is removed with its last cluster.
            self.instance.location.parent.rmdir()

    def _require_ports(self) -> None:
        for other in all_recorded(self.instance.location.parent, Instance):
            if other.location == self.instance.location:
                continue
            taken = {port: name for name, port in vars(other.ports).items()}
            for name, port in vars(self.instance.ports).items():
                if port and port in taken:
                    raise PortTaken(
                        f"port {port} is that of the cluster {other.name} ({taken[port]}), whose files are "
                        f"in {other.location}",
                        hint=f"choose another port: {environment_name(f'{name}_port')}={port + 1}; "
                        f"or ./invokew down --name {other.name} removes that cluster",
                    )
