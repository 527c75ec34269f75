"""Bundles in a registry: all of one under one tag, and its images under their own names, for nodes.

The tag derives from the bundle's code version and platform, and names the same image index as in the
bundle's file (`bundle/layout.py`).
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bootstrap.bundle import layout
from bootstrap.bundle.blobs import Blob, Blobs
from bootstrap.bundle.manifest import BUNDLED, IMAGES, Manifest, Version, parse
from bootstrap.bundle.opened import Bundle, made_by, write
from bootstrap.errors import BadBundle, NotMirrored, RegistryRefused
from bootstrap.registry.address import Address
from bootstrap.registry.oras import Oras
from rayside.errors import InvalidArgument

REPOSITORY = "rayside/bundle"
# Limit: bytes of a bundle's own manifest.
_LARGEST = 16 * 1024 * 1024
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
Report = Callable[[str], None]


@dataclass(frozen=True)
class Sent:
    """Result of an upload to a registry: bytes of contents that it had, and bytes that were sent."""

    had: int
    given: int


@dataclass(frozen=True)
class Listed:
    """A bundle in a registry; `signature` is None if it is not signed."""

    manifest: Manifest
    signature: bytes | None


def tag_of(version: Version, platform: str) -> str:
    """Returns the tag of the bundle for that code version and platform."""
    return f"{platform.replace('/', '-')}-{version.code[:32]}"


def names(manifest: Manifest, address: Address) -> list[tuple[str, str]]:
    """Returns each image's name for nodes, and its digest, as in sha256:..."""
    return [(f"{address}/{each.reference}", f"sha256:{each.manifest.digest}") for each in manifest.images]


def require(registry: Oras) -> None:
    """Checks that a registry accepts uploads to each repository of a bundle.

    Raises RegistryRefused, RegistryUnreachable.
    """
    for repository in (REPOSITORY, *(f"{BUNDLED}{name}" for name in IMAGES)):
        registry.require(repository)


def send(registry: Oras, bundle: Bundle, report: Report) -> Sent:
    """Uploads the missing contents of a bundle. Raises RegistryRefused, RegistryUnreachable, BadBundle.

    The tag comes last, so that it names only complete bundles.
    """
    manifest, signature = bundle.manifest, bundle.signature
    moved = _Moved({*manifest.blobs(), *layout.texts(manifest, signature)}, "sent", report)
    whole = _digest(layout.everything(manifest, signature))
    registry.send(bundle.archive.file, whole, REPOSITORY, moved.add)
    for image in manifest.images:
        repository, _, tag = image.reference.rpartition(":")
        report(f"naming {image.reference}")
        registry.mount(REPOSITORY, f"sha256:{image.manifest.digest}", repository, tag)
    registry.tag(REPOSITORY, whole, tag_of(manifest.version, manifest.platform))
    return Sent(moved.whole - moved.done, moved.done)


def listed(registry: Oras, version: Version, platform: str) -> Listed:
    """Fetches the manifest and signature of the bundle for that code version and platform.

    Raises NotMirrored, BadBundle, RegistryRefused, RegistryUnreachable.
    """
    tag = tag_of(version, platform)
    whole = registry.manifest(REPOSITORY, tag)
    if whole is None:
        raise NotMirrored(
            f"the registry {registry.address} has no bundle for {platform} and {version}",
            hint=made_by(f"./invokew mirror {registry.address} --platform {platform}", platform),
        )
    try:
        (digest,) = (
            each["digest"]
            for each in json.loads(whole)["manifests"]
            if each.get("artifactType") == layout.KIND
        )
        text = registry.manifest(REPOSITORY, digest) if _DIGEST.fullmatch(digest) else None
        artifact = json.loads(text or b"")
        config, size = artifact["config"], artifact["config"]["size"]
        if config["mediaType"] != layout.CONFIG or not isinstance(size, int) or not 0 < size <= _LARGEST:
            raise ValueError
        signed = artifact.get("annotations", {}).get(layout.SIGNATURE)
        signature = None if signed is None else str(signed).encode("latin-1")
        found = registry.configuration(REPOSITORY, digest, _LARGEST)
        if found is None:
            raise ValueError
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise NotMirrored(
            f"what the registry {registry.address} has as {REPOSITORY} is no bundle of Rayside's",
            hint="name another HOST/PATH: ./invokew mirror fills it",
        ) from None
    return Listed(parse(Path(f"{registry.address}/{REPOSITORY}:{tag}"), found), signature)


def require_none_lost(
    registry: Oras, version: Version, platform: str, pythons: Sequence[str], *, is_signed: bool
) -> None:
    """Checks that a bundle with these Python versions may replace the registry's bundle for that code.

    Raises InvalidArgument if the registry's has more versions, or a signature; RegistryUnreachable.
    """
    try:
        there = listed(registry, version, platform)
    except (NotMirrored, BadBundle, RegistryRefused):
        return  # An unreadable bundle is useless.
    lost = [each for each in there.manifest.pythons if each not in pythons]
    if lost:
        whole = ",".join(dict.fromkeys((*there.manifest.pythons, *pythons)))
        raise InvalidArgument(
            f"{registry.address} has a bundle for {platform}, and this one has no Python {', '.join(lost)}",
            hint=f"make it with --python {whole}, or name another HOST/PATH",
        )
    if there.signature is not None and not is_signed:
        raise InvalidArgument(
            f"{registry.address} has a signed bundle for {platform}, and this one is not signed",
            hint=f"./invokew bundle FILE --sign KEY, then ./invokew mirror {registry.address} --bundle FILE",
        )


def fetch(
    registry: Oras, bundle: Listed, file: Path, kept: Path, report: Report, *, images: bool = True
) -> None:
    """Downloads a bundle's file from a registry; `kept` is the folder of downloaded contents until then.

    Without `images` these stay in the registry. Raises RegistryRefused, RegistryUnreachable,
    LowDisk, OSError.
    """
    manifest, signature = bundle.manifest, bundle.signature
    wanted = layout.everything if images else layout.artifact
    moved = _Moved({*manifest.blobs(images=images), *layout.texts(manifest, signature)}, "fetched", report)
    # These digests are computed from the manifest: no other content of the registry is fetched.
    registry.fetch(REPOSITORY, _digest(wanted(manifest, signature)), kept, moved.add)
    report("writing")
    sign = (lambda _: signature) if signature is not None else None
    write(file, manifest, Blobs(kept / "blobs" / "sha256").read, sign=sign, images=images)
    shutil.rmtree(kept)


class _Moved:
    """Counts and reports the bytes of transferred contents."""

    def __init__(self, blobs: set[Blob], word: str, report: Report) -> None:
        self._sizes = {blob.digest[:12]: blob.size for blob in blobs}
        self.whole, self.done, self._word, self._report = sum(self._sizes.values()), 0, word, report

    def add(self, digest: str) -> None:
        """Counts the content whose digest has this prefix."""
        self.done += self._sizes.pop(digest, 0)
        self._report(f"{self._word} {self.done // 10**6} of {self.whole // 10**6} MB")


def _digest(text: bytes) -> str:
    return f"sha256:{layout.blob_of(text).digest}"
