"""Tests archives in a bundle: the same bytes for the same files, and nothing written outside of a folder."""

from __future__ import annotations

import io
import tarfile
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bootstrap.bundle.images import compressed, unpacked
from bootstrap.bundle.packed import below, packed, size_of, unpack
from bootstrap.bundle.tar import BLOCK, END
from bootstrap.errors import BadBundle
from tests.bundles import entry


@pytest.fixture
def files(tmp_path: Path) -> list[tuple[str, Path]]:
    folder = tmp_path / "some programs"
    (folder / "more" / ("deep" * 30)).mkdir(parents=True)
    (folder / "program").write_text("#!/bin/sh\n")
    (folder / "program").chmod(0o700)
    (folder / "more" / ("deep" * 30) / "text").write_text("text")
    (folder / "link").symlink_to("program")
    return below(folder, "programs")


def test_the_same_files_are_the_same_bytes_whoever_has_them(files: list[tuple[str, Path]]) -> None:
    first = b"".join(packed(files))
    files[0][1].touch()
    files[-1][1].chmod(0o755)
    assert b"".join(packed(list(reversed(files)))) == first
    assert len(first) == size_of(files)


def test_what_was_packed_is_unpacked(tmp_path: Path, files: list[tuple[str, Path]]) -> None:
    unpack(unpacked(compressed(packed(files)), size_of(files)), tmp_path / "new")
    for name, file in files:
        there = tmp_path / "new" / name
        assert there.read_bytes() == file.read_bytes()
        assert not there.is_symlink()
        assert there.stat().st_mode & 0o777 == (0o644 if "text" in name else 0o755)


@pytest.mark.parametrize(
    "entries",
    [
        [entry("../outside")],
        [entry("a/../../outside")],
        [entry("/tmp/outside")],
        [entry("link", type=tarfile.SYMTYPE, linkname="/etc"), entry("link/passwd")],
        [entry("link", type=tarfile.LNKTYPE, linkname="/etc/passwd")],
        [entry("pipe", type=tarfile.FIFOTYPE)],
        [entry("disk", type=tarfile.BLKTYPE)],
        [entry("twice"), entry("twice")],
        [entry("file"), entry("file/below")],
    ],
    ids=["up", "inside-up", "absolute", "link", "hard-link", "pipe", "device", "twice", "below-a-file"],
)
def test_nothing_is_written_outside(tmp_path: Path, entries: list[Callable[[tarfile.TarFile], None]]) -> None:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        for add in entries:
            add(tar)
    (tmp_path / "folder").mkdir()
    with pytest.raises(BadBundle, match="not as it should be"):
        unpack(iter([content.getvalue()]), tmp_path / "folder" / "here")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]
    assert {path.name for path in (tmp_path / "folder").iterdir()} <= {"here"}


def test_what_the_reader_finds_wrong_at_the_end_counts(tmp_path: Path, files: list[tuple[str, Path]]) -> None:
    def content() -> Iterator[bytes]:
        yield from packed(files)
        raise BadBundle("it was changed", hint="none")

    with pytest.raises(BadBundle, match="it was changed"):
        unpack(content(), tmp_path / "new")


@pytest.mark.parametrize(
    ("content", "size", "message"),
    [
        *((b"".join(compressed(iter([b"0123456789"]))), size, "does not have") for size in (0, 9, 11)),
        (b"no Zstandard", 10, "can't be unpacked"),
    ],
)
def test_a_layer_of_another_size_or_none_is_refused(content: bytes, size: int, message: str) -> None:
    with pytest.raises(BadBundle, match=message):
        list(unpacked(iter([content]), size))


def test_a_layer_that_is_a_bomb_takes_no_memory() -> None:
    bomb = b"".join(compressed(b"\0" * 10**6 for _ in range(200)))
    assert len(bomb) < 30_000
    tracemalloc.start()
    try:
        with pytest.raises(BadBundle, match="does not have 10 bytes"):
            list(unpacked(iter([bomb]), 10))
        assert tracemalloc.get_traced_memory()[1] < 20 * 10**6
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "kind", [tarfile.GNUTYPE_SPARSE, tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE, tarfile.CONTTYPE]
)
def test_headers_that_change_the_next_one_or_have_holes_are_refused(tmp_path: Path, kind: bytes) -> None:
    header = tarfile.TarInfo("a")
    header.type, header.size = kind, 10
    with pytest.raises(BadBundle, match="not as it should be"):
        unpack(iter([header.tobuf(tarfile.GNU_FORMAT), b"x" * 512, END]), tmp_path / "new")


def _nested_names() -> bytes:
    """Headers that each say that the next one has a long name; the next one is such a header, too."""
    header = tarfile.TarInfo("././@LongLink")
    header.type, header.size = tarfile.GNUTYPE_LONGNAME, 4
    return 3_000 * (header.tobuf(tarfile.GNU_FORMAT) + b"abc".ljust(BLOCK, b"\0"))


def _sparse_without_a_number() -> bytes:
    """A sparse file of GNU tar, whose content begins with the number of its pieces, here with a word."""
    header = tarfile.TarInfo("x")
    header.size = BLOCK
    header.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "x"}
    return header.tobuf(tarfile.PAX_FORMAT) + b"none\n".ljust(BLOCK, b"\0")


@pytest.mark.parametrize("made_up", [_nested_names, _sparse_without_a_number])
def test_headers_over_which_tarfile_stumbles_are_refused(
    tmp_path: Path, made_up: Callable[[], bytes]
) -> None:
    with pytest.raises(BadBundle, match="not as it should be"):
        unpack(iter([made_up(), tarfile.TarInfo("x").tobuf(), END]), tmp_path / "new")
