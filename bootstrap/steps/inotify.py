"""The kernel's inotify limits, whose defaults a Kubernetes node with many pods exhausts."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from bootstrap.errors import LowInotify
from rayside.steps.step import Report, Status, missing, ready

# kind's recommended limits: https://kind.sigs.k8s.io/docs/user/known-issues/#pod-errors-due-to-too-many-open-files
WANTED = {"max_user_watches": 524_288, "max_user_instances": 512}


@dataclass(frozen=True)
class Inotify:
    """The limits are as high as kind advises, or higher; they hold until the machine restarts."""

    folder: Path = Path("/proc/sys/fs/inotify")
    name: str = "inotify"
    title: str = "inotify limits"
    needs: tuple[str, ...] = ()

    def check(self) -> Status:
        if not self.folder.is_dir():
            return ready("not Linux: the engine's own machine has them")
        low = [
            f"{name} is {now}, {advised} is advised"
            for name, advised in WANTED.items()
            if (now := int((self.folder / name).read_text())) < advised
        ]
        return missing("; ".join(low)) if low else ready("high enough")

    def apply(self, report: Report) -> None:
        """Sets the limits. Raises LowInotify without root, or if even root may not."""
        try:
            for name, advised in WANTED.items():
                file = self.folder / name
                if int(file.read_text()) < advised:
                    file.write_text(str(advised))
        except OSError as error:
            why = "it takes root" if os.geteuid() else error.strerror
            settings = " ".join(f"fs.inotify.{name}={advised}" for name, advised in WANTED.items())
            raise LowInotify(
                f"the inotify limits can't be raised: {why}", hint=f"sudo sysctl -w {settings}"
            ) from None
