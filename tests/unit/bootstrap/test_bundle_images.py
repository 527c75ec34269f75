"""Tests the way of images out of an engine into a bundle, and back."""

from __future__ import annotations

import gzip
import io
import json
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
import zstandard

from bootstrap.bundle.blobs import Blobs
from bootstrap.bundle.images import Gathering, archive
from bootstrap.bundle.opened import Bundle
from bootstrap.bundle.tar import END, member
from bootstrap.errors import BadBundle, ImageMissing
from bootstrap.settings import ROOT
from tests.bundles import layer, saved, small

BASE, RAY, WORKSPACE = layer("base", b"b" * 5000), layer("ray", b"ray"), layer("workspace", b"workspace")
IMAGES = {"rayside/ray:1": [BASE, RAY], "rayside/workspace:1": [BASE, RAY, WORKSPACE]}
NAMES = {"rayside/ray:1": "ray", "rayside/workspace:1": "workspace"}


def test_an_image_is_the_same_after_the_way(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path / "blobs")
    ray, workspace = Gathering(blobs).take(io.BytesIO(saved(IMAGES)), NAMES)
    assert workspace.layers[:2] == ray.layers  # once, for both
    with tarfile.open(fileobj=io.BytesIO(b"".join(archive([ray, workspace], blobs.read)))) as tar:
        assert len(tar.getnames()) == 3 + 2 + 1  # layers, configurations, the list
        listed = json.loads(tar.extractfile("manifest.json").read())  # type: ignore[union-attr]
        assert [each["RepoTags"] for each in listed] == [[ray.reference], [workspace.reference]]
        for image, layers in zip(listed, IMAGES.values(), strict=True):
            content = [tar.extractfile(name).read() for name in image["Layers"]]  # type: ignore[union-attr]
            assert content == layers
            config = json.loads(tar.extractfile(image["Config"]).read())  # type: ignore[union-attr]
            assert config["config"]["Labels"]["image"] in IMAGES


@pytest.mark.parametrize(
    "of_engine",
    [
        {"is_older": True},
        # Engines that keep images in containerd save layers as registries gave them.
        {"compress": gzip.compress},
        {"compress": zstandard.ZstdCompressor().compress},
    ],
    ids=["older", "gzip", "zstd"],
)
def test_engines_of_each_kind_give_the_same_bundle(tmp_path: Path, of_engine: dict[str, Any]) -> None:
    plain, other = (
        Gathering(Blobs(tmp_path / str(len(more)))).take(io.BytesIO(saved(IMAGES, **more)), NAMES)
        for more in ({}, of_engine)
    )
    assert other == plain


def test_an_engine_that_breaks_off_is_said(tmp_path: Path) -> None:
    whole = saved(IMAGES)
    with pytest.raises(ImageMissing, match="broke off"):
        Gathering(Blobs(tmp_path / "blobs")).take(io.BytesIO(whole[: len(whole) // 3]), NAMES)
    assert not [path for path in (tmp_path / "blobs").iterdir() if path.name.startswith(".")]


def test_an_engine_that_gives_other_layers_is_said(tmp_path: Path) -> None:
    wrong = saved(IMAGES).replace(b"w" + b"orkspace", b"w" + b"orkspite", 1)
    with pytest.raises(ImageMissing, match="other layers"):
        Gathering(Blobs(tmp_path / "blobs")).take(io.BytesIO(wrong), NAMES)


def export(file: Path, *names: str, digest: str = "") -> subprocess.CompletedProcess[bytes]:
    digest = digest or Bundle.of(file).manifest.digest
    command = [sys.executable, "-m", "bootstrap.bundle.export", str(file), digest, *names]
    return subprocess.run(command, cwd=ROOT, capture_output=True, timeout=60, check=False)


def test_the_command_writes_what_the_engine_loads(tmp_path: Path) -> None:
    done = export(small(tmp_path), "ray", "node")
    assert done.returncode == 0, done.stderr
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as tar:
        listed = json.loads(tar.extractfile("manifest.json").read())  # type: ignore[union-attr]
    assert [each["RepoTags"][0].partition(":")[0] for each in listed] == [
        "rayside/bundled-ray",
        "rayside/bundled-node",
    ]


def test_the_command_says_what_is_wrong_with_a_bundle(tmp_path: Path) -> None:
    file = small(tmp_path)
    bundle = Bundle.of(file)
    changed = bytearray(file.read_bytes())
    changed[bundle.archive.members[bundle.manifest.image("ray").layers[0].blob.name].offset + 20] ^= 1
    file.write_bytes(changed)
    done = export(file, "ray")
    assert done.returncode == 3
    assert b"was changed since it was made" in done.stderr
    with pytest.raises(BadBundle, match="was changed"):
        Bundle.of(file).require_whole()


def test_the_command_refuses_another_bundle_than_the_one_that_was_checked(tmp_path: Path) -> None:
    done = export(small(tmp_path), "ray", digest="0" * 64)
    assert (done.returncode, done.stdout) == (3, b"")
    assert b"another bundle by now" in done.stderr


@pytest.mark.parametrize("change", ["index", "more", "end", "cut off"])
def test_what_no_digest_is_of_is_as_we_write_it(tmp_path: Path, change: str) -> None:
    file = small(tmp_path)
    content = file.read_bytes()
    assert content.endswith(END)
    if change == "index":
        place = content.rindex(b"bundled-ray:") + len("bundled-")
        content = content[:place] + b"rax" + content[place + 3 :]
    elif change == "more":
        content = content[: -len(END)] + b"".join(member(f"blobs/sha256/{'a' * 64}", 1, [b"x"])) + END
    elif change == "end":
        content += b"\0" * 512
    else:
        content = content[:-3000]
    file.write_bytes(content)
    with pytest.raises(BadBundle, match="not whole" if change == "cut off" else r"was changed|does not end"):
        Bundle.of(file).require_whole()
