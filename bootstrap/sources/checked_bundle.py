"""Steps for a cluster's bundle: fetched from a mirror, checked, and recorded."""

from __future__ import annotations

import contextlib
import errno
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from bootstrap.bundle.manifest import Manifest
from bootstrap.bundle.opened import Bundle, require_fit
from bootstrap.errors import BadBundle, LowDisk, NotMirrored
from bootstrap.registry.mirrored import fetch, listed
from bootstrap.sources.bundle_origin import Origin
from bootstrap.sources.registry_client import RegistryClient
from rayside.private_file import write_private
from rayside.steps.step import Condition, Report, Status, missing, ready
from rayside.system.lock import alone


@dataclass(frozen=True)
class FetchedBundle:
    """The bundle's file is fetched from a registry."""

    client: RegistryClient
    origin: Origin
    name: str = "mirror"
    needs: tuple[str, ...] = ("disk",)

    @property
    def title(self) -> str:
        return f"bundle of the registry {self.origin.mirror}"

    def check(self) -> Status:
        return ready(str(self.origin.file)) if self._is_here() else missing("not fetched yet")

    def apply(self, report: Report) -> None:
        """Fetches the missing parts of the file.

        Raises NotMirrored, LowDisk, and errors of registries.
        """
        file, manifest = self.origin.file, self.origin.manifest
        guard = file.with_name(f"{file.name}.lock")
        with alone(guard, lambda: report("another command fetches it: waiting")), space(file):
            kept = file.with_name(f"{file.name}-layout")
            if self._is_here():
                shutil.rmtree(kept, ignore_errors=True)
                return
            if self.client.check().condition is Condition.MISSING:
                self.client.apply(report)
            settings = replace(self.client.settings, mirror=self.origin.mirror)
            registry = replace(self.client, settings=settings).mirror
            bundle = listed(registry, manifest.version, manifest.platform)
            if (bundle.manifest, bundle.signature) != (manifest, self.origin.signature):
                raise NotMirrored(
                    f"the registry {self.origin.mirror} has another bundle by now",
                    hint=f"./invokew up --mirror {self.origin.mirror} takes that one",
                )
            fetch(registry, bundle, file, kept, report, images=self.origin.images)

    def _is_here(self) -> bool:
        """Returns whether the file is that bundle: after a power failure it may be invalid."""
        try:
            return self.origin.file.exists() and Bundle.of(self.origin.file).manifest == self.origin.manifest
        except BadBundle:
            return False


@dataclass(frozen=True)
class CheckedBundle:
    """The bundle's file is complete, and fits this code and machine."""

    origin: Origin
    record: Path
    # Folder in the cache, also for extracted contents.
    cache_folder: Path
    # minisign public key for which it must have a signature; empty: none is required.
    key: str = ""
    name: str = "bundle"
    title: str = "bundle"
    needs: tuple[str, ...] = ("disk",)

    @property
    def file(self) -> Path:
        return self.origin.file

    @property
    def manifest(self) -> Manifest:
        return self.origin.manifest

    def check(self) -> Status:
        """Checks its signature and version. Raises BadBundle if one is wrong.

        The record has the signature, too: a key that was set later is checked even without the file.
        """
        self.origin.require_signed(self.key)
        require_fit(self.manifest, self.file)
        # A cluster that was made from it no longer needs the file.
        is_known = _has(self._stamp, self._seen) or _has(self.record, self.text)
        return ready(f"{self.file}, {self.manifest.version}") if is_known else missing("not checked yet")

    def apply(self, report: Report) -> None:
        """Verifies the file once; extracted contents are verified again. Raises BadBundle."""
        try:
            self.opened().require_whole(report, images=self.origin.images)
        except BadBundle:
            # A file from a registry is fetched again, as after a power failure.
            if self.origin.mirror:
                self.file.unlink(missing_ok=True)
            raise
        with space(self._stamp):
            self._stamp.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_private(self._stamp, self._seen)

    def opened(self) -> Bundle:
        """Opens the bundle, for its contents. Raises BadBundle if the file is gone, or another bundle."""
        if not self.file.exists():
            named = f"mirror {self.origin.mirror}" if self.origin.mirror else "bundle FILE"
            raise BadBundle(f"{self.file} is no longer there", hint=f"./invokew up --{named}")
        bundle = Bundle.of(self.file)
        if bundle.manifest != self.manifest:
            raise BadBundle(
                f"{self.file} is another bundle than the one that the cluster is made of",
                hint="./invokew up --bundle FILE names the file",
            )
        return bundle

    def command(self, references: Sequence[str]) -> list[str | Path]:
        """Returns the command that writes images in the format of `docker load`."""
        self.opened()
        names = {image.reference: image.name for image in self.manifest.images}
        chosen = [names[reference] for reference in references]
        return [sys.executable, "-m", "bootstrap.bundle.export", self.file, self.manifest.digest, *chosen]

    @property
    def _stamp(self) -> Path:
        return self.cache_folder / "whole"

    @property
    def _seen(self) -> str:
        """Returns the file's path, size and time, to recognize a verified file; empty if it is gone."""
        try:
            status = self.file.stat()
        except OSError:
            return ""
        return f"{self.file} {status.st_size} {status.st_mtime_ns}"

    @cached_property
    def text(self) -> str:
        """Returns its record for a cluster's folder."""
        return self.origin.text


@dataclass(frozen=True)
class BundleRecord:
    """The cluster's folder records its bundle, for later commands."""

    bundle: CheckedBundle
    file: Path
    name: str = "bundle-record"
    title: str = "record of the bundle"
    needs: tuple[str, ...] = ("bundle", "state-folder")

    def check(self) -> Status:
        return ready(str(self.file)) if _has(self.file, self.bundle.text) else missing("not written yet")

    def apply(self, report: Report) -> None:
        write_private(self.file, self.bundle.text)


def _has(file: Path, text: str) -> bool:
    try:
        return bool(text) and file.read_text() == text
    except OSError:
        return False


@contextlib.contextmanager
def space(place: Path) -> Iterator[None]:
    """Raises LowDisk if the disk is full."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise full(str(place)) from None


def full(what: str) -> LowDisk:
    return LowDisk(
        f"the disk filled up while {what} was taken out of the bundle",
        hint="free some, then run it again: it goes on from there",
    )
