"""Conversion of the Docker engine's images to blobs, each layer once, and back.

An image keeps its id, as its configuration and the unpacked content of its layers stay the same
(https://github.com/opencontainers/image-spec/blob/v1.1.0/config.md, `rootfs.diff_ids`).
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import IO, Any

from bootstrap.bundle.blobs import PIECE, Blob, Blobs, pieces
from bootstrap.bundle.layout import manifest
from bootstrap.bundle.manifest import Image, Layer
from bootstrap.bundle.tar import END, member, stream
from bootstrap.errors import BadBundle, ImageMissing

# A bundle is made seldom and copied often. The output of several threads differs from one thread's, but is
# the same for any number of them: so the number does not depend on the machine.
_LEVEL, _THREADS = 9, 2
# Limit in bytes of Zstandard's window when unpacking; our own frames have 8 MiB.
_LARGEST_WINDOW = 64 * 1024 * 1024
# Member of the engine's archive that lists its images, in any layout.
_LIST = "manifest.json"
# Limit: bytes of a text in such an archive.
_LONGEST_TEXT = 8 * 1024 * 1024
_ANEW = "make the bundle anew: ./invokew bundle FILE"
_OF_LAYER = re.compile(r"blobs/sha256/([0-9a-f]{64})|[0-9a-f]+/layer\.tar")


@dataclass
class Gathering:
    """Reader of images from an archive of `docker save`."""

    blobs: Blobs
    # Known layers, by the digest of their unpacked content.
    known: dict[str, Layer] = field(default_factory=dict)

    def take(
        self,
        archive: IO[bytes],
        names: Mapping[str, str],
        report: Callable[[str], None] = lambda _: None,
    ) -> list[Image]:
        """Returns the images of an archive, which is read once, as a stream.

        `names`: name in the bundle by image reference. Raises ImageMissing if the archive ends too
        early, OSError.
        """
        layers: dict[str, Layer] = {}
        texts: dict[str, bytes] = {}
        links: dict[str, str] = {}
        try:
            with tarfile.open(fileobj=archive, mode="r|") as tar:
                for entry in tar:
                    if entry.issym():
                        # An older engine's second name of a layer: `../<another id>/layer.tar`.
                        links[entry.name] = entry.linkname.removeprefix("../")
                    content = tar.extractfile(entry) if entry.isreg() else None
                    if content is None:
                        continue
                    begin = content.read(1)
                    # Newer engines name texts and layers in the same way.
                    if begin not in (b"", b"{", b"[") and _OF_LAYER.fullmatch(entry.name):
                        report(f"layer {len(layers) + 1}, {entry.size // 10**6} MB")
                        layers[entry.name] = self._layer(entry, begin, content)
                    elif entry.size <= _LONGEST_TEXT:
                        texts[entry.name] = begin + content.read()
        except tarfile.TarError as error:
            raise ImageMissing(
                f"the Docker engine broke off its images: {error}", hint="run the command again"
            ) from None
        return [self._image(each, names, layers, texts, links) for each in json.loads(texts[_LIST])]

    def _layer(self, entry: tarfile.TarInfo, begin: bytes, content: IO[bytes]) -> Layer:
        named = entry.name.rpartition("/")[2]
        if (known := self.known.get(named)) and known.size == entry.size:
            return known
        hashed, size = hashlib.sha256(), 0

        def counted() -> Iterator[bytes]:
            nonlocal size
            for piece in plain(chain([begin], pieces(content))):
                hashed.update(piece)
                size += len(piece)
                yield piece

        blob = self.blobs.add(compressed(counted()))
        layer = Layer(hashed.hexdigest(), size, blob)
        self.known[layer.diff_id] = layer
        return layer

    def _image(
        self,
        listed: Mapping[str, Any],
        names: Mapping[str, str],
        layers: Mapping[str, Layer],
        texts: Mapping[str, bytes],
        links: Mapping[str, str],
    ) -> Image:
        config = texts[listed["Config"]]
        made_of = tuple(layers[links.get(name, name)] for name in listed["Layers"])
        expected = [each.removeprefix("sha256:") for each in json.loads(config)["rootfs"]["diff_ids"]]
        if [layer.diff_id for layer in made_of] != expected:
            raise ImageMissing(
                f"the Docker engine's archive of {listed['RepoTags']} has other layers than the image",
                hint="run the command again",
            )
        name = next(names[tag] for tag in listed["RepoTags"] if tag in names)
        image = Image(name, self.blobs.add([config]), made_of, Blob("", 0))
        return replace(image, manifest=self.blobs.add([manifest(image)]))


def plain(content: Iterator[bytes]) -> Iterator[bytes]:
    """Yields a layer's unpacked content: engines with containerd's image store export it as pulled."""
    import zstandard

    begin = b""
    while len(begin) < 4 and (piece := next(content, b"")):
        begin += piece
    content = chain([begin], content)
    if begin.startswith(b"\x1f\x8b"):
        with gzip.GzipFile(fileobj=stream(content)) as unpacking:
            yield from pieces(unpacking)  # type: ignore[arg-type]
    elif begin.startswith(b"\x28\xb5\x2f\xfd"):
        yield from pieces(zstandard.ZstdDecompressor().stream_reader(stream(content)))
    else:
        yield from content


def compressed(content: Iterator[bytes]) -> Iterator[bytes]:
    """Yields a content as one frame of Zstandard: the same bytes for the same content."""
    import zstandard

    compressor = zstandard.ZstdCompressor(level=_LEVEL, threads=_THREADS, write_checksum=True).compressobj()
    for piece in content:
        yield compressor.compress(piece)
    yield compressor.flush()


def unpacked(content: Iterator[bytes], size: int) -> Iterator[bytes]:
    """Yields the unpacked content of `compressed` output. Raises BadBundle unless it has `size` bytes."""
    import zstandard

    unpacking = zstandard.ZstdDecompressor(max_window_size=_LARGEST_WINDOW).stream_reader(stream(content))
    left = size
    try:
        while left >= 0 and (data := unpacking.read(PIECE)):
            left -= len(data)
            if left >= 0:
                yield data
    except zstandard.ZstdError as error:
        raise BadBundle(f"a part of it can't be unpacked: {error}", hint=_ANEW) from None
    if left:
        raise BadBundle(f"a part of it does not have {size} bytes unpacked", hint=_ANEW)
    # The source verifies the content at its end.
    for _ in content:
        pass


def archive(images: Sequence[Image], read: Callable[[Blob], Iterator[bytes]]) -> Iterator[bytes]:
    """Yields an archive for `docker load`, each layer once, with one piece in memory at a time.

    `read` yields a blob's content.
    """
    layers = {layer.diff_id: layer for image in images for layer in image.layers}
    for layer in layers.values():
        content = unpacked(read(layer.blob), layer.size)
        yield from member(_layer_name(layer), layer.size, content)
    for config in {image.config for image in images}:
        yield from member(f"{config.digest}.json", config.size, read(config))
    listed = [
        {
            "Config": f"{image.config.digest}.json",
            "RepoTags": [image.reference],
            "Layers": [_layer_name(layer) for layer in image.layers],
        }
        for image in images
    ]
    text = json.dumps(listed).encode()
    yield from member(_LIST, len(text), iter([text]))
    yield END


def _layer_name(layer: Layer) -> str:
    return f"{layer.diff_id}/layer.tar"
