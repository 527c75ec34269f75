"""Verb `workshop`, for files in the places: labs are pushed, attendees' files are collected."""

from __future__ import annotations

import hashlib
import tempfile
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from bootstrap.errors import LowDisk, PodFailed
from bootstrap.labs.lesson import find, lessons
from bootstrap.settings import Settings
from bootstrap.verbs.workshop import alone_with, minutes_of, remove_places, require_place, workshop_of
from bootstrap.workshop import ending, inside
from bootstrap.workshop.event import AT_ONCE, Workshop
from bootstrap.workshop.pause import LOOK, Culling
from rayside.console import Console
from rayside.errors import Forbidden, InvalidArgument, NotRunning, RaysideError
from rayside.private_file import write_private

# Retries at the end of a workshop: number, and pause in seconds.
_TRIES, _PAUSE = 5, 60.0


def reset(settings: Settings, console: Console, name: str, lab: str) -> None:
    workshop = workshop_of(settings)
    require_place(workshop, name)
    with console.progress(), console.work(name, f"labs of {name}"):
        rows = inside.reset(workshop.place(name), lab)
    if console.as_json:
        console.document({"place": name, "labs": rows})
    for row in rows:
        edited = f"; what was edited is in {row['kept']} there" if row["kept"] else ""
        console.result(f"{name}: lab {row['lab']} is as at the beginning{edited}")
    if not rows:
        console.result(f"{name} has begun no lab.")


def push(settings: Settings, console: Console, lab: str) -> None:
    """Copies a lab of this clone to all places; attendees' edited files stay.

    Raises NotRunning; InvalidArgument if there is no such lab, or it is too large; PodFailed if it failed in
    some places.
    """
    packed = inside.packed(find(lab, lessons()).folder)
    workshop = workshop_of(settings)
    workshop.require()
    with alone_with(workshop, console):
        files = _of_each(
            *(workshop, console, packed.lab, f"lab {packed.lab} to the places"),
            lambda name: inside.update(workshop.place(name), packed),
        )
    if console.as_json:
        rows = [{"place": name, **its} for name, its in files.items()]
        console.document({"lab": packed.lab, "places": rows})
    console.table(
        ("place", "other files now", "edited, and kept"),
        [(name, ", ".join(its["updated"]), ", ".join(its["kept"])) for name, its in files.items()],
    )


def collect(settings: Settings, console: Console, folder: Path) -> None:
    """Writes the files of each attendee into a folder, as private files PLACE.tar.gz.

    An existing file with other content is kept under another name.
    """
    workshop = workshop_of(settings)
    workshop.require()
    _require_folder(folder)
    rows = _collect(workshop, console, folder)
    if console.as_json:
        console.document({"files": rows})
    _show_files(console, rows)


def until(settings: Settings, console: Console, text: str, folder: Path, idle: str | None = None) -> None:
    """Waits until the workshop ends, writes attendees' files into a folder, and removes the workshop.

    `idle`: minutes without activity after which a place is paused until then; new activity resumes it.
    Nothing is removed if an attendee's files could not be collected.
    """
    ends = ending.moment(text, datetime.now())
    culling = Culling(minutes_of(idle)) if idle is not None else None
    workshop = workshop_of(settings)
    workshop.require()
    _require_folder(folder)
    inside.require_right(workshop.place(workshop.recorded()[0]))
    key = _key(workshop)
    console.event(
        f"The workshop ends {ends:%A %d %B at %H:%M}, while this command runs. Ctrl-C leaves all as it is."
    )
    if culling:
        console.event(
            f"Places where nothing is done for {culling.minutes} min are paused, and resumed when something "
            "is. What is paused when this command ends waits for ./invokew workshop --resume"
        )
        _cull_until(ends, workshop, console, culling, key)
    ending.wait(ends, threading.Event())
    with alone_with(workshop, console):
        if _key(workshop) != key:
            raise _gone()
        rows = _collect_after_a_while(workshop, console, folder)
        _show_files(console, rows)
        remove_places(workshop, console, {"files": rows})


