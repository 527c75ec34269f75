"""Writes what makes a bundle an OCI image layout, so that tools for images read those in it.

https://github.com/opencontainers/image-spec/blob/v1.1.0/image-layout.md
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from bootstrap.bundle.blobs import Blob
from bootstrap.bundle.manifest import Image

LAYOUT = b'{"imageLayoutVersion":"1.0.0"}'
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar+zstd"


def manifest(image: Image) -> bytes:
    """Returns an image's manifest, as registries have it: the same bytes for the same image."""
    layers = [_descriptor(_LAYER, layer.blob) for layer in image.layers]
    return _text(_MANIFEST, config=_descriptor(_CONFIG, image.config), layers=layers)


def index(images: Sequence[Image], platform: str) -> bytes:
    """Returns the list of all images, each by its reference."""
    system, _, architecture = platform.partition("/")
    listed = []
    for image in images:
        text = manifest(image)
        blob = Blob(hashlib.sha256(text).hexdigest(), len(text))
        annotations = {"org.opencontainers.image.ref.name": image.reference}
        where = {"architecture": architecture, "os": system}
        listed.append({**_descriptor(_MANIFEST, blob), "platform": where, "annotations": annotations})
    return _text("application/vnd.oci.image.index.v1+json", manifests=listed)


def _text(media_type: str, **content: Any) -> bytes:
    return json.dumps({"schemaVersion": 2, "mediaType": media_type, **content}, indent=1).encode()


def _descriptor(media_type: str, blob: Blob) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": f"sha256:{blob.digest}", "size": blob.size}
