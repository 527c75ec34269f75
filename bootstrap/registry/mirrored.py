"""Keeps a bundle in a registry: its images under their own names, and all else beside its manifest.

A bundle is found by a tag that follows from the code and the machine that it is for. What has the tag is an
artifact: its configuration is the bundle's manifest, and its layers are the contents that are in no image.
https://github.com/opencontainers/image-spec/blob/v1.1.0/manifest.md#guidelines-for-artifact-usage
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from bootstrap.bundle.archive import SIGNATURE
from bootstrap.bundle.blobs import Blob, Blobs
from bootstrap.bundle.manifest import BUNDLED, IMAGES, Image, Manifest, Version, parse
from bootstrap.bundle.opened import Bundle, made_by, write
from bootstrap.errors import BadBundle, InvalidArgument, NotMirrored, RegistryRefused
from bootstrap.registry.address import Address
from bootstrap.registry.registry import Registry

REPOSITORY = "rayside/bundle"
_KIND = "application/vnd.rayside.bundle.v1"
_MANIFEST, _CONTENT = f"{_KIND}.manifest+json", f"{_KIND}.content"
_SIGNATURE = f"{_KIND}.signature"
# So many contents are on their way at once.
_AT_ONCE = 4
# A bundle's own manifest has at most so many bytes, and a signature of minisign.
_LARGEST = {_MANIFEST: 16 * 1024 * 1024, _SIGNATURE: 4096}
Report = Callable[[str], None]
Item = TypeVar("Item")


@dataclass(frozen=True)
class Sent:
    """What filling a registry took: the contents' bytes that it had, and those that it was given."""

    had: int
    given: int


def tag_of(version: Version, platform: str) -> str:
    """Returns the tag of the bundle for that code and machine."""
    return f"{platform.replace('/', '-')}-{version.code[:32]}"


def names(manifest: Manifest, address: Address) -> list[tuple[str, str]]:
    """Returns each image by the name under which nodes pull it, and its digest, as in sha256:..."""
    return [(f"{address}/{each.reference}", f"sha256:{each.manifest.digest}") for each in manifest.images]


def places(manifest: Manifest, base: Callable[[str], str]) -> dict[Blob, list[str]]:
    """Returns the repositories that have each content; `base` makes a registry's name of ours."""
    found = _places(manifest.images, base)
    for blob in _beside_images(manifest):
        found.setdefault(blob, []).append(base(REPOSITORY))
    return found


def _places(images: Sequence[Image], base: Callable[[str], str]) -> dict[Blob, list[str]]:
    """Returns the repositories that have each content of images."""
    found: dict[Blob, list[str]] = {}
    for image in images:
        for blob in (image.config, *(layer.blob for layer in image.layers)):
            found.setdefault(blob, []).append(base(image.reference.rpartition(":")[0]))
    return {blob: list(dict.fromkeys(repositories)) for blob, repositories in found.items()}


def _beside_images(manifest: Manifest) -> list[Blob]:
    """Returns the contents that are in no image, each once."""
    folders = (each.blob for each in manifest.folders)
    return sorted({manifest.checkout, *manifest.wheels.values(), *folders})


def require(registry: Registry) -> None:
    """Asks whether a registry takes contents for each repository that a bundle has there, and sends none.

    Raises RegistryRefused, RegistryUnreachable.
    """
    own = [REPOSITORY, *(f"{BUNDLED}{name}" for name in IMAGES)]
    _side_by_side(registry, registry.require, map(registry.address.repository, own))


def send(registry: Registry, bundle: Bundle, report: Report) -> Sent:
    """Gives a registry all of a bundle that it lacks. Raises RegistryRefused, RegistryUnreachable, BadBundle.

    The tags come last: what they name is all there.
    """
    manifest, base = bundle.manifest, registry.address.repository
    own, text = base(REPOSITORY), manifest.text()
    signed = bundle.archive.text(SIGNATURE)
    texts = {_blob(each): each for each in (text, signed) if each}
    where = places(manifest, base) | {blob: [own] for blob in texts}
    sent = _given(registry, bundle, where, report, texts)
    for image in manifest.images:
        repository, _, tag = image.reference.rpartition(":")
        registry.name(base(repository), tag, b"".join(bundle.read(image.manifest)))
    registry.name(own, tag_of(manifest.version, manifest.platform), _artifact(manifest, text, signed))
    return sent


