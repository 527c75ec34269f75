"""Manifest of a bundle: its code version and platform, and the digests of its contents.

A manifest is untrusted input. Each field is checked against the format of our own `bundle`: no name in it
can lead out of a folder, or be the name of a foreign image.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from bootstrap.bundle.blobs import Blob
from bootstrap.errors import BadBundle

FORMAT = "rayside-bundle/1"
# Names of the images and programs that a cluster's target requests.
IMAGES = ("ray", "workspace", "operator", "node")
PROGRAMS = ("kind", "kubectl", "kubectl-ray", "kuberay", "oras", "door")
# Prefix of the names of a bundle's images in an engine.
BUNDLED = "rayside/bundled-"
_HEX = re.compile(r"[0-9a-f]{64}")
_WHEEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,200}\.whl")
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+/-]{0,100}")
# Limit: bytes of a blob or layer.
_LARGEST = 2**40


@dataclass(frozen=True)
class Layer:
    """One layer: `blob` is compressed with Zstandard; unpacked it has the digest `diff_id` and this size."""

    diff_id: str
    size: int
    blob: Blob


@dataclass(frozen=True)
class Image:
    """An image; its reference derives from its content."""

    name: str
    config: Blob
    layers: tuple[Layer, ...]
    # Its OCI manifest: `layout.manifest`.
    manifest: Blob

    @property
    def reference(self) -> str:
        """Returns its reference in an engine, unique to Rayside and to the image's content."""
        return f"{BUNDLED}{self.name}:{self.config.digest[:32]}"

    @property
    def id(self) -> str:
        """Returns its image id in the engine and the CRI, which derives from the configuration."""
        return f"sha256:{self.config.digest}"


@dataclass(frozen=True)
class Folder:
    """A folder of programs, or of manifests, as a tar archive that is compressed with Zstandard.

    Attributes:
        name: one of `PROGRAMS`.
        path: the program, or the subfolder, in it.
        size: bytes of the archive, unpacked.
    """

    name: str
    path: str
    size: int
    blob: Blob


@dataclass(frozen=True)
class Version:
    """The code that a bundle is for: `code` is a hash of all that has to be the same on both sides."""

    code: str
    ray: str
    kubernetes: str
    kuberay: str

    def __str__(self) -> str:
        return f"Ray {self.ray}, Kubernetes {self.kubernetes}, KubeRay {self.kuberay}, code {self.code[:12]}"


@dataclass(frozen=True)
class Manifest:
    """Contents of a bundle.

    Attributes:
        platform: as in linux/amd64.
        pythons: Python versions of its wheels, as in 3.11.
        extensions: third-party extensions in its workspace, as in `acme.snake 1.2.3`.
        wheels: by file name.
        checkout: this repository's files, as an uncompressed tar archive.
    """

    version: Version
    platform: str
    pythons: tuple[str, ...]
    extensions: tuple[str, ...]
    folders: tuple[Folder, ...]
    images: tuple[Image, ...]
    wheels: Mapping[str, Blob]
    checkout: Blob

    def blobs(self, *, images: bool = True) -> Iterator[Blob]:
        """Yields all blobs, shared layers more than once; without `images`, no blobs of images."""
        yield self.checkout
        yield from self.wheels.values()
        yield from (folder.blob for folder in self.folders)
        for image in self.images if images else ():
            yield from (image.config, image.manifest, *(layer.blob for layer in image.layers))

    def image(self, name: str) -> Image:
        return next(image for image in self.images if image.name == name)

    def folder(self, name: str) -> Folder:
        return next(folder for folder in self.folders if folder.name == name)

    def text(self) -> bytes:
        """Returns the manifest as JSON: the same bytes for the same content."""
        document = {
            "format": FORMAT,
            "version": vars(self.version),
            "platform": self.platform,
            "pythons": list(self.pythons),
            "extensions": list(self.extensions),
            "folders": [
                {"name": each.name, "path": each.path, "size": each.size, "blob": vars(each.blob)}
                for each in self.folders
            ],
            "images": [document_of(image) for image in self.images],
            "wheels": {name: vars(blob) for name, blob in sorted(self.wheels.items())},
            "checkout": vars(self.checkout),
        }
        return f"{json.dumps(document, indent=1)}\n".encode()

    @property
    def digest(self) -> str:
        """Returns the SHA-256 of its text, which names the bundle."""
        return hashlib.sha256(self.text()).hexdigest()


