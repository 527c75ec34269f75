"""Tests a bundle's manifest: what is written is read, and what a stranger may have written is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bootstrap.bundle.blobs import Blob
from bootstrap.bundle.layout import artifact, blob_of, everything, index, manifest
from bootstrap.bundle.manifest import IMAGES, PROGRAMS, Folder, Image, Layer, Manifest, parse
from bootstrap.bundle.opened import require_fit, this_platform, this_python
from bootstrap.bundle.version import this_version
from bootstrap.errors import BadBundle

FILE = Path("/somewhere/some bundle")


def blob(number: int) -> Blob:
    return Blob(f"{number:02x}" * 32, number)


SHARED = Layer("09" * 32, 90, blob(9))
BUNDLE = Manifest(
    version=this_version(),
    platform=this_platform(),
    pythons=(this_python(),),
    extensions=("acme.snake 1.2.3",),
    folders=tuple(Folder(name, f"{name}/it", 10, blob(number)) for number, name in enumerate(PROGRAMS)),
    images=tuple(
        Image(name, blob(20 + number), (SHARED, Layer(f"{number:02x}" * 32, 5, blob(30 + number))), blob(40))
        for number, name in enumerate(IMAGES)
    ),
    wheels={"ray-2.60.0-cp311-cp311-manylinux2014_x86_64.whl": blob(50)},
    checkout=blob(60),
)


def test_what_is_written_is_read() -> None:
    assert parse(FILE, BUNDLE.text()) == BUNDLE
    assert parse(FILE, BUNDLE.text()).digest == BUNDLE.digest
    assert replace(BUNDLE, platform="linux/arm64").digest != BUNDLE.digest


def test_all_that_it_names_is_among_its_blobs() -> None:
    named = re.findall(r'"digest": "(\w+)"', BUNDLE.text().decode())
    assert {each.digest for each in BUNDLE.blobs()} == set(named)


GONE = object()


def set_to(value: object, *path: str | int) -> Callable[[dict[str, Any]], None]:
    def change(document: Any) -> None:
        for key in path[:-1]:
            document = document[key]
        if value is GONE:
            del document[path[-1]]
        else:
            document[path[-1]] = value

    return change


@pytest.mark.parametrize(
    "change",
    [
        set_to("rayside-bundle/2", "format"),
        set_to(GONE, "version"),
        set_to(GONE, "version", "ray"),
        set_to(["x"], "version", "ray"),
        set_to("../../etc", "platform"),
        set_to(7, "pythons"),
        set_to(["3.11\x1b[31m"], "pythons"),
        set_to("../kubectl", "folders", 1, "path"),
        set_to("/usr/bin/kubectl", "folders", 1, "path"),
        set_to("a/../../b", "folders", 1, "path"),
        set_to("docker", "folders", 1, "name"),
        set_to("kind", "folders", 1, "name"),
        set_to(-1, "folders", 1, "size"),
        set_to(True, "folders", 1, "size"),
        set_to(2**60, "folders", 1, "size"),
        set_to(GONE, "folders", 0),
        # Another's image would be replaced in the engine.
        set_to("python:3.11", "images", 0, "reference"),
        set_to("rayside/bundled-ray:000000000000", "images", 0, "reference"),
        set_to(None, "images", 0, "layers"),
        set_to("0" * 63, "images", 0, "layers", 0, "diff_id"),
        set_to({"digest": "../../x", "size": 1}, "images", 0, "config"),
        set_to(GONE, "images", 3),
        set_to({"../ray.whl": {"digest": "0" * 64, "size": 1}}, "wheels"),
        set_to({"ray.tar.gz": {"digest": "0" * 64, "size": 1}}, "wheels"),
        set_to([], "wheels"),
        set_to("x", "checkout"),
    ],
    ids=lambda change: "",
)
def test_what_a_stranger_may_have_written_is_refused(change: Callable[[dict[str, Any]], None]) -> None:
    document = json.loads(BUNDLE.text())
    change(document)
    with pytest.raises(BadBundle):
        parse(FILE, json.dumps(document).encode())


@pytest.mark.parametrize(
    "text", [b"", b"[]", b"null", b"\xff", b"[" * 100_000, b'{"format": 1'], ids=range(6)
)
def test_what_is_no_manifest_is_refused(text: bytes) -> None:
    with pytest.raises(BadBundle, match=r"no bundle that this version can read"):
        parse(FILE, text)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"platform": "linux/riscv64"}, "is for linux/riscv64, and this machine is linux/"),
        ({"version": replace(this_version(), ray="2.1.0")}, "is for Ray 2.1.0, .* this checkout is Ray 2.6"),
        ({"version": replace(this_version(), code="0" * 64)}, "code 000000000000; this checkout"),
        ({"pythons": ("3.9",)}, r"packages for Python 3.9, and this is 3\."),
    ],
    ids=["platform", "version", "code", "python"],
)
def test_another_is_refused_with_what_it_is_for(changed: dict[str, Any], message: str) -> None:
    require_fit(BUNDLE, FILE)
    with pytest.raises(BadBundle, match=message) as refused:
        require_fit(replace(BUNDLE, **changed), FILE)
    assert refused.value.hint


def test_tools_for_images_find_each_image() -> None:
    *images, whole = json.loads(index(BUNDLE, None))["manifests"]
    names = [each["annotations"]["org.opencontainers.image.ref.name"] for each in images]
    assert names == [image.reference for image in BUNDLE.images]
    document = json.loads(manifest(BUNDLE.images[0]))
    assert document["config"]["digest"] == f"sha256:{BUNDLE.images[0].config.digest}"
    assert [layer["size"] for layer in document["layers"]] == [9, 30]
    text = everything(BUNDLE, None)
    assert whole["digest"] == f"sha256:{blob_of(text).digest}"
    digests = [each["digest"] for each in images]
    assert [each["digest"] for each in json.loads(text)["manifests"][1:]] == digests


def test_what_is_in_no_image_is_an_artifact_that_has_the_signature() -> None:
    document = json.loads(artifact(BUNDLE, b"signed\n"))
    assert document["config"]["digest"] == f"sha256:{BUNDLE.digest}"
    assert document["annotations"] == {"dev.rayside.bundle.signature": "signed\n"}
    beside = {blob.digest for blob in BUNDLE.blobs(images=False)}
    assert {each["digest"].removeprefix("sha256:") for each in document["layers"]} == beside
    assert "annotations" not in json.loads(artifact(BUNDLE, None))
