"""Tests that what was collected of a place stays where the place has something else later."""

from __future__ import annotations

import hashlib
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from bootstrap.errors import PodFailed
from bootstrap.settings import Settings
from bootstrap.verbs import workshop_files
from bootstrap.workshop import inside
from bootstrap.workshop.event import Workshop
from tests.unit.scripted_debuggee import ScriptedConsole


class Room:
    """A workshop of two places, of which each packs what it has; a place that has nothing fails."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.has = {"place-001": b"lunch", "place-002": b"lunch"}
        self.folder = folder
        self.event = SimpleNamespace(
            require=lambda: None,
            recorded=lambda: sorted(self.has),
            place=lambda name: name,
            door=SimpleNamespace(secrets=SimpleNamespace(claims=dict)),
        )
        monkeypatch.setattr(workshop_files, "workshop_of", lambda settings: self.event)
        monkeypatch.setattr(inside, "collect", lambda place: self._packed(cast(str, place)))

    def _packed(self, place: str) -> bytes:
        if not self.has[place]:
            raise PodFailed("it gives no answer", hint="look")
        return self.has[place]

    def collect(self) -> str:
        """Returns what the teacher is told."""
        console = ScriptedConsole()
        workshop_files.collect(Settings(), console, self.folder)
        return console.shown

    def files(self) -> dict[str, bytes]:
        return {file.name: file.read_bytes() for file in sorted(self.folder.iterdir())}


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:12]


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Room:
    return Room(monkeypatch, tmp_path / "files")


def test_an_earlier_copy_that_differs_is_kept_and_named(room: Room) -> None:
    room.collect()
    room.has["place-001"] = b"empty"
    told = room.collect()
    aside = f"place-001.{digest(b'lunch')}.tar.gz"
    assert room.files() == {
        aside: b"lunch",
        "place-001.tar.gz": b"empty",
        "place-002.tar.gz": b"lunch",
    }
    assert f"place-001.tar.gz was there with other content, which is kept as {aside}" in told
    assert "place-002.tar.gz was there" not in told
    assert {stat.S_IMODE(file.stat().st_mode) for file in room.folder.iterdir()} == {0o600}


def test_no_copy_replaces_another_one(room: Room) -> None:
    for content in (b"first", b"second", b"third"):
        room.has["place-001"] = content
        room.collect()
        kept = {name: content for name, content in room.files().items() if name.count(".") == 3}
    assert kept == {f"place-001.{digest(content)}.tar.gz": content for content in (b"first", b"second")}


def test_the_same_files_make_no_copy_however_often_it_is_tried(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workshop_files, "_PAUSE", 0.0)
    room.collect()
    before = room.files()
    room.has["place-002"] = b""
    console, event = ScriptedConsole(), cast(Workshop, room.event)
    with pytest.raises(PodFailed, match="1 of 2 places failed"):
        workshop_files._collect_after_a_while(event, console, room.folder)
    assert room.files() == before
    # That a copy is kept is said where another place fails, too.
    room.has["place-001"] = b"later"
    with pytest.raises(PodFailed, match="1 of 2 places failed"):
        workshop_files._collect_after_a_while(event, console, room.folder)
    assert console.shown.count("which is kept as") == 1
    assert len(room.files()) == 3
