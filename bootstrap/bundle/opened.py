"""Opens a bundle, and refuses one that is not whole, or not for this code and this machine."""

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
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from bootstrap.bundle import archive, layout
from bootstrap.bundle.archive import INDEX, LAYOUT, MANIFEST, SIGNATURE, Archive
from bootstrap.bundle.blobs import Blob
from bootstrap.bundle.manifest import Manifest, parse
from bootstrap.errors import BadBundle

# What images call the machines that a bundle is made for.
PLATFORMS = ("linux/amd64", "linux/arm64")
# What a file is called that is not whole yet.
_DRAFT = ".part"
# The kernel's names of machines, and those that images have for them.
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def this_platform() -> str:
    """Returns what images call this machine, as in linux/amd64."""
    machine = platform.machine().lower()
    return f"{sys.platform}/{_ARCHITECTURES.get(machine, machine)}"


def this_python() -> str:
    """Returns this Python's version, as in 3.11."""
    return "{}.{}".format(*sys.version_info)


def path_of(given: str) -> Path:
    """Returns the path that a user has given. Raises BadBundle where it names a user who is not there."""
    try:
        return Path(given).expanduser().absolute()
    except RuntimeError as error:
        raise BadBundle(f"{given}: {error}", hint="correct the path") from None


@dataclass(frozen=True)
class Bundle:
    """A bundle's file, and what it says that is in it; `require_whole` says whether that is true."""

    archive: Archive
    manifest: Manifest

    @classmethod
    def of(cls, file: Path) -> Bundle:
        """Reads the manifest, and the names of all that follows. Raises BadBundle."""
        try:
            opened = Archive.of(file)
            text = opened.text(MANIFEST)
        except OSError as error:
            raise BadBundle(f"{file} can't be read: {error.strerror}", hint="correct the path") from None
        assert text is not None  # `Archive.of` refuses a file without
        return cls(opened, parse(file, text))

    @classmethod
    def difference(cls, file: Path, earlier: Bundle) -> Bundle:
        """Opens the difference to an earlier bundle.

        Raises BadBundle where it is none, or to another one, or lacks what the earlier one has not either.
        """
        bundle = cls.of(file)
        if bundle.manifest.since != earlier.manifest.digest:
            raise BadBundle(
                f"{file} is not the difference to {earlier.archive.file}",
                hint="./invokew bundle FILE --inspect says which bundle a file is, and is the difference to",
            )
        had = set(earlier.manifest.blobs())
        lacks = [blob for blob in bundle.manifest.blobs() if blob not in had and not bundle.archive.has(blob)]
        if lacks:
            raise BadBundle(
                f"{file} is not whole: neither it nor {earlier.archive.file} is to have {lacks[0].name}",
                hint="get the difference anew from where it was made",
            )
        return bundle

    def blobs(self, *, layers: bool = True) -> list[Blob]:
        """Returns those that the file itself has to have, each once; `layers` are those of images.

        Of a difference it returns those that are there: what it lacks, only `difference` can say.
        """
        blobs = set(self.manifest.blobs(layers=layers))
        return sorted(filter(self.archive.has, blobs) if self.manifest.since else blobs)

    def require_whole(self, report: Callable[[str], None] = lambda _: None, *, layers: bool = True) -> None:
        """Reads what `blobs` lists. Raises BadBundle where a byte is lacking or is another one, OSError."""
        archive, manifest = self.archive, self.manifest
        expected = {LAYOUT: layout.LAYOUT, INDEX: layout.index(manifest.images, manifest.platform)}
        odd = [name for name, text in expected.items() if archive.text(name) != text]
        known = {blob.name for blob in manifest.blobs()} | {MANIFEST, SIGNATURE, *expected}
        if odd := odd or [name for name in archive.members if name not in known]:
            raise BadBundle(
                f"{archive.file} was changed since it was made: {odd[0]} is not what the manifest says",
                hint="get the file anew from where it was made",
            )
        blobs = self.blobs(layers=layers)
        whole, done, told = sum(blob.size for blob in blobs), 0, 0

        def count(size: int) -> None:
            nonlocal done, told
            done += size
            if done - told >= 100 * 10**6:
                told = done
                report(f"checked {done // 10**6} of {whole // 10**6} MB")

        self.archive.check(blobs, count)

    def read(self, blob: Blob) -> Iterator[bytes]:
        """Yields a content; its last piece comes once the whole is right. Raises BadBundle, OSError."""
        return self.archive.read(blob)


