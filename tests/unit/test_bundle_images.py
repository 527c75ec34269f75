"""Tests the way of images out of an engine into a bundle, and back."""

from __future__ import annotations

import gzip
import io
import json
import subprocess
import sys
import tarfile
from pathlib import Path

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


@pytest.mark.parametrize("is_older", [False, True], ids=["newer engine", "older engine"])
def test_an_image_is_the_same_after_the_way(tmp_path: Path, is_older: bool) -> None:
    blobs = Blobs(tmp_path / "blobs")
    ray, workspace = Gathering(blobs).take(io.BytesIO(saved(IMAGES, is_older=is_older)), NAMES)
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


def test_engines_of_both_kinds_give_the_same_bundle(tmp_path: Path) -> None:
    images = [
        Gathering(Blobs(tmp_path / str(is_older))).take(io.BytesIO(saved(IMAGES, is_older=is_older)), NAMES)
        for is_older in (False, True)
    ]
    assert images[0] == images[1]


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


def test_a_whole_one_is_whole_and_one_that_is_cut_off_is_not(tmp_path: Path) -> None:
    file = small(tmp_path)
    told: list[str] = []
    Bundle.of(file).require_whole(told.append)
    file.write_bytes(file.read_bytes()[:-3000])
    with pytest.raises(BadBundle, match="not whole"):
        Bundle.of(file).require_whole()


def test_layers_that_an_engine_keeps_compressed_are_the_same_ones(tmp_path: Path) -> None:
    """Engines that keep images in containerd save layers as registries gave them."""
    plain = Gathering(Blobs(tmp_path / "plain")).take(io.BytesIO(saved(IMAGES)), NAMES)
    for name, compress in (("gzip", gzip.compress), ("zstd", zstandard.ZstdCompressor().compress)):
        archive_ = saved(IMAGES, compress=compress)
        assert Gathering(Blobs(tmp_path / name)).take(io.BytesIO(archive_), NAMES) == plain


def test_the_command_refuses_another_bundle_than_the_one_that_was_checked(tmp_path: Path) -> None:
    done = export(small(tmp_path), "ray", digest="0" * 64)
    assert (done.returncode, done.stdout) == (3, b"")
    assert b"another bundle by now" in done.stderr


@pytest.mark.parametrize("change", ["index", "more", "end"])
def test_what_no_digest_is_of_is_as_we_write_it(tmp_path: Path, change: str) -> None:
    file = small(tmp_path)
    content = file.read_bytes()
    assert content.endswith(END)
    if change == "index":
        place = content.rindex(b"bundled-ray:") + len("bundled-")
        content = content[:place] + b"rax" + content[place + 3 :]
    elif change == "more":
        content = content[: -len(END)] + b"".join(member(f"blobs/sha256/{'a' * 64}", 1, [b"x"])) + END
    else:
        content += b"\0" * 512
    file.write_bytes(content)
    with pytest.raises(BadBundle, match=r"was changed|does not end"):
        Bundle.of(file).require_whole()
