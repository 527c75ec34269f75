"""Check that this machine emulates another architecture, for builds of its images."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rayside.errors import MissingProgram
from rayside.steps.step import Report, Status, missing, ready

# The kernel's list of emulators for foreign programs
# (https://docs.kernel.org/admin-guide/binfmt-misc.html).
_KERNELS_LIST = Path("/proc/sys/fs/binfmt_misc")
# e_machine in the header of an ELF file, by architecture as images name it
# (https://refspecs.linuxfoundation.org/elf/gabi4+/ch4.eheader.html).
_ELF_MACHINES = {"amd64": 62, "arm64": 183}
# Position of `e_machine` in the list's hexadecimal digits of an ELF file's header.
_E_MACHINE = slice(36, 40)


@dataclass(frozen=True)
class Emulation:
    """The kernel runs programs of this architecture with an emulator, also in containers."""

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
            # With the flag F the kernel opens the emulator in advance: a container does not have the file.
            is_it = machine == meant
            if is_it and "enabled" in fields and "F" in fields.get("flags:", ""):
                return ready(f"by {fields.get('interpreter', file.name)}")
        return missing("no emulator is registered with the kernel, for containers too")

    def apply(self, report: Report) -> None:
        """Raises MissingProgram: we don't change a setting of the whole machine."""
        raise absent(self.architecture)


def absent(architecture: str) -> MissingProgram:
    """Returns the error for a missing emulator, with a hint how to install one."""
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
