"""Tests what of a place is packed for home, by the program of the workspace's image."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest

from bootstrap.settings import ROOT

PROGRAM = ROOT / "image" / "workspace" / "pack-files"
JOBS = "ray/session_2026-11-28_10-00-00_0_1/runtime_resources/working_dir_files/_ray_pkg_12"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Provides a folder with the home and the sessions of Ray that a place has."""
    for name, text in {
        "home/rayside/labs/01-breakpoint/my own file.py": "edited",
        "home/rayside/labs/01-breakpoint/.lab.json": "{}",
        "home/rayside/labs/01-breakpoint/-a\nb": "two lines",
        "home/rayside/labs/.kept/01-breakpoint-1/main.py": "kept",
        "home/rayside/other.py": "not a lab's",
        f"{JOBS}/main.py": "of a job",
        "ray/session_2026-11-28_10-00-00_0_1/logs/raylet.out": "a log",
        "secret": "not theirs",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


WHOLE = {
    "labs/01-breakpoint/my own file.py": b"edited",
    "labs/01-breakpoint/.lab.json": b"{}",
    "labs/01-breakpoint/-a\nb": b"two lines",
    "labs/.kept/01-breakpoint-1/main.py": b"kept",
    "labs/.jobs/_ray_pkg_12/main.py": b"of a job",
}


def packs(place: Path, *words: str, **also: str) -> subprocess.CompletedProcess[bytes]:
    own = {"HOME": str(place / "home"), "RAY_TMPDIR": str(place), "TMPDIR": str(place)}
    return subprocess.run(
        [PROGRAM, *words], env={**os.environ, **own, **also}, capture_output=True, timeout=60, check=False
    )


def program(place: Path, name: str, text: str) -> str:
    """Returns the PATH on which that program is found first."""
    folder = place / f"programs of {name}"
    folder.mkdir()
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


def contents(packed: bytes) -> Mapping[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        members = archive.getmembers()
        assert all(member.isfile() and (member.uid, member.uname) == (0, "") for member in members)
        return {member.name: archive.extractfile(member).read() for member in members}  # type: ignore[union-attr]


def test_labs_are_packed_and_what_jobs_were_made_of(place: Path) -> None:
    done = packs(place)
    assert (done.returncode, done.stderr) == (0, b"")
    assert contents(done.stdout) == WHOLE
    # Nothing is left of the work.
    assert not [*place.glob("tmp.*")]


def test_nothing_that_leads_elsewhere_is_packed(place: Path) -> None:
    labs = place / "home" / "rayside" / "labs"
    (labs / "a link").symlink_to(place / "secret")
    (labs / "a folder").symlink_to(place)
    (place / JOBS / "link.py").symlink_to(place / "secret")
    os.mkfifo(labs / "a pipe")
    os.link(labs / "01-breakpoint" / "my own file.py", labs / "hard.py")
    assert contents(packs(place).stdout) == {**WHOLE, "labs/hard.py": b"edited"}


@pytest.mark.parametrize("name", ["home/rayside/labs", "home/rayside", "ray"])
def test_what_is_not_there_is_left_out(place: Path, name: str) -> None:
    (place / name).rename(place / "away")
    done = packs(place)
    lab, job = name.startswith("home"), name == "ray"
    assert (done.returncode, contents(done.stdout)) == (
        0,
        {
            file: text
            for file, text in WHOLE.items()
            if file.startswith("labs/.jobs") != job or (not lab and not job)
        },
    )


def test_a_file_that_goes_meanwhile_is_left_out(place: Path) -> None:
    """Between the moment in which files are listed, and that in which they are read."""
    removes = 'rm "$HOME/rayside/labs/01-breakpoint/.lab.json"\nPATH=${PATH#*:}\nexec tar "$@"'
    done = packs(place, PATH=program(place, "tar", removes))
    assert done.returncode == 0
    assert contents(done.stdout) == {name: text for name, text in WHOLE.items() if ".lab.json" not in name}


def test_a_file_that_is_written_meanwhile_spoils_nothing(place: Path) -> None:
    written, ends = place / "home" / "rayside" / "labs" / "written.txt", threading.Event()
    written.write_bytes(bytes(30_000_000))

    def write() -> None:
        with written.open("ab", buffering=0) as file:
            while not ends.wait(0.001):
                file.write(b"x")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        done = packs(place)
    finally:
        ends.set()
        writer.join()
    assert b"changed as we read it" in done.stderr
    assert done.returncode == 0
    assert len(contents(done.stdout)["labs/written.txt"]) >= 30_000_000


def test_a_file_is_its_owners_alone_and_whole_or_not_there(place: Path) -> None:
    file = place / "a folder" / "the files.tar.gz"
    assert packs(place, str(file)).returncode != 0
    file.parent.mkdir()
    # A link that somebody has put there is not written through.
    file.symlink_to(place / "secret")
    assert packs(place, str(file)).returncode == 0
    assert (contents(file.read_bytes()), file.stat().st_mode & 0o777) == (WHOLE, 0o600)
    assert (place / "secret").read_text() == "not theirs"
    before = file.read_bytes()
    (place / "home" / "rayside" / "labs" / "data").write_bytes(os.urandom(1024 * 1024))
    done = packs(place, str(file), PACK_FILES_LARGEST=str(1024 * 1024))
    assert (done.returncode, b"more than 64 MiB" in done.stderr) == (1, True)
    done = packs(place, str(file), PATH=program(place, "gzip", "exit 1"))
    assert (done.returncode, b"Not all could be packed" in done.stderr) == (1, True)
    assert (file.read_bytes(), [*file.parent.iterdir()]) == (before, [file])
