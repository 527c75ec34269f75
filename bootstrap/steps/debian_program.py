"""Programs of this machine that Debian's packages provide."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from bootstrap.machine import installed
from bootstrap.sources.base_image import KEYRING
from bootstrap.steps import apt
from rayside.errors import MissingProgram
from rayside.steps.step import Report, Status, missing, ready
from rayside.system.shell import Shell

# `bundle --sign` runs minisign; tests use the others besides debootstrap.
PACKAGES = {
    "debootstrap": ("debootstrap", "debian-archive-keyring"),
    "docker-registry": ("docker-registry",),
    "chromium": ("chromium",),
    "zsh": ("zsh",),
    "fish": ("fish",),
    "sshd": ("openssh-server",),
    "minisign": ("minisign",),
    "nft": ("nftables",),
}


@dataclass(frozen=True)
class DebianProgram:
    """`name` is on the PATH, and `files` exist. `apply` installs `packages` on Debian and Ubuntu."""

    shell: Shell
    name: str
    packages: tuple[str, ...]
    files: tuple[Path, ...] = ()
    needs: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        return f"the program {self.name}"

    def check(self) -> Status:
        program = installed(self.name)
        if not program:
            return missing("it is not installed")
        absent = [str(file) for file in self.files if not file.exists()]
        return missing(f"there is no {', '.join(absent)}") if absent else ready(program)

    def apply(self, report: Report) -> None:
        """Installs it. Raises MissingProgram without root, or on another system."""
        if os.geteuid() != 0 or not Path("/etc/debian_version").exists():
            raise MissingProgram(
                f"{self.name} is not there as it should be, and installing it takes root on Debian or Ubuntu",
                hint=f"install {' and '.join(self.packages)}",
            )
        apt.install(self.shell, report, *self.packages)


def program(shell: Shell, name: str) -> DebianProgram:
    """Returns the program of that name, one of `PACKAGES`."""
    # debootstrap verifies Debian's signatures with these keys, for source `packages`.
    files = (KEYRING,) if name == "debootstrap" else ()
    return DebianProgram(shell, name, PACKAGES[name], files)
