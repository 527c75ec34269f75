"""Writing of a bundle: all artifacts of a target, from the engine, the cache and the package index."""

from __future__ import annotations

import errno
import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from bootstrap import cache, docker_engine, pip
from bootstrap.bundle.blobs import Blobs, pieces
from bootstrap.bundle.images import Gathering, compressed
from bootstrap.bundle.manifest import IMAGES, PROGRAMS, Folder, Image, Manifest, document_of, image_of
from bootstrap.bundle.opened import Bundle, this_platform, write
from bootstrap.bundle.packed import below, packed, size_of
from bootstrap.bundle.version import code_of, this_version
from bootstrap.errors import BadBundle, ImageMissing, LowDisk
from bootstrap.settings import NEWEST_PYTHON, OLDEST_PYTHON, ROOT
from bootstrap.sources.source import Source
from rayside.errors import CommandFailed, InvalidArgument, RaysideError
from rayside.steps.step import Report, Status, missing, ready
from rayside.system.lock import alone
from rayside.system.shell import Shell

_REQUIREMENTS = ROOT / "requirements"
# All packages that are installed from a bundle. The verbs' own are among them: there is no .venv yet.
LOCK_FILES = tuple(_REQUIREMENTS / f"{name}.txt" for name in ("rayside", "uv", "ray", "lab-plots"))
PROFILERS = _REQUIREMENTS / "lab-profilers.txt"
_AGAIN = "run the command again"


@dataclass(frozen=True)
class Wheels:
    """The wheels of the lock files for these Python versions, in a folder of the cache."""

    shell: Shell
    cache_folder: Path
    pythons: tuple[str, ...]
    # Architecture of their machine; empty: this machine's.
    architecture: str = ""
    name: str = "wheels"
    title: str = "Python packages"
    needs: tuple[str, ...] = ("disk",)

    @cached_property
    def folder(self) -> Path:
        key = cache.key(
            *(file.read_text() for file in (*LOCK_FILES, PROFILERS)), *self.pythons, self.platform
        )
        return self.cache_folder / f"wheels-{key}"

    @property
    def platform(self) -> str:
        """Returns the platform that they are for, as images name it: linux/amd64."""
        return f"linux/{self.architecture}" if self.architecture else this_platform()

    def check(self) -> Status:
        return ready(str(self.folder)) if self.folder.exists() else missing("not downloaded yet")

    def apply(self, report: Report) -> None:
        """Downloads them. Raises NoNetwork, CommandFailed."""
        with cache.making(self.folder, report) as draft:
            if draft is None:
                return
            env = cache.environment(self.folder)
            # The profilers of the labs are for the Python of the cluster, whichever that is.
            of_cluster = (f"3.{minor}" for minor in range(OLDEST_PYTHON[1], NEWEST_PYTHON[1] + 1))
            wanted = {
                *itertools.product(self.pythons, LOCK_FILES),
                *((each, PROFILERS) for each in of_cluster),
            }
            for python, lock_file in sorted(wanted):
                report(f"downloading what {lock_file.name} names, for Python {python}")
                pip.download(
                    *(self.shell, lock_file, draft, python, self.architecture), env=env, report=report
                )


