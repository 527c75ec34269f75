"""Sources `bundle` and `mirror`: take everything from one file, which was made on a machine with network.

Source `mirror` first fetches that file from a registry, which `./invokew mirror` filled.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bootstrap import cache, docker_engine
from bootstrap.bundle.images import unpacked
from bootstrap.bundle.manifest import Folder, Image
from bootstrap.bundle.packed import unpack
from bootstrap.bundle.signature import public_key
from bootstrap.errors import ImageMissing
from bootstrap.settings import ROOT, Settings
from bootstrap.sources.bundle_origin import for_nodes, named
from bootstrap.sources.checked_bundle import BundleRecord, CheckedBundle, FetchedBundle, full, space
from bootstrap.sources.registry_client import RegistryClient
from bootstrap.sources.source import Archives, Source, supply
from rayside.errors import CommandFailed
from rayside.steps.step import Report, Status, missing, ready
from rayside.system.shell import Shell

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
    """Returns the source for the bundle in the settings, or else in `record`.

    `is_for_later`: nothing is recorded, as there is no cluster. `nodes_pull`: images stay in a mirror that
    nodes reach.

    Raises BadBundle if it is no bundle, InvalidSetting if none is named, and errors of registries.
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
class BundledFolder:
    """A program, or KubeRay's manifests, in this bundle's own folder in the cache."""

    bundle: CheckedBundle
    folder: Folder
    cache_folder: Path
    needs: tuple[str, ...] = ("bundle", "bundle-record")

    @property
    def name(self) -> str:
        # The name of the step in the other sources.
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
        with space(self.place), cache.making(self.place, report) as draft:
            if draft:
                content = self.bundle.opened().read(self.folder.blob)
                unpack(unpacked(content, self.folder.size), draft)


@dataclass(frozen=True)
class BundledWheels:
    """The wheels of all lock files of a cluster, for pip."""

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
        with space(self.folder), cache.making(self.folder, report) as draft:
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
        # Not by its id, which depends on the engine's image store.
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
                raise full(self.image.reference) from None
            raise ImageMissing(
                f"{self.image.reference} could not be loaded\n{error.message}",
                hint="./invokew up tries again",
            ) from None
