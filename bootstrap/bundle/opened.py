"""Bundle reader and writer; refuses a bundle that is incomplete, or not for this code and machine."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import glob
import os
import platform
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bootstrap.bundle import archive, layout
from bootstrap.bundle.archive import INDEX, LAYOUT, MANIFEST, SIGNATURE, Archive
from bootstrap.bundle.blobs import Blob
from bootstrap.bundle.manifest import Manifest, parse
from bootstrap.errors import BadBundle

# Platforms of bundles, as images name them.
PLATFORMS = ("linux/amd64", "linux/arm64")
# Suffix of an incomplete file.
_DRAFT = ".part"
# The kernel's names of architectures, and their names in images.
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def this_platform() -> str:
    """Returns this machine's platform, as images name it: linux/amd64."""
    machine = platform.machine().lower()
    return f"{sys.platform}/{_ARCHITECTURES.get(machine, machine)}"


def this_python() -> str:
    """Returns this Python's version, as in 3.11."""
    return "{}.{}".format(*sys.version_info)


def path_of(given: str) -> Path:
    """Returns the path that a user has given. Raises BadBundle if its `~USER` does not exist."""
    try:
        return Path(given).expanduser().absolute()
    except RuntimeError as error:
        raise BadBundle(f"{given}: {error}", hint="correct the path") from None


@dataclass(frozen=True)
class Bundle:
    """A bundle's file and its manifest, against which `require_whole` checks the file."""

    archive: Archive
    manifest: Manifest

    @classmethod
    def of(cls, file: Path) -> Bundle:
        """Reads the manifest, and the names of all members. Raises BadBundle."""
        try:
            opened = Archive.of(file)
            text = opened.text(MANIFEST)
        except OSError as error:
            raise BadBundle(f"{file} can't be read: {error.strerror}", hint="correct the path") from None
        assert text is not None  # `Archive.of` refuses a file without
        return cls(opened, parse(file, text))

    @property
    def signature(self) -> bytes | None:
        """Returns its signature; None if it is not signed. Raises BadBundle."""
        return self.archive.text(SIGNATURE)

    def blobs(self, *, images: bool = True) -> list[Blob]:
        """Returns the blobs that the file must have, each once; `images`: including the images' blobs."""
        return sorted(set(self.manifest.blobs(images=images)))

    def require_whole(self, report: Callable[[str], None] = lambda _: None, *, images: bool = True) -> None:
        """Verifies the blobs. Raises BadBundle if a byte is missing or changed, OSError."""
        archive, manifest = self.archive, self.manifest
        texts = layout.texts(manifest, self.signature)
        expected = {LAYOUT: layout.LAYOUT, INDEX: layout.index(manifest, self.signature)}
        odd = [name for name, text in expected.items() if archive.text(name) != text]
        known = {blob.name for blob in (*manifest.blobs(), *texts)} | {MANIFEST, SIGNATURE, *expected}
        if odd := odd or [name for name in archive.members if name not in known]:
            raise BadBundle(
                f"{archive.file} was changed since it was made: {odd[0]} is not what the manifest says",
                hint="get the file anew from where it was made",
            )
        blobs = [*self.blobs(images=images), *texts]
        whole, done, told = sum(blob.size for blob in blobs), 0, 0

        def count(size: int) -> None:
            nonlocal done, told
            done += size
            if done - told >= 100 * 10**6:
                told = done
                report(f"checked {done // 10**6} of {whole // 10**6} MB")

        self.archive.check(blobs, count)

    def read(self, blob: Blob) -> Iterator[bytes]:
        """Yields a blob's content; its last piece after the digest is verified. Raises BadBundle, OSError."""
        return self.archive.read(blob)


def write(
    file: Path,
    manifest: Manifest,
    read: Callable[[Blob], Iterator[bytes]],
    sign: Callable[[Manifest], bytes] | None = None,
    *,
    images: bool = True,
) -> None:
    """Writes a bundle; the file exists only when complete.

    `read` yields a blob's content, and `sign` returns a manifest's signature. `images`: including the
    images' blobs. Raises OSError, and the errors of both.
    """
    signed = sign(manifest) if sign else None
    texts = {MANIFEST: manifest.text(), **({} if signed is None else {SIGNATURE: signed})}
    texts |= {LAYOUT: layout.LAYOUT, INDEX: layout.index(manifest, signed)}
    own = layout.texts(manifest, signed)
    blobs = [*manifest.blobs(images=images), *own]
    remove_drafts(file)
    # A new name, at which nobody else can have made a file or a link.
    descriptor, name = tempfile.mkstemp(prefix=f".{file.name}.", suffix=_DRAFT, dir=file.parent)
    remove = partial(Path(name).unlink, missing_ok=True)
    # After Ctrl-C the writing thread ends with the process, without cleanup.
    atexit.register(remove)
    try:
        with os.fdopen(descriptor, "wb") as target:
            fcntl.flock(target, fcntl.LOCK_EX)
            archive.write(target, texts, blobs, lambda blob: iter([own[blob]]) if blob in own else read(blob))
            target.flush()
            os.fchmod(target.fileno(), 0o644)
            # Else the file could exist without its content after a power failure.
            os.fsync(target.fileno())
            Path(name).replace(file)
    finally:
        remove()
        atexit.unregister(remove)


def remove_drafts(file: Path) -> None:
    """Removes a bundle's drafts of killed commands, not the draft of a running one."""
    for draft in file.parent.glob(f".{glob.escape(file.name)}.*{_DRAFT}"):
        with contextlib.suppress(OSError), draft.open("rb") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            draft.unlink()


def made_by(command: str, platform: str) -> str:
    """Returns the hint with the command for a platform, or that bundles don't support it."""
    if platform not in PLATFORMS:
        return f"bundles are for {' and '.join(PLATFORMS)}; where there is a network, ./invokew up needs none"
    return f"where there is a network, of this same checkout: {command}"


def require_fit(manifest: Manifest, file: Path) -> None:
    """Raises BadBundle if a bundle is for other code, another platform or another Python."""
    # Not at the top: wheels are extracted from a bundle before any package is installed.
    from bootstrap.bundle.version import this_version

    if manifest.platform != this_platform():
        raise BadBundle(
            f"{file} is for {manifest.platform}, and this machine is {this_platform()}",
            hint=made_by(f"./invokew bundle FILE --platform {this_platform()}", this_platform()),
        )
    if manifest.version != this_version():
        raise BadBundle(
            f"{file} is for {manifest.version}; this checkout is {this_version()}",
            # No command: the extracted checkout is run next, and the file's author may be unknown.
            hint="use the checkout that is in it; docs/sources.md, Signed bundles, has how to check it",
        )
    if this_python() not in manifest.pythons:
        raise BadBundle(
            f"{file} has packages for Python {', '.join(manifest.pythons)}, and this is {this_python()}",
            hint="name such a Python in RAYSIDE_PYTHON, or make it with ./invokew bundle FILE --python "
            f"{this_python()}",
        )