@dataclass
class BundleFile:
    """The file itself, which exists only when complete.

    Attributes:
        images: references in the engine, by name in the bundle.
        needs: the steps that provide all of its content.
        sign: returns a manifest's signature; None for an unsigned bundle.
    """

    file: Path
    source: Source
    images: dict[str, str]
    extensions: tuple[str, ...]
    wheels: Wheels
    cache_folder: Path
    shell: Shell
    needs: tuple[str, ...]
    sign: Callable[[Manifest], bytes] | None = None
    name: str = "bundle"
    manifest: Manifest | None = field(default=None, init=False)

    @property
    def title(self) -> str:
        return f"bundle {self.file}"

    def check(self) -> Status:
        return ready(str(self.file)) if self.manifest else missing("not written yet")

    def apply(self, report: Report) -> None:
        """Writes it. Raises LowDisk, ImageMissing, WrongArchitecture, CommandFailed."""
        guard = self.cache_folder / "bundle-blobs.lock"
        with alone(guard, lambda: report("another command makes a bundle: waiting")):
            try:
                # Each platform has its own folder: blobs that one bundle does not need are removed.
                other = f"-{self.wheels.architecture}" if self.wheels.architecture else ""
                blobs = Blobs(self.cache_folder / f"bundle-blobs{other}")
                manifest = self._gathered(blobs, report)
                report("writing")
                write(self.file, manifest, blobs.read, self.sign)
                # Kept, as the next bundle is much like this one; other blobs are removed.
                blobs.keep(manifest.blobs())
            except OSError as error:
                raise unwritable(self.file, error) from None
        self.manifest = manifest

    def _gathered(self, blobs: Blobs, report: Report) -> Manifest:
        images = self._images(blobs, report)
        folders = []
        for name in PROGRAMS:
            report(f"packing {name}")
            folders.append(self._folder(name, blobs))
        wheels = {path.name: blobs.add(_content(path)) for path in sorted(self.wheels.folder.glob("*.whl"))}
        return Manifest(
            version=this_version(),
            platform=self.wheels.platform,
            pythons=self.wheels.pythons,
            extensions=self.extensions,
            folders=tuple(folders),
            images=images,
            wheels=wheels,
            checkout=blobs.add(packed(checkout(self.shell))),
        )

    def _images(self, blobs: Blobs, report: Report) -> tuple[Image, ...]:
        """Returns the images; images of an earlier bundle are not read again."""
        ids = {}
        with docker_engine.connected() as client:
            for name, reference in self.images.items():
                attributes = docker_engine.image(client, reference)
                if attributes is None:
                    raise ImageMissing(f"the Docker engine does not have {reference}", hint=_AGAIN)
                # Whatever built the image: the engine's machine may differ from the programs' platform.
                architecture = self.wheels.platform.removeprefix("linux/")
                docker_engine.require_architecture(client, reference, architecture)
                ids[name] = attributes["Id"].removeprefix("sha256:")
        notes = {name: blobs.folder / f"{id}.json" for name, id in ids.items()}
        known = {name: image for name, note in notes.items() if (image := noted(note, name, blobs))}
        names = {reference: name for name, reference in self.images.items() if name not in known}
        if names:
            report("taking images out of the Docker engine")
            with self.shell.reading(["docker", "save", *names]) as saved:
                for image in Gathering(blobs).take(saved, names, report):
                    known[image.name] = image
                    notes[image.name].write_text(json.dumps(document_of(image)))
        return tuple(known[name] for name in IMAGES)

    def _folder(self, name: str, blobs: Blobs) -> Folder:
        path = self.source.resolve(name).path
        # KubeRay's manifests refer to folders beside this one.
        whole = path.parent if name == "kuberay" else path
        files = below(whole, whole.name)
        size = size_of(files)
        meant = f"{whole.name}/{path.name}" if name == "kuberay" else path.name
        return Folder(name, meant, size, blobs.add(compressed(packed(files))))


def noted(note: Path, name: str, blobs: Blobs) -> Image | None:
    """Returns the image that was read from the engine before; None if a part of it is missing."""
    try:
        image = image_of({**json.loads(note.read_text()), "name": name})
    except (OSError, ValueError, KeyError, TypeError):
        return None
    has_all = all(map(blobs.has, [image.config, image.manifest, *(layer.blob for layer in image.layers)]))
    return image if has_all else None


def require_free(file: Path) -> None:
    """Raises InvalidArgument if another file exists there, or its folder is missing."""
    if not file.parent.is_dir():
        raise InvalidArgument(f"there is no folder {file.parent}", hint="make it, or choose another place")
    if file.exists() or file.is_symlink():
        try:
            Bundle.of(file)
        except BadBundle:
            raise InvalidArgument(
                f"{file} is there, and is no bundle: it would be lost", hint="choose another name"
            ) from None


def unwritable(file: Path, error: OSError) -> RaysideError:
    """Returns the error for a file that could not be written."""
    message = f"{file} could not be written: {error.strerror or error}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return LowDisk(message, hint="free some space, or choose another place; it goes on from there")
    return InvalidArgument(message, hint="choose another place")


def checkout(shell: Shell) -> list[tuple[str, Path]]:
    """Returns this repository's files, each with its name in the archive. Raises InvalidArgument.

    Only files in Git: others in the folder are the user's own.
    """
    try:
        listed = shell.run(["git", "-C", ROOT, "ls-files", "-z"]).out
    except CommandFailed as error:
        raise InvalidArgument(
            f"{ROOT} is no clone, and only Git says what belongs to it\n{error.message}",
            hint="clone Rayside, and make the bundle there",
        ) from None
    names = [name for name in listed.split("\0") if name and (ROOT / name).is_file()]
    if code_of(ROOT, [ROOT / name for name in names]) != this_version().code:
        raise InvalidArgument(
            f"Git does not know all of Rayside's files in {ROOT}, so that the bundle would not fit them",
            hint="git status --short --ignored shows them; add them, or take them away",
        )
    return [(f"rayside/{name}", ROOT / name) for name in names]


def _content(path: Path) -> Iterator[bytes]:
    with path.open("rb") as stream:
        yield from pieces(stream)
