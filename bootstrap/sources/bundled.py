"""Sources `bundle` and `mirror` take everything out of one file, which was made where a network is.

Source `mirror` has that file from a registry first, which `./invokew mirror` filled.
"""

from __future__ import annotations

import contextlib
import errno
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from bootstrap import cache, docker_engine
from bootstrap.bundle.images import unpacked
from bootstrap.bundle.manifest import Folder, Image, Manifest
from bootstrap.bundle.opened import Bundle, require_fit
from bootstrap.bundle.packed import unpack
from bootstrap.bundle.signature import public_key
from bootstrap.errors import BadBundle, ImageMissing, LowDisk, NotMirrored
from bootstrap.lock import alone
from bootstrap.registry.mirrored import fetch, listed
from bootstrap.settings import ROOT, Settings
from bootstrap.shell import Shell
from bootstrap.sources.bundle_origin import Origin, for_nodes, named
from bootstrap.sources.registry_client import RegistryClient
from bootstrap.sources.source import Archives, Source, supply
from bootstrap.step import Condition, Report, Status, missing, ready
from rayside.errors import CommandFailed
from rayside.private_file import write_private

_PROGRAMS = {
    "kind": "kind",
    "kubectl": "kubectl",
    "kubectl-ray": "KubeRay's kubectl plugin",
    "oras": "the registry client",
    "door": "front door of a workshop",
}
_TITLES = {**_PROGRAMS, "kuberay": "KubeRay's manifests"}


def bundled(
    settings: Settings, record: Path, shell: Shell, *, is_for_later: bool = False, nodes_pull: bool = False
) -> Source:
    """Returns the source of the bundle that the settings name, or else of the one that `record` has.

    `is_for_later`: nothing is recorded, for there is no cluster. `nodes_pull`: images stay in a mirror that
    nodes reach.

    Raises BadBundle where it is no bundle, InvalidSetting where there is none, and what a registry raises.
    """
    key = public_key(settings.bundle_key) if settings.bundle_key else ""
    client = RegistryClient(settings, shell)
    origin = named(settings, record, key, client, nodes_pull=nodes_pull)
    manifest = origin.manifest
    folder = settings.cache_folder / f"bundle-{manifest.digest[:24]}"
    fetched = [FetchedBundle(client, origin)] if origin.mirror else []
    needs = ("disk", *(step.name for step in fetched))
    checked = CheckedBundle(origin, record, folder, key, needs=needs)
    folders = [BundledFolder(checked, each, folder) for each in manifest.folders]
    images = [BundledImage(shell, checked, each) for each in manifest.images]
    wheels = BundledWheels(checked, folder)
    records = [] if is_for_later else [BundleRecord(checked, record)]
    platform = manifest.platform
    supplies = (
        supply(wheels, "wheel", wheels.folder),
        *(
            supply(
                each,
                "program" if each.folder.name in _PROGRAMS else "manifest",
                each.meant,
                name=each.folder.name,
                digest=f"sha256:{each.folder.blob.digest}",
                platform=platform,
            )
            for each in folders
        ),
        *(
            supply(
                *(each, "image", each.image.reference),
                name=each.image.name,
                digest=f"sha256:{each.image.manifest.digest}",
                platform=platform,
            )
            for each in images
        ),
    )
    ids = {image.reference: image.id for image in manifest.images}
    return Source(
        "mirror" if origin.mirror else "bundle",
        supplies,
        (*fetched, checked, *records, wheels, *folders, *images),
        archives=Archives(ids, checked.command),
        wheels=wheels.folder,
        registry=for_nodes(origin.mirror),
    )


@dataclass(frozen=True)
class FetchedBundle:
    """The bundle's file is here, from a registry."""

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
        """Fetches what of it is not here yet.

        Raises NotMirrored, LowDisk, and what a registry does.
        """
        file, manifest = self.origin.file, self.origin.manifest
        guard = file.with_name(f"{file.name}.lock")
        with alone(guard, lambda: report("another command fetches it: waiting")), _space(file):
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
        """Returns whether that bundle is there: what a power failure left may be none."""
        try:
            return self.origin.file.exists() and Bundle.of(self.origin.file).manifest == self.origin.manifest
        except BadBundle:
            return False


@dataclass(frozen=True)
class CheckedBundle:
    """The file is whole, for this code and this machine, and the cluster's folder has a record of it."""

    origin: Origin
    record: Path
    # What is taken out of it goes there, too.
    cache_folder: Path
    # Who has this key of minisign has to have signed it; anybody may have made it where it is empty.
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
        """Reads who signed it, and what it is for. Raises BadBundle where that is not as it has to be.

        The record has its signature, too: a key that was set later counts where the file has gone.
        """
        self.origin.require_signed(self.key)
        require_fit(self.manifest, self.file)
        # A cluster that is made of it does not need the file any more.
        is_known = _has(self._stamp, self._seen) or _has(self.record, self.text)
        return ready(f"{self.file}, {self.manifest.version}") if is_known else missing("not checked yet")

    def apply(self, report: Report) -> None:
        """Reads all of it, once for the same file: what is taken out is checked again. Raises BadBundle."""
        try:
            self.opened().require_whole(report, images=self.origin.images)
        except BadBundle:
            # What a registry gave is fetched anew, as after the power failed.
            if self.origin.mirror:
                self.file.unlink(missing_ok=True)
            raise
        with _space(self._stamp):
            self._stamp.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_private(self._stamp, self._seen)

    def opened(self) -> Bundle:
        """Returns the bundle, for its contents. Raises BadBundle where another file is there by now."""
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
        """Returns the command that writes images as `docker load` reads them."""
        self.opened()
        names = {image.reference: image.name for image in self.manifest.images}
        chosen = [names[reference] for reference in references]
        return [sys.executable, "-m", "bootstrap.bundle.export", self.file, self.manifest.digest, *chosen]

    @property
    def _stamp(self) -> Path:
        return self.cache_folder / "whole"

    @property
    def _seen(self) -> str:
        """Returns what tells the file that was read from another: empty where it is no longer there."""
        try:
            status = self.file.stat()
        except OSError:
            return ""
        return f"{self.file} {status.st_size} {status.st_mtime_ns}"

    @cached_property
    def text(self) -> str:
        """Returns what a cluster's folder keeps of it."""
        return self.origin.text


