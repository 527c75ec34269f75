"""Image builds from our own folders; an image's tag is the hash of all inputs."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import IO, Any

from bootstrap import docker_engine
from bootstrap.download import sha256
from bootstrap.errors import BuildFailed
from bootstrap.sources.indexes import package_indexes
from rayside.steps.step import Report, Status, missing, ready
from rayside.system.lock import alone
from rayside.system.shell import Shell

# Label with the hash of an image's inputs.
LABEL = "rayside.dev/inputs"
CERTIFICATES = "ca-certificates.crt"
_SYSTEM_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
# Docker's predefined build arguments, which leave no trace in an image
# (https://docs.docker.com/reference/dockerfile/#predefined-args).
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")
# Read timeout of a build in seconds: pip and npm print nothing while they install.
_SILENCE = 1800
# Last lines of the build's output in an error.
_LAST_LINES = 30
# The kernel's message for a program of another architecture without emulation (ENOEXEC).
_FOREIGN = "exec format error"


@dataclass(frozen=True)
class ImageBuild:
    """`docker build` of `context`, once for each set of inputs.

    `extra`: further files for the Dockerfile's context. Files below `cache_folder` are in folders named by a
    hash: their path there counts as input, so that a tag is known before they are made. A base image belongs
    to `arguments`, which count, too. The context also has `ca-certificates.crt`, this machine's CA bundle,
    which must not get into the final stage, and does not count.

    `architecture`: another than the engine's, which the engine emulates; empty for the engine's.

    `hashed` returns a file's SHA-256. Builds that share files share a cached function, as the tag belongs to
    the files at the start of the command.
    """

    name: str
    title: str
    repository: str
    context: Path
    cache_folder: Path
    dockerfile: str = "Dockerfile"
    arguments: Mapping[str, str] = field(default_factory=dict)
    extra: Mapping[str, Path] = field(default_factory=dict)
    hashed: Callable[[Path], str] = sha256
    needs: tuple[str, ...] = ("engine", "disk")
    architecture: str = ""

    @property
    def reference(self) -> str:
        """Returns `repository:tag`; the tag is the first 12 digits of the hash of the inputs."""
        return f"{self.repository}:{self.inputs[:12]}"

    @cached_property
    def inputs(self) -> str:
        """Returns the full hash: SHA-256 of every file's name, mode and content, and of the arguments."""
        digest = hashlib.sha256()
        for name, file in self._files():
            if name in self.extra and file.is_relative_to(self.cache_folder):
                content = f"cache {file.relative_to(self.cache_folder)}"
            elif file.is_symlink():
                content = f"link {file.readlink()}"
            else:
                content = f"file {_mode(file):o} {self.hashed(file)}"
            digest.update(f"{name}\0{content}\0".encode())
        for key, value in sorted(self.arguments.items()):
            digest.update(f"{key}={value}\0".encode())
        digest.update(self.dockerfile.encode())
        digest.update(self.architecture.encode())
        return digest.hexdigest()

    def check(self) -> Status:
        with docker_engine.connected() as client:
            image = docker_engine.image(client, self.reference)
            needed = docker_engine.missed_architecture(client, image, self.architecture)
        if image is None:
            return missing(f"{self.reference} is not built yet")
        if needed:
            return missing(f"{self.reference} was built for {image['Architecture']}, not for {needed}")
        return ready(self.reference)

    def apply(self, report: Report) -> None:
        """Builds it. Raises BuildFailed with the last lines, WrongArchitecture, EngineNotRunning."""
        guard = self.cache_folder / f"image-{self.reference.replace('/', '-').replace(':', '-')}.lock"
        with alone(guard, lambda: report("another command is building it: waiting")):
            if self.check() == ready(self.reference):
                return
            with (
                docker_engine.connected(_SILENCE) as client,
                tempfile.TemporaryFile(dir=self.cache_folder) as archive,
            ):
                self._write(archive)
                if replace(self, hashed=sha256).inputs != self.inputs:
                    raise BuildFailed(
                        f"files of {self.title} were changed since this command began",
                        hint="run the command again",
                    )
                archive.seek(0)
                self._build(client, archive, report)
                docker_engine.require_architecture(client, self.reference, self.architecture)

    def _build(self, client: Any, archive: IO[bytes], report: Report) -> None:
        def start() -> Iterator[dict[str, Any]]:
            answer: Iterator[dict[str, Any]] = client.api.build(
                fileobj=archive,
                custom_context=True,
                dockerfile=self.dockerfile,
                tag=self.reference,
                buildargs={**_proxies(), **package_indexes(Shell()), **self.arguments},
                labels={LABEL: self.inputs},
                network_mode="host",
                platform=f"linux/{self.architecture}" if self.architecture else None,
                rm=True,
                forcerm=True,
                decode=True,
            )
            return answer

        lines: list[str] = []
        for event in docker_engine.events(start):
            for line in filter(None, map(str.strip, event.get("stream", "").splitlines())):
                lines.append(line)
                report(line)
            if "error" in event:
                first = f"{self.title} could not be built: {event['error']}"
                last = [*lines[-_LAST_LINES:], f"(from {self.context / self.dockerfile})"]
                hint = "correct what the last lines name; what was built before them is kept"
                if self.architecture and any(_FOREIGN in each for each in [first, *lines]):
                    hint = f"the engine emulates no {self.architecture}: docker run --privileged --rm "
                    hint += f"tonistiigi/binfmt --install {self.architecture}, where it runs"
                raise BuildFailed("\n".join([first, *last]), hint=hint)

    def _files(self) -> list[tuple[str, Path]]:
        """Returns each input's name in the context, and its file, sorted by name."""
        files = {
            str(file.relative_to(self.context)): file
            for file in self.context.rglob("*")
            if (file.is_symlink() or file.is_file()) and self._belongs(file)
        }
        return sorted({**files, **self.extra}.items())

    def _belongs(self, file: Path) -> bool:
        # Another Dockerfile in the folder belongs to another image.
        if file.parent == self.context and "Dockerfile" in file.name:
            return file.name == self.dockerfile
        return "__pycache__" not in file.parts

    def _write(self, archive: IO[bytes]) -> None:
        """Writes the context as a tar archive, the same for the same files in any folder."""
        with tarfile.open(fileobj=archive, mode="w") as tar:
            for name, file in self._files():
                entry = tar.gettarinfo(file, arcname=name)
                entry.uid = entry.gid = entry.mtime = 0
                entry.uname = entry.gname = ""
                if entry.issym():
                    tar.addfile(entry)
                    continue
                # Hard links are stored as files: links would lead out of the context.
                entry.type, entry.linkname = tarfile.REGTYPE, ""
                entry.mode, entry.size = _mode(file), file.stat().st_size
                with file.open("rb") as content:
                    tar.addfile(entry, content)
            bundle = certificates()
            entry = tarfile.TarInfo(CERTIFICATES)
            entry.size, entry.mode = len(bundle), 0o644
            tar.addfile(entry, io.BytesIO(bundle))


def certificates() -> bytes:
    """Returns this machine's CA bundle, in PEM; empty if there is none."""
    named = os.environ.get("SSL_CERT_FILE") or os.environ.get("REQUESTS_CA_BUNDLE")
    file = Path(named) if named else _SYSTEM_CERTIFICATES
    return file.read_bytes() if file.is_file() else b""


def _proxies() -> dict[str, str]:
    return {name: os.environ[name] for name in _PROXIES if name in os.environ}


def _mode(file: Path) -> int:
    # Checkouts differ in all bits but the executable one, the only one that Git keeps.
    return 0o755 if file.stat().st_mode & 0o100 else 0o644
