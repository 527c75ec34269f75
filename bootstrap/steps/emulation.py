"""Checks that this machine runs programs of another architecture, by which images for that are built."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rayside.errors import MissingProgram
from rayside.steps.step import Report, Status, missing, ready

# The kernel lists here which program runs which foreign ones
# (https://docs.kernel.org/admin-guide/binfmt-misc.html).
_KERNELS_LIST = Path("/proc/sys/fs/binfmt_misc")
# By architectures as images call them: what the head of an ELF file has for its machine, e_machine
# (https://refspecs.linuxfoundation.org/elf/gabi4+/ch4.eheader.html).
_ELF_MACHINES = {"amd64": 62, "arm64": 183}
# Where `e_machine` is in an ELF file's head, of whose bytes the list has the hexadecimal digits.
_E_MACHINE = slice(36, 40)


@dataclass(frozen=True)
class Emulation:
    """The kernel runs programs of this architecture by an emulator, also within containers."""

    architecture: str
    registered: Path = _KERNELS_LIST
    name: str = "emulation"
    needs: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        return f"emulation of {self.architecture}"

    def check(self) -> Status:
        meant = _ELF_MACHINES[self.architecture].to_bytes(2, "little").hex()
        for file in sorted(self.registered.glob("*")):
            fields = dict(line.partition(" ")[::2] for line in _lines(file))
            machine = fields.get("magic", "")[_E_MACHINE]
            # With the flag F the emulator is open before a container is, which does not have it in its files.
            is_it = machine == meant
            if is_it and "enabled" in fields and "F" in fields.get("flags:", ""):
                return ready(f"by {fields.get('interpreter', file.name)}")
        return missing("no emulator is registered with the kernel, for containers too")

    def apply(self, report: Report) -> None:
        """Raises MissingProgram: what the whole machine runs is not ours to change."""
        raise absent(self.architecture)


def absent(architecture: str) -> MissingProgram:
    """Returns the error that there is no emulator, with how to have one."""
    return MissingProgram(
        f"this machine runs no programs for {architecture}, by which images for it are built",
        hint="as root, on Debian or Ubuntu: apt-get install qemu-user-static; within a container, also "
        f"mount -t binfmt_misc binfmt_misc {_KERNELS_LIST}",
    )


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(errors="replace").splitlines()
    except OSError:  # `register` can only be written
        return []