def parse(file: Path, text: bytes) -> Manifest:
    """Returns the manifest of that file. Raises BadBundle."""
    try:
        document = json.loads(text)
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            raise _Wrong(f"its manifest is not of the format {FORMAT}")
        version = Version(**{field.name: _word(document["version"][field.name]) for field in fields(Version)})
        manifest = Manifest(
            version=version,
            platform=_word(document["platform"]),
            pythons=tuple(map(_word, document["pythons"])),
            extensions=tuple(" ".join(map(_word, each.split(" "))) for each in document["extensions"]),
            folders=tuple(map(_folder, document["folders"])),
            images=tuple(map(image_of, document["images"])),
            wheels={_wheel(name): _blob(blob) for name, blob in document["wheels"].items()},
            checkout=_blob(document["checkout"]),
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise BadBundle(
            f"{file} is no bundle that this version can read: {str(error) or type(error).__name__}",
            hint="make it with ./invokew bundle FILE, of the same version of Rayside",
        ) from None
    for kind, names, known in (
        ("program", [each.name for each in manifest.folders], PROGRAMS),
        ("image", [each.name for each in manifest.images], IMAGES),
    ):
        if sorted(names) != sorted(known):
            raise BadBundle(
                f"{file} does not have each {kind} of a cluster once: it has {', '.join(names) or 'none'}",
                hint="make it anew: ./invokew bundle FILE",
            )
    return manifest


def document_of(image: Image) -> dict[str, Any]:
    """Returns an image as an object of the manifest's JSON."""
    return {
        "name": image.name,
        "reference": image.reference,
        "config": vars(image.config),
        "manifest": vars(image.manifest),
        "layers": [
            {"diff_id": layer.diff_id, "size": layer.size, "blob": vars(layer.blob)} for layer in image.layers
        ],
    }


class _Wrong(ValueError):
    pass


def _word(value: object) -> str:
    if not isinstance(value, str) or not _WORD.fullmatch(value) or ".." in value:
        raise _Wrong(f"{value!r} in it is no name")
    return value


def _digest(value: object) -> str:
    if not isinstance(value, str) or not _HEX.fullmatch(value):
        raise _Wrong(f"{value!r} in it is no SHA-256")
    return value


def _size(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _LARGEST:
        raise _Wrong(f"{value!r} in it is no size")
    return value


def _wheel(name: str) -> str:
    if not _WHEEL.fullmatch(name):
        raise _Wrong(f"{name!r} in it is no name of a wheel")
    return name


def _blob(document: Mapping[str, Any]) -> Blob:
    return Blob(_digest(document["digest"]), _size(document["size"]))


def _folder(document: Mapping[str, Any]) -> Folder:
    name, path = _word(document["name"]), _word(document["path"])
    return Folder(name, path, _size(document["size"]), _blob(document["blob"]))


def image_of(document: Mapping[str, Any]) -> Image:
    """Parses an image of the manifest's JSON. Raises ValueError, KeyError, TypeError."""
    layers = tuple(
        Layer(_digest(each["diff_id"]), _size(each["size"]), _blob(each["blob"]))
        for each in document["layers"]
    )
    image = Image(_word(document["name"]), _blob(document["config"]), layers, _blob(document["manifest"]))
    if document["reference"] != image.reference:
        raise _Wrong(f"{document['reference']!r} in it is not {image.reference}")
    return image