@dataclass(frozen=True)
class BundleRecord:
    """The cluster's folder says which bundle it is made of, for the commands that follow."""

    bundle: CheckedBundle
    file: Path
    name: str = "bundle-record"
    title: str = "record of the bundle"
    needs: tuple[str, ...] = ("bundle", "state-folder")

    def check(self) -> Status:
        return ready(str(self.file)) if _has(self.file, self.bundle.text) else missing("not written yet")

    def apply(self, report: Report) -> None:
        write_private(self.file, self.bundle.text)


@dataclass(frozen=True)
class BundledFolder:
    """A program, or KubeRay's manifests, in a folder of this bundle's own in the cache."""

    bundle: CheckedBundle
    folder: Folder
    cache_folder: Path
    needs: tuple[str, ...] = ("bundle", "bundle-record")

    @property
    def name(self) -> str:
        # As the other sources call the step that brings them.
        return "kuberay-manifests" if self.folder.name == "kuberay" else self.folder.name

    @property
    def title(self) -> str:
        return _TITLES[self.folder.name]

    @property
    def place(self) -> Path:
        return self.cache_folder / self.folder.name

    @property
    def meant(self) -> Path:
        """Returns the path of the program, or of the folder of manifests."""
        return self.place / self.folder.path

    def check(self) -> Status:
        return ready(str(self.place)) if self.place.exists() else missing("not taken from the bundle yet")

    def apply(self, report: Report) -> None:
        """Unpacks it. Raises BadBundle, LowDisk."""
        with _space(self.place), cache.making(self.place, report) as draft:
            if draft:
                content = self.bundle.opened().read(self.folder.blob)
                unpack(unpacked(content, self.folder.size), draft)


@dataclass(frozen=True)
class BundledWheels:
    """The wheels of all lock files that a cluster is made by, for pip."""

    bundle: CheckedBundle
    cache_folder: Path
    name: str = "wheels"
    title: str = "Python packages"
    needs: tuple[str, ...] = ("bundle", "bundle-record")

    @property
    def folder(self) -> Path:
        return self.cache_folder / "wheels"

    def check(self) -> Status:
        return ready(str(self.folder)) if self.folder.exists() else missing("not taken from the bundle yet")

    def apply(self, report: Report) -> None:
        """Writes them. Raises BadBundle, LowDisk."""
        with _space(self.folder), cache.making(self.folder, report) as draft:
            if draft:
                bundle = self.bundle.opened()
                for name, blob in bundle.manifest.wheels.items():
                    with (draft / name).open("wb") as file:
                        file.writelines(bundle.read(blob))


@dataclass(frozen=True)
class BundledImage:
    """An image in the Docker engine, by its configuration: no other image has its name."""

    shell: Shell
    bundle: CheckedBundle
    image: Image
    needs: tuple[str, ...] = ("engine", "bundle", "bundle-record")

    @property
    def name(self) -> str:
        return f"{self.image.name}-image"

    @property
    def title(self) -> str:
        return f"image {self.image.reference}"

    def check(self) -> Status:
        with docker_engine.connected() as client:
            there = docker_engine.image(client, self.image.reference)
        # Not by its id: what an engine calls so depends on where it keeps its images.
        layers = [f"sha256:{layer.diff_id}" for layer in self.image.layers]
        if there is None or there["RootFS"]["Layers"] != layers:
            return missing(f"{self.image.reference} is not in the Docker engine yet")
        return ready(self.image.reference)

    def apply(self, report: Report) -> None:
        """Loads it. Raises BadBundle, ImageMissing, LowDisk."""
        report("loading it into the Docker engine")
        feed = self.bundle.command([self.image.reference])
        try:
            self.shell.run(["docker", "load", "--quiet"], feed=feed, cwd=ROOT, on_line=report)
        except CommandFailed as error:
            if "no space left" in error.message.lower():
                raise _full(self.image.reference) from None
            raise ImageMissing(
                f"{self.image.reference} could not be loaded\n{error.message}",
                hint="./invokew up tries again",
            ) from None


def _has(file: Path, text: str) -> bool:
    try:
        return bool(text) and file.read_text() == text
    except OSError:
        return False


@contextlib.contextmanager
def _space(place: Path) -> Iterator[None]:
    """Says so where the disk fills up."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise _full(str(place)) from None


def _full(what: str) -> LowDisk:
    return LowDisk(
        f"the disk filled up while {what} was taken out of the bundle",
        hint="free some, then run it again: it goes on from there",
    )