def _given(
    registry: Registry,
    bundle: Bundle,
    where: Mapping[Blob, Sequence[str]],
    report: Report,
    texts: Mapping[Blob, bytes] | None = None,
) -> Sent:
    """Gives a registry the contents that it lacks: `where` has the repositories of each.

    `texts` has those that are no content of the bundle.
    """
    texts = texts or {}
    moved = _Moved(sum(blob.size for blob in where), "sent", report)

    def give(item: tuple[Blob, Sequence[str]]) -> None:
        blob, repositories = item

        def content() -> Iterator[bytes]:
            return iter([texts[blob]]) if blob in texts else bundle.read(blob)

        known_in = ""
        for repository in repositories:
            given = 0
            if not registry.has(repository, blob):
                given = registry.send(repository, blob, content, known_in)
            known_in = repository
            moved.add(blob.size if repository == repositories[0] else 0, given)

    _side_by_side(registry, give, where.items())
    return Sent(moved.whole - moved.given, moved.given)


@dataclass(frozen=True)
class Listed:
    """A bundle as a registry has it: `signature` is None where nobody signed it."""

    manifest: Manifest
    signature: bytes | None


def listed(registry: Registry, version: Version, platform: str) -> Listed:
    """Asks for the bundle of that code and machine.

    Raises NotMirrored, BadBundle, RegistryRefused, RegistryUnreachable.
    """
    own, tag = registry.address.repository(REPOSITORY), tag_of(version, platform)
    text = registry.manifest(own, tag)
    if text is None:
        raise NotMirrored(
            f"the registry {registry.address} has no bundle for {platform} and {version}",
            hint=made_by(f"./invokew mirror {registry.address} --platform {platform}", platform),
        )
    config, signature = _parts(registry, text)
    whole = b"".join(registry.read(own, config))
    manifest = parse(Path(f"{registry.address}/{REPOSITORY}:{tag}"), whole)
    return Listed(manifest, b"".join(registry.read(own, signature)) if signature else None)


def require_none_lost(
    registry: Registry, version: Version, platform: str, pythons: Sequence[str], *, is_signed: bool
) -> None:
    """Asks whether a bundle with these Pythons may replace the one that a registry has for that code.

    Raises InvalidArgument where that one has more of them, or a signature; RegistryUnreachable.
    """
    try:
        there = listed(registry, version, platform)
    except (NotMirrored, BadBundle, RegistryRefused):
        return  # What can't be read is of no use to anybody.
    lost = [each for each in there.manifest.pythons if each not in pythons]
    if lost:
        whole = ",".join(dict.fromkeys((*there.manifest.pythons, *pythons)))
        raise InvalidArgument(
            f"{registry.address} has a bundle for {platform}, and this one has no Python {', '.join(lost)}",
            hint=f"make it with --python {whole}, or name another HOST/PATH",
        )
    if there.signature and not is_signed:
        raise InvalidArgument(
            f"{registry.address} has a signed bundle for {platform}, and this one is not signed",
            hint=f"./invokew bundle FILE --sign KEY, then ./invokew mirror {registry.address} --bundle FILE",
        )


def fetch(
    registry: Registry, bundle: Listed, file: Path, kept: Blobs, report: Report, *, layers: bool = True
) -> None:
    """Makes the bundle's file of what a registry has; `kept` holds what is there of it, until the file is.

    Without `layers` those of images stay in the registry. Raises BadBundle, RegistryRefused,
    RegistryUnreachable, OSError.
    """
    manifest = bundle.manifest
    where = places(manifest, registry.address.repository)
    for image in manifest.images:
        where[image.manifest] = [registry.address.repository(image.reference.rpartition(":")[0])]
    needed = set(manifest.blobs(layers=layers))
    where = {blob: places for blob, places in where.items() if blob in needed}
    moved = _Moved(sum(blob.size for blob in where), "fetched", report)

    def get(item: tuple[Blob, list[str]]) -> None:
        blob, (repository, *_) = item
        if not kept.has(blob):
            kept.add(_content(registry, manifest, repository, blob))
        moved.add(blob.size)

    _side_by_side(registry, get, where.items())
    report("writing")
    signature = bundle.signature
    sign = (lambda _: signature) if signature else None
    write(file, manifest, kept.read, sign=sign, layers=layers)
    kept.keep(())
    kept.folder.rmdir()


