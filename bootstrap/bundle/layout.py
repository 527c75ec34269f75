"""OCI image layout of a bundle, for tools that read images and registries.

It is one image index: the images, and an artifact whose configuration is the bundle's manifest and whose
layers are the contents outside of images. A registry has the same under the index's digest.

https://github.com/opencontainers/image-spec/blob/v1.1.0/image-layout.md, and manifest.md there, "Guidelines
for Artifact Usage".
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from bootstrap.bundle.blobs import Blob
from bootstrap.bundle.manifest import Image, Manifest

LAYOUT = b'{"imageLayoutVersion":"1.0.0"}'
KIND = "application/vnd.rayside.bundle.v1"
CONFIG, SIGNATURE = f"{KIND}.manifest+json", "dev.rayside.bundle.signature"
_CONTENT = f"{KIND}.content"
_INDEX = "application/vnd.oci.image.index.v1+json"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_OF_IMAGE = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar+zstd"


def manifest(image: Image) -> bytes:
    """Returns an image's manifest, as registries have it: the same bytes for the same image."""
    layers = [_descriptor(_LAYER, layer.blob) for layer in image.layers]
    return _text(_MANIFEST, config=_descriptor(_OF_IMAGE, image.config), layers=layers)


def artifact(bundle: Manifest, signature: bytes | None) -> bytes:
    """Returns the artifact's manifest: all contents outside of images, with the signature as annotation."""
    folders = (each.blob for each in bundle.folders)
    beside = sorted({bundle.checkout, *bundle.wheels.values(), *folders})
    signed = {} if signature is None else {"annotations": {SIGNATURE: signature.decode("latin-1")}}
    return _text(
        _MANIFEST,
        artifactType=KIND,
        config=_descriptor(CONFIG, blob_of(bundle.text())),
        layers=[_descriptor(_CONTENT, blob) for blob in beside],
        **signed,
    )


def everything(bundle: Manifest, signature: bytes | None) -> bytes:
    """Returns the image index of the artifact and all images."""
    return _text(_INDEX, manifests=[_listed(bundle, signature), *_images(bundle)])


def index(bundle: Manifest, signature: bytes | None) -> bytes:
    """Returns the layout's `index.json`: each image by its reference, and the index of everything."""
    images = [
        {**entry, "annotations": {"org.opencontainers.image.ref.name": image.reference}}
        for entry, image in zip(_images(bundle), bundle.images, strict=True)
    ]
    whole = _descriptor(_INDEX, blob_of(everything(bundle, signature)))
    return _text(_INDEX, manifests=[*images, whole])


def texts(bundle: Manifest, signature: bytes | None) -> dict[Blob, bytes]:
    """Returns the layout's contents that the bundle's manifest does not name."""
    own = (bundle.text(), artifact(bundle, signature), everything(bundle, signature))
    return {blob_of(text): text for text in own}


def blob_of(text: bytes) -> Blob:
    return Blob(hashlib.sha256(text).hexdigest(), len(text))


def _listed(bundle: Manifest, signature: bytes | None) -> dict[str, Any]:
    return {**_descriptor(_MANIFEST, blob_of(artifact(bundle, signature))), "artifactType": KIND}


def _images(bundle: Manifest) -> list[dict[str, Any]]:
    system, _, architecture = bundle.platform.partition("/")
    where = {"architecture": architecture, "os": system}
    return [{**_descriptor(_MANIFEST, image.manifest), "platform": where} for image in bundle.images]


def _text(media_type: str, **content: Any) -> bytes:
    return json.dumps({"schemaVersion": 2, "mediaType": media_type, **content}, indent=1).encode()


def _descriptor(media_type: str, blob: Blob) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": f"sha256:{blob.digest}", "size": blob.size}
