"""Step for oras, this machine's registry client: the installed one, else a release or a build."""

from __future__ import annotations

import platform
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from bootstrap import cache, docker_engine
from bootstrap.registry.address import Address, ca_file, parse
from bootstrap.settings import OLDEST_ORAS, Settings
from bootstrap.sources.digests import RECORDED, Digests
from bootstrap.sources.go import Go, GoPrograms, built_oras
from bootstrap.sources.program import ORAS, Program, released_oras
from bootstrap.sources.reachable import unreachable
from rayside.errors import CommandFailed, Interrupted, MissingProgram, RaysideError
from rayside.steps.step import Condition, Report, Status, missing, ready
from rayside.system.shell import Shell

if TYPE_CHECKING:
    from bootstrap.bundle.opened import Bundle
    from bootstrap.registry.oras import Oras

_VERSION = re.compile(r"^Version:\s+v?(\d+)\.(\d+)", re.MULTILINE)


@dataclass(frozen=True)
class RegistryClient:
    """oras is on this machine; it can also come from `bundle`, but as the last way if that is not signed."""

    settings: Settings
    shell: Shell
    bundle: Bundle | None = None
    name: str = "registry-client"
    title: str = ORAS
    needs: tuple[str, ...] = ()

    def of(self, address: Address, ca_file: Path | None) -> Oras:
        """Returns the client of a registry. Raises MissingProgram if oras is missing."""
        program = self._program()
        if program is None:
            raise MissingProgram(
                "oras, the registry client, is neither on PATH nor fetched yet",
                hint="./invokew prepare gets it; or install it: https://oras.land/docs/installation",
            )
        from bootstrap.registry.oras import Oras

        return Oras(self.shell, program, address, ca_file)

    @property
    def mirror(self) -> Oras:
        """Returns the client of the mirror that the settings name. Raises InvalidSetting, MissingProgram."""
        address = parse(self.settings.mirror)
        return self.of(address, ca_file(self.settings, address))

    def check(self) -> Status:
        program = self._program()
        return ready(str(program)) if program else missing("neither on PATH nor fetched yet")

    def apply(self, report: Report) -> None:
        """Extracts oras from the bundle, downloads or builds it. Raises MissingProgram, Interrupted."""
        failure = "nothing was tried"
        for way in self._ways():
            try:
                way(report)
                return
            except Interrupted:
                raise
            except RaysideError as error:
                failure = error.message
        oldest = ".".join(map(str, OLDEST_ORAS))
        raise MissingProgram(
            f"registries need oras {oldest} or newer: it is not on PATH, and could not be fetched or built\n"
            f"{failure}",
            hint="install it: https://oras.land/docs/installation",
        )

    def _ways(self) -> Iterator[Callable[[Report], None]]:
        from bootstrap.bundle.opened import this_platform

        has_one = self.bundle is not None and self.bundle.manifest.platform == this_platform()
        is_signed = bool(self.settings.bundle_key)
        if has_one and is_signed:
            yield self._unpack
        source = self.settings.source
        if source == "upstream" or (source != "packages" and not unreachable(self.settings)):
            yield self._release.apply
        if source != "upstream":
            yield self._make
        if has_one and not is_signed:
            yield self._unpack

    def _unpack(self, report: Report) -> None:
        from bootstrap.bundle.images import unpacked
        from bootstrap.bundle.packed import unpack

        assert self.bundle and self._unpacked
        folder = self.bundle.manifest.folder("oras")
        with cache.making(self._unpacked, report) as draft:
            if draft:
                unpack(unpacked(self.bundle.read(folder.blob), folder.size), draft)

    def _make(self, report: Report) -> None:
        if self._build.go.check().condition is Condition.MISSING:
            self._build.go.apply(report)
        self._build.apply(report)

    def _program(self) -> Path | None:
        files = [self._release.file, self._build.folder / "oras"]
        if self.bundle and self._unpacked:
            files.append(self._unpacked / self.bundle.manifest.folder("oras").path)
        return self._installed or next((file for file in files if file.exists()), None)

    @property
    def _unpacked(self) -> Path | None:
        """Returns the folder for the bundle's oras, which source `bundle` shares."""
        if self.bundle is None:
            return None
        return self.settings.cache_folder / f"bundle-{self.bundle.manifest.digest[:24]}" / "oras"

    @cached_property
    def _installed(self) -> Path | None:
        program = shutil.which("oras")
        if program is None:
            return None
        try:
            found = _VERSION.search(self.shell.run([program, "version"], limit=10).out)
        except (CommandFailed, MissingProgram):
            return None
        return Path(program) if found and tuple(map(int, found.groups())) >= OLDEST_ORAS else None

    @cached_property
    def _release(self) -> Program:
        system, architecture = platform.system().lower(), docker_engine.normal(platform.machine())
        digests = Digests(self.settings.cache_folder, RECORDED)
        return released_oras(self.settings, digests, system, architecture)

    @cached_property
    def _build(self) -> GoPrograms:
        folder = self.settings.cache_folder
        return built_oras(self.shell, Go(self.shell, folder), folder)