def write(
    file: Path,
    manifest: Manifest,
    read: Callable[[Blob], Iterator[bytes]],
    earlier: Manifest | None = None,
    sign: Callable[[Manifest], bytes] | None = None,
    *,
    layers: bool = True,
) -> None:
    """Writes a bundle, or its difference to an earlier one; the file is there once it is whole.

    `read` yields a content, and `sign` returns a manifest's signature. Without `layers` it lacks those of
    images. Raises OSError, and what both raise.
    """
    blobs, whole = set(manifest.blobs(layers=layers)), manifest
    if earlier:
        manifest, blobs = replace(manifest, since=earlier.digest), blobs - set(earlier.blobs())
    texts = {MANIFEST: manifest.text()}
    if sign:
        texts[SIGNATURE] = sign(whole)
    texts[LAYOUT] = layout.LAYOUT
    texts[INDEX] = layout.index(manifest.images, manifest.platform)
    remove_drafts(file)
    # Nobody else may have made a file of that name, or a link.
    descriptor, name = tempfile.mkstemp(prefix=f".{file.name}.", suffix=_DRAFT, dir=file.parent)
    remove = partial(Path(name).unlink, missing_ok=True)
    # After Ctrl-C the thread that writes ends with the process, and tidies up nothing.
    atexit.register(remove)
    try:
        with os.fdopen(descriptor, "wb") as target:
            fcntl.flock(target, fcntl.LOCK_EX)
            archive.write(target, texts, list(blobs), read)
            target.flush()
            os.fchmod(target.fileno(), 0o644)
            # After a power failure the name would else be there, and the content not.
            os.fsync(target.fileno())
            Path(name).replace(file)
    finally:
        remove()
        atexit.unregister(remove)


def remove_drafts(file: Path) -> None:
    """Removes what killed commands have left of a bundle; what another one still writes stays."""
    for draft in file.parent.glob(f".{glob.escape(file.name)}.*{_DRAFT}"):
        with contextlib.suppress(OSError), draft.open("rb") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            draft.unlink()


def require_complete(manifest: Manifest, file: Path) -> None:
    """Raises BadBundle where a bundle is only the difference to another one."""
    if manifest.since:
        raise BadBundle(
            f"{file} is only the difference to an earlier bundle, {manifest.since[:12]}",
            hint=f"make a whole one of both: ./invokew bundle FILE --since EARLIER --join {file}",
        )


def made_by(command: str, platform: str) -> str:
    """Returns the hint that a command makes what there is not for a platform, or that nothing does."""
    if platform not in PLATFORMS:
        return f"bundles are for {' and '.join(PLATFORMS)}; where there is a network, ./invokew up needs none"
    return f"where there is a network, of this same checkout: {command}"


def require_fit(manifest: Manifest, file: Path) -> None:
    """Raises BadBundle where a bundle is for other code, another machine or another Python than these."""
    # Not at the top: wheels are taken out of a bundle before there are any packages.
    from bootstrap.bundle.version import this_version

    require_complete(manifest, file)
    if manifest.platform != this_platform():
        raise BadBundle(
            f"{file} is for {manifest.platform}, and this machine is {this_platform()}",
            hint=made_by(f"./invokew bundle FILE --platform {this_platform()}", this_platform()),
        )
    if manifest.version != this_version():
        raise BadBundle(
            f"{file} is for {manifest.version}; this checkout is {this_version()}",
            hint=f"use the checkout that is in it: tar -xOf {file} {manifest.checkout.name} | tar -x",
        )
    if this_python() not in manifest.pythons:
        raise BadBundle(
            f"{file} has packages for Python {', '.join(manifest.pythons)}, and this is {this_python()}",
            hint="name such a Python in RAYSIDE_PYTHON, or make it with ./invokew bundle FILE --python "
            f"{this_python()}",
        )