def _content(registry: Registry, manifest: Manifest, repository: str, blob: Blob) -> Iterator[bytes]:
    if blob in {image.manifest for image in manifest.images}:
        text = registry.manifest(repository, f"sha256:{blob.digest}")
        if text is None:
            raise NotMirrored(
                f"the registry {registry.address} has lost {repository}@sha256:{blob.digest[:12]}",
                hint=f"where there is a network: ./invokew mirror {registry.address}",
            )
        return iter([text])
    return registry.read(repository, blob)


def _side_by_side(registry: Registry, action: Callable[[Item], None], items: Iterable[Item]) -> None:
    """Does it for all, several at once; after the first failure nobody waits for the others."""
    waiting = deque(items)
    ended: queue.Queue[BaseException | None] = queue.Queue()

    def work() -> None:
        try:
            while (item := take()) is not None:
                action(item)
            ended.put(None)
        except BaseException as error:  # It is raised below.
            ended.put(error)

    def take() -> Item | None:
        # Only of this: what the action raises is a failure, whatever it is.
        with contextlib.suppress(IndexError):
            return waiting.popleft()
        return None

    for number in range(_AT_ONCE):
        threading.Thread(target=work, daemon=True, name=f"registry-{number}").start()
    for _ in range(_AT_ONCE):
        if (failure := ended.get()) is not None:
            waiting.clear()
            registry.end()
            raise failure


class _Moved:
    """Counts bytes, and says how many there are."""

    def __init__(self, whole: int, word: str, report: Report) -> None:
        self.whole, self.given, self._done, self._told = whole, 0, 0, 0
        self._word, self._report, self._lock = word, report, threading.Lock()

    def add(self, size: int, given: int = 0) -> None:
        with self._lock:
            self._done += size
            self.given += given
            if self._done - self._told >= 10**7 or self._done == self.whole:
                self._told = self._done
                self._report(f"{self._word} {self._done // 10**6} of {self.whole // 10**6} MB")


def _blob(text: bytes) -> Blob:
    return Blob(hashlib.sha256(text).hexdigest(), len(text))


def _artifact(manifest: Manifest, text: bytes, signed: bytes | None) -> bytes:
    """Returns what a registry has under the bundle's tag."""
    layers = [_descriptor(_CONTENT, blob) for blob in _beside_images(manifest)]
    layers += [_descriptor(_SIGNATURE, _blob(signed))] if signed else []
    document = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "artifactType": _KIND,
        "config": _descriptor(_MANIFEST, _blob(text)),
        "layers": layers,
    }
    return json.dumps(document, indent=1).encode()


def _descriptor(media_type: str, blob: Blob) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": f"sha256:{blob.digest}", "size": blob.size}


def _parts(registry: Registry, text: bytes) -> tuple[Blob, Blob | None]:
    """Returns the blobs of a bundle's manifest and of its signature, as a registry names them."""
    try:
        document = json.loads(text)
        config = _named(document["config"], _MANIFEST)
        signed = [_named(each, _SIGNATURE) for each in document["layers"] if each["mediaType"] == _SIGNATURE]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise NotMirrored(
            f"what the registry {registry.address} has as {REPOSITORY} is no bundle of Rayside's",
            hint="name another HOST/PATH: ./invokew mirror fills it",
        ) from None
    return config, signed[0] if signed else None


def _named(descriptor: dict[str, Any], media_type: str) -> Blob:
    digest, size = str(descriptor["digest"]).removeprefix("sha256:"), descriptor["size"]
    is_digest = len(digest) == 64 and not set(digest) - set("0123456789abcdef")
    is_size = isinstance(size, int) and not isinstance(size, bool) and 0 < size <= _LARGEST[media_type]
    if descriptor["mediaType"] != media_type or not is_digest or not is_size:
        raise ValueError
    return Blob(digest, size)
