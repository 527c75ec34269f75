"""Debian base image on which source `packages` builds its images."""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from bootstrap import cache, docker_engine
from bootstrap.errors import BuildFailed
from bootstrap.settings import DEBIAN_SUITE
from bootstrap.sources.image_build import LABEL
from bootstrap.sources.indexes import debian_mirror
from rayside.errors import CommandFailed, MissingProgram
from rayside.plain import line
from rayside.steps.step import Report, Status, missing, ready
from rayside.system.lock import alone
from rayside.system.shell import Shell

# Keys that sign Debian's archive, from Debian's package debian-archive-keyring.
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_PACKAGES = ("ca-certificates", "python3", "python3-venv", "tzdata")
# Files that come back, or differ from one run to the next. A layer above that removed one of them would need
# a whiteout, which can't be unpacked where the node's images are made (docs/adr/0006).
_UNWANTED = (
    *("var/cache/apt/*.bin", "var/cache/apt/archives/*.deb", "var/lib/apt/lists/*"),
    *("var/cache/debconf/*-old", "var/lib/dpkg/*-old", "var/log/*"),
)


@dataclass(frozen=True)
class BaseImage:
    """Debian's minimal system with Python, made with debootstrap, which requires Debian's signatures.

    `mirror`: default is the Debian mirror of this machine's apt, and without that debootstrap's own.
    `architecture`: another than the engine's, as images and Debian name it, which this machine emulates;
    empty for the engine's.
    """

    shell: Shell
    cache_folder: Path
    mirror: str = ""
    architecture: str = ""
    keyring: Path = KEYRING
    name: str = "base-image"
    title: str = f"base image, Debian {DEBIAN_SUITE}"
    needs: tuple[str, ...] = ("engine", "disk")

    @property
    def reference(self) -> str:
        return f"rayside/base:{self._key}"

    @property
    def _key(self) -> str:
        return cache.key(
            *(DEBIAN_SUITE, self.mirror, *_PACKAGES, *_UNWANTED), *filter(None, [self.architecture])
        )

    def check(self) -> Status:
        with docker_engine.connected() as client:
            image = docker_engine.image(client, self.reference)
            needed = docker_engine.missed_architecture(client, image, self.architecture)
        if image is None or needed:
            return missing(f"{self.reference} is not made yet")
        return ready(self.reference)

    def apply(self, report: Report) -> None:
        program = require_debootstrap(self.keyring)
        guard = self.cache_folder / f"base-{self._key}.lock"
        with alone(guard, lambda: report("another command is making it: waiting")):
            if self.check() == ready(self.reference):
                return
            cache.end_builds(guard)
            # Only root can use the folder, as it gets device files; it is not on a tmpfs, which may be nodev.
            for left in self.cache_folder.glob(f".debian-{self._key}-*"):
                shutil.rmtree(left)
            with tempfile.TemporaryDirectory(prefix=f".debian-{self._key}-", dir=self.cache_folder) as folder:
                system, archive = Path(folder, "system"), Path(folder, "system.tar")
                options = ["--variant=minbase", f"--include={','.join(_PACKAGES)}"]
                # Without the second option debootstrap continues unsigned if the keyring is missing.
                options += [f"--keyring={self.keyring}", "--force-check-gpg"]
                options += [f"--arch={self.architecture}"] if self.architecture else []
                mirror = self.mirror or debian_mirror(self.shell, DEBIAN_SUITE)
                try:
                    self.shell.run(
                        [program, *options, DEBIAN_SUITE, system, *filter(None, [mirror])],
                        env=cache.environment(guard),
                        on_line=report,
                    )
                except CommandFailed as error:
                    raise BuildFailed(
                        f"debootstrap could not make a Debian system\n{error.message}",
                        hint="if it could not download, name a mirror in INVOKE_RAYSIDE_DEBIAN_MIRROR",
                    ) from None
                for pattern in _UNWANTED:
                    for path in system.glob(pattern):
                        shutil.rmtree(path) if path.is_dir() else path.unlink()
                report("importing")
                self.shell.run(["tar", "--create", "--file", archive, "--directory", system, "."])
                self._import(archive)

    def _import(self, archive: Path) -> None:
        """Makes the image from an archive. Raises BuildFailed, EngineNotRunning."""
        import docker.errors

        repository, tag = self.reference.split(":")
        with docker_engine.connected(600) as client:
            if not self.architecture:
                changes = [f"LABEL {LABEL}={self._key}"]
                client.api.import_image_from_file(str(archive), repository, tag, changes=changes)
                return
            # An imported image gets the engine's own architecture, whatever is requested (engine 20.10); a
            # built one gets the requested architecture.
            dockerfile = archive.with_name("Dockerfile")
            dockerfile.write_text(f"FROM scratch\nADD {archive.name} /\n")
            context = archive.with_name("context.tar")
            names = [archive.name, dockerfile.name]
            self.shell.run(["tar", "--create", "--file", context, "--directory", archive.parent, *names])
            archive.unlink()
            with context.open("rb") as stream:
                try:
                    client.images.build(
                        fileobj=stream,
                        custom_context=True,
                        tag=self.reference,
                        labels={LABEL: self._key},
                        platform=f"linux/{self.architecture}",
                        rm=True,
                    )
                except docker.errors.BuildError as error:
                    raise BuildFailed(
                        f"the {self.title} could not be made an image: {line(str(error), 300)}",
                        hint="./invokew doctor --target kind says whether the disk is full",
                    ) from None


def require_debootstrap(keyring: Path = KEYRING) -> str:
    """Returns debootstrap's path. Raises MissingProgram without it, Debian's keys, or root."""
    if os.geteuid() != 0:
        raise MissingProgram(
            "source packages makes a Debian system, which takes root",
            hint="run it as root, or choose --source upstream",
        )
    program = shutil.which("debootstrap")
    if program is None:
        raise MissingProgram(
            "debootstrap is not on this machine", hint="./invokew doctor --fix --target kind installs it"
        )
    if not keyring.exists():
        raise MissingProgram(
            f"Debian's keys are not on this machine: there is no {keyring}",
            hint="./invokew doctor --fix --target kind installs them",
        )
    return program
