"""Sources `bundle` and `mirror` take everything out of one file, which was made where a network is.

Source `mirror` has that file from a registry first, which `./invokew mirror` filled.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from bootstrap import cache, docker_engine
from bootstrap.bundle.blobs import Blobs
from bootstrap.bundle.images import unpacked
from bootstrap.bundle.manifest import Folder, Image, Manifest, parse
from bootstrap.bundle.opened import Bundle, path_of, require_fit, this_platform
from bootstrap.bundle.packed import unpack
from bootstrap.bundle.signature import public_key, require_signature, require_signed
from bootstrap.bundle.version import this_version
from bootstrap.errors import BadBundle, CommandFailed, ImageMissing, InvalidSetting, LowDisk, NotMirrored
from bootstrap.lock import alone
from bootstrap.private_file import write_private
from bootstrap.registry.address import parse as parse_address
from bootstrap.registry.mirror import mirror_of
from bootstrap.registry.mirrored import fetch, listed
from bootstrap.settings import ROOT, Settings
from bootstrap.shell import Shell
from bootstrap.sources.source import Archives, Source, supply
from bootstrap.step import Report, Status, missing, ready

# A cluster's folder keeps there which bundle it was made of.
RECORD = "bundle.json"
_PROGRAMS = {
    "kind": "kind",
    "kubectl": "kubectl",
    "kubectl-ray": "KubeRay's kubectl plugin",
    "door": "front door of a workshop",
}
_TITLES = {**_PROGRAMS, "kuberay": "KubeRay's manifests"}


def bundled(
    settings: Settings, record: Path, shell: Shell, *, is_for_later: bool = False, nodes_pull: bool = False
) -> Source:
    """Returns the source of the bundle that the settings name, or else of the one that `record` has.

    `is_for_later`: nothing is recorded, for there is no cluster. `nodes_pull`: the layers of images stay in a
    mirror that nodes reach.

    Raises BadBundle where it is no bundle, InvalidSetting where there is none, and what a registry raises.
    """
    origin = _named(settings, record, nodes_pull=nodes_pull)
    manifest = origin.manifest
    key = public_key(settings.bundle_key) if settings.bundle_key else b""
    folder = settings.cache_folder / f"bundle-{manifest.digest[:24]}"
    fetched = [FetchedBundle(settings, origin, key)] if origin.mirror else []
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
        registry=_for_nodes(origin.mirror),
    )


@dataclass(frozen=True)
class Origin:
    """Which bundle it is, and where: in `file`, and of source `mirror` in the registry `mirror` before.

    The file lacks the layers of images where it has no `layers`.
    """

    file: Path
    manifest: Manifest
    mirror: str = ""
    layers: bool = True

    @classmethod
    def mirrored(cls, settings: Settings, *, layers: bool) -> Origin:
        """Asks the mirror for the bundle of this code and machine. Raises what a registry does."""
        bundle = listed(mirror_of(settings), this_version(), this_platform())
        # It is signed or not, and by whom, apart from its contents.
        signed = hashlib.sha256(bundle.signature or b"").hexdigest()[:8]
        lacks = "" if layers else "-without-layers"
        name = f"mirrored-{bundle.manifest.digest[:24]}-{signed}{lacks}"
        return cls(settings.cache_folder / name, bundle.manifest, settings.mirror, layers)

    @property
    def text(self) -> str:
        """Returns what a cluster's folder keeps of it."""
        document: dict[str, str | bool] = {"file": str(self.file), "manifest": self.manifest.text().decode()}
        if self.mirror:
            document["mirror"] = self.mirror
        if not self.layers:
            document["layers"] = False
        return json.dumps(document)


def _for_nodes(mirror: str) -> str:
    """Returns the registry where nodes reach it: on this machine's loopback address nobody else does."""
    return "" if not mirror or parse_address(mirror).is_loopback else mirror


def _named(settings: Settings, record: Path, *, nodes_pull: bool) -> Origin:
    """Returns the bundle that the settings name, where it fits; else the one that the record has."""
    if settings.bundle:
        file = path_of(settings.bundle)
        origin = Origin(file, Bundle.of(file).manifest)
    elif settings.mirror and settings.source == "mirror":
        recorded = _recorded(record) if record.exists() else None
        # The registry is asked once for each code: a command that only looks is not kept waiting for it.
        if recorded and recorded.mirror == settings.mirror and recorded.manifest.version == this_version():
            return recorded
        origin = Origin.mirrored(settings, layers=not (nodes_pull and _for_nodes(settings.mirror)))
    elif record.exists():
        return _recorded(record)
    else:
        named = "mirror REGISTRY" if settings.source == "mirror" else "bundle FILE"
        raise InvalidSetting(
            f"source is {settings.source}, and none is named",
            hint=f"./invokew up --{named}; ./invokew {named} fills it",
        )
    # Before anything else, a folder for the cluster's files too.
    require_fit(origin.manifest, origin.file)
    return origin


def _recorded(record: Path) -> Origin:
    try:
        document = json.loads(record.read_text())
        manifest = parse(record, document["manifest"].encode())
        mirror, layers = str(document.get("mirror", "")), bool(document.get("layers", True))
        return Origin(Path(document["file"]), manifest, mirror, layers)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InvalidSetting(f"{record} can't be read", hint="./invokew up --bundle FILE") from None


@dataclass(frozen=True)
class FetchedBundle:
    """The bundle's file is here, from a registry."""

    settings: Settings
    origin: Origin
    # As that of CheckedBundle.
    key: bytes = b""
    name: str = "mirror"
    needs: tuple[str, ...] = ("disk",)

    @property
    def title(self) -> str:
        return f"bundle of the registry {self.origin.mirror}"

    def check(self) -> Status:
        return ready(str(self.origin.file)) if self._is_here() else missing("not fetched yet")

    def apply(self, report: Report) -> None:
        """Fetches what of it is not here yet.

        Raises BadBundle where it is not signed as it has to be, NotMirrored, LowDisk, what a registry does.
        """
        file, manifest = self.origin.file, self.origin.manifest
        guard = file.with_name(f"{file.name}.lock")
        with alone(guard, lambda: report("another command fetches it: waiting")), _space(file):
            kept = Blobs(file.with_name(f"{file.name}-blobs"))
            if self._is_here():
                kept.keep(())
                return
            registry = mirror_of(replace(self.settings, mirror=self.origin.mirror), report)
            bundle = listed(registry, manifest.version, manifest.platform)
            if bundle.manifest != manifest:
                raise NotMirrored(
                    f"the registry {self.origin.mirror} has another bundle by now",
                    hint=f"./invokew up --mirror {self.origin.mirror} takes that one",
                )
            if self.key:
                require_signature(self.origin.mirror, bundle.signature, manifest.text(), self.key)
            fetch(registry, bundle, file, kept, report, layers=self.origin.layers)

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
    key: bytes = b""
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
        """Reads what it is for, and who signed it. Raises BadBundle where that is not as it has to be."""
        require_fit(self.manifest, self.file)
        if self.key and self.file.exists():
            require_signed(self.opened().archive, self.manifest.text(), self.key)
        # A cluster that is made of it does not need the file any more.
        is_known = _has(self._stamp, self._seen) or _has(self.record, self.text)
        return ready(f"{self.file}, {self.manifest.version}") if is_known else missing("not checked yet")

    def apply(self, report: Report) -> None:
        """Reads all of it, once for the same file: what is taken out is checked again. Raises BadBundle."""
        try:
            self.opened().require_whole(report, layers=self.origin.layers)
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
