"""Tests a bundle's file: the same bytes for the same content, and nothing taken of one that is not right."""

from __future__ import annotations

import tarfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from bootstrap.bundle.archive import INDEX, LAYOUT, MANIFEST, SIGNATURE, Archive, write
from bootstrap.bundle.blobs import PIECE, Blob, Blobs
from bootstrap.bundle.tar import BLOCK, END
from bootstrap.errors import BadBundle
from bootstrap.verbs.bundle import inspect
from rayside.console import Console
from tests.bundles import entry

TEXTS = {MANIFEST: b"{}", SIGNATURE: b"signed", LAYOUT: b"layout", INDEX: b"index"}


@pytest.fixture
def blobs(tmp_path: Path) -> Blobs:
    return Blobs(tmp_path / "blobs")


@pytest.fixture
def kept(blobs: Blobs) -> list[Blob]:
    return [blobs.add([b"x" * PIECE, b"y"]), blobs.add([b"small"]), blobs.add([])]


@pytest.fixture
def file(tmp_path: Path, blobs: Blobs, kept: list[Blob]) -> Path:
    """A bundle's file with these blobs."""
    return write_to(tmp_path / "file", blobs, kept)


def write_to(file: Path, blobs: Blobs, kept: list[Blob]) -> Path:
    with file.open("wb") as target:
        write(target, TEXTS, kept, blobs.read)
    return file


def test_the_same_content_is_the_same_bytes_in_whatever_order_it_comes(
    file: Path, tmp_path: Path, blobs: Blobs, kept: list[Blob]
) -> None:
    other = write_to(tmp_path / "second", blobs, [*reversed(kept), kept[0]])
    assert file.read_bytes() == other.read_bytes()


def test_what_was_written_is_read(file: Path, blobs: Blobs, kept: list[Blob]) -> None:
    archive = Archive.of(file)
    assert {name: archive.text(name) for name in TEXTS} == TEXTS
    assert archive.text("other") is None
    for blob in kept:
        assert archive.has(blob)
        assert b"".join(archive.read(blob)) == b"".join(blobs.read(blob))
    told: list[int] = []
    archive.check(kept, told.append)
    assert sum(told) == sum(blob.size for blob in kept)


def test_other_programs_read_it_too(file: Path, kept: list[Blob]) -> None:
    with tarfile.open(file) as tar:
        assert tar.getnames() == [*TEXTS, *(blob.name for blob in sorted(kept))]
        assert {(entry.mtime, entry.uid, entry.uname) for entry in tar} == {(0, 0, "")}


@pytest.mark.parametrize("left", [0.0, 0.3, 0.6, 0.95])
def test_a_file_that_is_cut_off_is_refused(file: Path, kept: list[Blob], left: float) -> None:
    content = file.read_bytes()
    file.write_bytes(content[: int(left * (len(content) - 20 * 1024))])
    with pytest.raises(BadBundle):
        Archive.of(file).check(kept)


def test_of_a_content_that_was_changed_the_end_is_not_given(file: Path, kept: list[Blob]) -> None:
    archive = Archive.of(file)
    content = bytearray(file.read_bytes())
    content[archive.members[kept[0].name].offset + 5] ^= 1
    file.write_bytes(content)
    got: list[bytes] = []
    with pytest.raises(BadBundle, match="was changed"):
        got.extend(archive.read(kept[0]))
    assert sum(map(len, got)) < kept[0].size
    with pytest.raises(BadBundle, match="was changed"):
        archive.check(kept)


@pytest.mark.parametrize(
    "members",
    [
        [entry("../../etc/passwd")],
        [entry("/etc/passwd")],
        [entry("blobs/sha256/short")],
        [entry(MANIFEST)],
        [entry(LAYOUT, type=tarfile.SYMTYPE, linkname="/etc/passwd")],
        [entry(INDEX, type=tarfile.DIRTYPE)],
        [entry("x" * 300)],
    ],
)
def test_other_members_are_refused(tmp_path: Path, members: list[Callable[[tarfile.TarFile], None]]) -> None:
    file = tmp_path / "file"
    with tarfile.open(file, "w", format=tarfile.GNU_FORMAT) as tar:
        for add in [entry(MANIFEST), *members]:
            add(tar)
    with pytest.raises(BadBundle):
        Archive.of(file)


def test_it_begins_with_its_manifest(tmp_path: Path) -> None:
    file = tmp_path / "file"
    with tarfile.open(file, "w") as tar:
        entry(LAYOUT)(tar)
    with pytest.raises(BadBundle, match="does not begin with"):
        Archive.of(file)


@pytest.mark.parametrize("content", [b"", b"\0" * 10240, b"no tar" * 1000], ids=["empty", "zeros", "text"])
def test_another_file_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "file"
    file.write_bytes(content)
    with pytest.raises(BadBundle, match="is no bundle"):
        Archive.of(file)


def test_a_text_that_is_too_long_is_not_held(tmp_path: Path) -> None:
    file = tmp_path / "file"
    with file.open("wb") as target:
        write(target, {MANIFEST: b"x" * (16 * 1024 * 1024 + 1)}, [], lambda _: iter(()))
    with pytest.raises(BadBundle, match="bytes"):
        Archive.of(file).text(MANIFEST)


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_SPARSE])
@pytest.mark.parametrize("claims", [10, 2**33], ids=["small", "large"])
def test_a_strangers_file_is_inspected_within_bounds(tmp_path: Path, kind: bytes, claims: int) -> None:
    """No header has the reader follow it, and none costs more memory than the file has bytes."""
    header = tarfile.TarInfo("manifest.json")
    header.type, header.size = kind, claims
    record = b"1" * 5000 + b" path=name\n"
    file = tmp_path / "hostile"
    file.write_bytes(header.tobuf(tarfile.GNU_FORMAT) + record.ljust(BLOCK * 10, b"\0") + END)
    tracemalloc.start()
    try:
        with pytest.raises(BadBundle):
            inspect(Console(), file)
        assert tracemalloc.get_traced_memory()[1] < 10**6
    finally:
        tracemalloc.stop()
