"""Installs programs of the machine that come with Debian's own packages."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from bootstrap.machine import installed
from bootstrap.shell import Shell
from bootstrap.sources.base_image import KEYRING
from bootstrap.step import Report, Status, missing, ready
from bootstrap.steps import apt
from rayside.errors import MissingProgram


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
        """Installs it. Raises MissingProgram where we may not."""
        if os.geteuid() != 0 or not Path("/etc/debian_version").exists():
            raise MissingProgram(
                f"{self.name} is not there as it should be, and installing it takes root on Debian or Ubuntu",
                hint=f"install {' and '.join(self.packages)}",
            )
        apt.install(self.shell, report, *self.packages)


def debootstrap(shell: Shell) -> DebianProgram:
    """Returns debootstrap: source `packages` makes a Debian system, whose signatures Debian's keys prove."""
    packages = ("debootstrap", "debian-archive-keyring")
    return DebianProgram(shell, "debootstrap", packages, files=(KEYRING,))


def registry(shell: Shell) -> DebianProgram:
    """Returns a registry of images, for the tests of source `upstream`."""
    return DebianProgram(shell, "docker-registry", ("docker-registry",))


def chromium(shell: Shell) -> DebianProgram:
    """Returns Chromium: the workspace's tests drive it, and no browser that they would have to download."""
    return DebianProgram(shell, "chromium", ("chromium",))


def zsh(shell: Shell) -> DebianProgram:
    """Returns zsh: the tests of shell completion press Tab in it."""
    return DebianProgram(shell, "zsh", ("zsh",))


def sshd(shell: Shell) -> DebianProgram:
    """Returns OpenSSH's server: the tests of `up --ssh` reach a Ray through it."""
    return DebianProgram(shell, "sshd", ("openssh-server",))


def minisign(shell: Shell) -> DebianProgram:
    """Returns minisign: `bundle --sign` runs it."""
    return DebianProgram(shell, "minisign", ("minisign",))


def nft(shell: Shell) -> DebianProgram:
    """Returns nft: the tests of a bundle count with it what leaves a machine."""
    return DebianProgram(shell, "nft", ("nftables",))


def fish(shell: Shell) -> DebianProgram:
    """Returns fish: the tests of shell completion press Tab in it."""
    return DebianProgram(shell, "fish", ("fish",))
