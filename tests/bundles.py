"""Small bundles for tests, realistic in everything but their size."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import tarfile
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from bootstrap.bundle.blobs import Blobs
from bootstrap.bundle.images import Gathering, compressed
from bootstrap.bundle.manifest import IMAGES, PROGRAMS, Folder, Image, Manifest
from bootstrap.bundle.opened import Bundle, this_platform, this_python, write
from bootstrap.bundle.packed import packed, size_of
from bootstrap.bundle.version import this_version
from bootstrap.sources.bundle_origin import RECORD, Origin
from rayside.own_folder import make_own
from rayside.private_file import write_private


def minisign_keys(folder: Path, name: str) -> tuple[Path, Path]:
    """Makes a key pair without a password; returns the files `name`.key (secret) and `name`.pub."""
    secret, public = folder / f"{name}.key", folder / f"{name}.pub"
    subprocess.run(["minisign", "-G", "-W", "-p", public, "-s", secret], check=True, capture_output=True)
    return secret, public


def layer(name: str, content: bytes) -> bytes:
    """Returns a layer with one file."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        entry = tarfile.TarInfo(name)
        entry.size = len(content)
        tar.addfile(entry, io.BytesIO(content))
    return stream.getvalue()


def saved(
    images: dict[str, list[bytes]], *, is_older: bool = False, compress: Callable[[bytes], bytes] = bytes
) -> bytes:
    """Returns an archive of images, each given by its reference and layers, in the format of `docker save`.

    `is_older`: the format of engines before 25, with a second name for a shared layer. `compress`: as in
    engines that store their images in containerd.
    """
    members: dict[str, bytes] = {}
    links: dict[str, str] = {}
    listed = []
    for number, (reference, layers) in enumerate(images.items()):
        diff_ids = [hashlib.sha256(each).hexdigest() for each in layers]
        config = json.dumps(
            {
                "architecture": "amd64",
                "os": "linux",
                "config": {"Labels": {"image": reference}},
                "rootfs": {"type": "layers", "diff_ids": [f"sha256:{each}" for each in diff_ids]},
            }
        ).encode()
        digest = hashlib.sha256(config).hexdigest()
        names = []
        for position, each in enumerate(layers):
            content = compress(each)
            digest_of_blob = hashlib.sha256(content).hexdigest()
            name = f"{number}{position}{'a' * 60}/layer.tar" if is_older else f"blobs/sha256/{digest_of_blob}"
            first = next((other for other, known in members.items() if known == content), None)
            if first and first != name:
                links[name] = f"../{first}"
            else:
                members[name] = content
            names.append(name)
        config_name = f"{digest}.json" if is_older else f"blobs/sha256/{digest}"
        members[config_name] = config
        listed.append({"Config": config_name, "RepoTags": [reference], "Layers": names})
    members["manifest.json"] = json.dumps(listed).encode()
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
        for name, target in links.items():
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            tar.addfile(entry)
    return stream.getvalue()


def gathered(blobs: Blobs) -> tuple[Image, ...]:
    """Returns an image for each name in a bundle, all with the same base layer."""
    base = layer("base", b"base" * 1000)
    images = {f"test/{name}:1": [base, layer(name, name.encode())] for name in IMAGES}
    names = {f"test/{name}:1": name for name in IMAGES}
    return tuple(Gathering(blobs).take(io.BytesIO(saved(images)), names))


def small(folder: Path, wheels: Iterable[Path] = (), **changed: Any) -> Path:
    """Returns a bundle with small programs and images, and these wheels; `changed` are manifest fields."""
    blobs = Blobs(folder / "blobs")
    program = folder / "program"
    program.write_text("#!/bin/sh\necho it runs\n")
    program.chmod(0o755)
    folders = []
    for name in PROGRAMS:
        files = [(f"{name}/program", program)]
        blob = blobs.add(compressed(packed(files)))
        folders.append(Folder(name, f"{name}/program", size_of(files), blob))
    manifest = Manifest(
        version=this_version(),
        platform=this_platform(),
        pythons=(this_python(),),
        extensions=(),
        folders=tuple(folders),
        images=gathered(blobs),
        wheels={wheel.name: blobs.add([wheel.read_bytes()]) for wheel in wheels},
        checkout=blobs.add(packed([("rayside/invokew", program)])),
    )
    manifest = replace(manifest, **changed)
    file = folder / "small bundle"
    write(file, manifest, blobs.read)
    return file


def recorded(cluster: Path, mirror: str) -> None:
    """Records in a cluster's folder that the cluster was made from a small bundle from that mirror."""
    make_own(cluster)
    file = small(cluster)
    origin = Origin(file, Bundle.of(file).manifest, mirror)
    write_private(cluster / RECORD, origin.text)


def entry(name: str, **more: object) -> Callable[[tarfile.TarFile], None]:
    """Returns a function that adds an entry of that name to an archive, with these header fields."""

    def add(tar: tarfile.TarFile) -> None:
        made = tarfile.TarInfo(name)
        for key, value in more.items():
            setattr(made, key, value)
        tar.addfile(made, io.BytesIO(b"x" * made.size))

    return add