def _cull_until(ends: datetime, workshop: Workshop, console: Console, culling: Culling, key: str) -> None:
    """Pauses idle places, and resumes active ones, until the end.

    `key`: of this workshop; raises NotRunning once the workshop is gone.
    """
    never, failure = threading.Event(), ""
    while datetime.now(ends.tzinfo) < ends:
        is_there, before, failure = True, failure, ""
        try:
            with alone_with(workshop, console):
                if is_there := _key(workshop) == key:
                    culling.look(workshop.places(), workshop.door.secrets.claims(), console.event)
        except RaysideError as error:
            # After sleep, the machine's network may not be back.
            failure = error.message
        if not is_there:
            raise _gone()
        if failure and failure != before:
            console.event(f"{failure}; the places are looked at again, every {LOOK:g} s")
        ending.wait(min(ends, datetime.now(ends.tzinfo) + timedelta(seconds=LOOK)), never)


def _gone() -> NotRunning:
    return NotRunning(
        "the workshop that was there has gone, and another one is there or none",
        hint="./invokew workshop --status shows it",
    )


def _key(workshop: Workshop) -> str:
    told = workshop.door.secrets.told()
    return told.teacher_key if told else ""


def _collect_after_a_while(workshop: Workshop, console: Console, folder: Path) -> list[dict[str, Any]]:
    """Collects, with retries: after sleep, the machine's network may not be back."""
    for _ in range(_TRIES):
        try:
            return _collect(workshop, console, folder)
        except Forbidden:
            raise
        except RaysideError as error:
            console.event(f"{error.message}; it is tried again in {_PAUSE:g} s")
            threading.Event().wait(_PAUSE)
    return _collect(workshop, console, folder)


def _require_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise InvalidArgument(
            f"nothing can be written into {folder}: {error.strerror}", hint="name a folder of yours"
        ) from None


def _collect(workshop: Workshop, console: Console, folder: Path) -> list[dict[str, Any]]:
    """Writes the files, and returns the rows of `--json`: `{"place", "attendee", "file", "bytes"}`."""

    kept: dict[str, Path] = {}

    def fetch(name: str) -> int:
        packed = inside.collect(workshop.place(name))
        file = folder / f"{name}.tar.gz"
        try:
            # Packing is reproducible: the same files give the same bytes.
            if file.is_file() and (there := file.read_bytes()) != packed:
                digest = hashlib.sha256(there).hexdigest()
                kept[name] = file.replace(file.with_name(f"{name}.{digest[:12]}.tar.gz"))
            write_private(file, packed)
        except OSError as error:
            raise LowDisk(f"{file} can't be written: {error.strerror}", hint="make room there") from None
        return len(packed)

    try:
        sizes = _of_each(workshop, console, "files", f"files of the places into {folder}", fetch)
    finally:
        # Also if other places fail.
        for name, aside in sorted(kept.items()):
            console.event(f"{name}.tar.gz was there with other content, which is kept as {aside.name}")
    claims = workshop.door.secrets.claims()
    attendees = {name: claims[name].attendee if name in claims else "" for name in sizes}
    return [
        {"place": name, "attendee": attendees[name], "file": str(folder / f"{name}.tar.gz"), "bytes": size}
        for name, size in sizes.items()
    ]


def _show_files(console: Console, rows: Sequence[dict[str, Any]]) -> None:
    console.table(
        ("place", "attendee", "file", "KiB"),
        [(row["place"], row["attendee"], row["file"], str(-(-row["bytes"] // 1024))) for row in rows],
    )


_Given = TypeVar("_Given")


def _of_each(
    workshop: Workshop, console: Console, name: str, title: str, act: Callable[[str], _Given]
) -> dict[str, _Given]:
    failures: dict[str, RaysideError] = {}
    results: dict[str, _Given] = {}

    def one(place: str) -> None:
        try:
            results[place] = act(place)
        except RaysideError as error:
            failures[place] = error

    with console.progress(), console.work(name, title), ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(one, workshop.recorded()))
    if lacking := [error for error in failures.values() if isinstance(error, Forbidden)]:
        raise lacking[0]
    if failures:
        place, error = min(failures.items())
        raise PodFailed(
            f"{title}: {len(failures)} of {len(failures) + len(results)} places failed; {place}: "
            f"{error.message}",
            hint="./invokew workshop --status shows the places; then run it again",
        )
    return dict(sorted(results.items()))
