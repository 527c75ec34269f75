"""Verb `workshop`: creates places for attendees beside a cluster, shows them, and removes them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from bootstrap.settings import Settings
from bootstrap.targets import choice
from bootstrap.targets.place import Place
from bootstrap.workshop import inside
from bootstrap.workshop.attendees import PlaceName
from bootstrap.workshop.estimate import lasting
from bootstrap.workshop.event import AT_ONCE, REMOVED_AT_ONCE, Row, Workshop
from bootstrap.workshop.pause import IdlePaused, Paused, Resumed
from bootstrap.workshop.place_up import PlaceUp
from bootstrap.workshop.sheet import as_csv, as_page
from rayside.console import Console
from rayside.errors import InvalidArgument, NotRunning, RaysideError
from rayside.plain import counted
from rayside.private_file import write_private
from rayside.steps import graph
from rayside.steps.state_folder import StateFolder
from rayside.steps.step import Step
from rayside.system.lock import alone
from rayside.system.shell import Shell

# In minutes: a day.
_LONGEST_IDLE = 1440
# Options that require one of other options.
_GOES_WITH = {
    "idle": (("pause", "until"), "--pause --idle 30"),
    "until": (("collect",), "--until 17:30 --collect FOLDER"),
    "lab": (("reset",), "--reset PLACE --lab LAB"),
}


def require_one(**asked: bool) -> None:
    """Raises InvalidArgument unless exactly one action is given, and each other option fits it."""
    given = {name for name, is_given in asked.items() if is_given}
    for option, (others, example) in _GOES_WITH.items():
        if option in given and not given & {*others}:
            named = " or ".join(f"--{other}" for other in others)
            raise InvalidArgument(f"--{option} goes with {named}", hint=f"./invokew workshop {example}")
    given -= {*_GOES_WITH}
    if len(given) != 1:
        raise InvalidArgument(
            "more than one thing was asked for" if given else "nothing was asked for",
            hint="give one of --places N or --names FILE, --status, --sheet FILE, --free PLACE, "
            "--push LAB, --reset PLACE, --pause, --resume, --collect FOLDER, --remove",
        )


def make(settings: Settings, console: Console, names: Sequence[PlaceName], *, dry_run: bool) -> None:
    """Creates these places, besides existing ones, and their front door; existing places are unchanged.

    Raises NoRoom before anything is made, if they don't fit; NotRunning, OtherTarget.
    """
    workshop = workshop_of(settings)
    with alone_with(workshop, console):
        workshop.base.access.require()
        places = {name: workshop.place(name.name) for name in names}
        workshop.require_ground([*places.values()])
        console.event(workshop.require_room([*places.values()]))
        if dry_run:
            there = {row.name: row for row in workshop.rows()}
            rows = [
                there.get(name.name, Row(name.name, place.instance.namespace, workshop.url, "missing"))
                for name, place in places.items()
            ]
            _show_rows(console, rows)
            console.result("\nNothing was made. Next: the same without --dry-run")
            return
        with console.progress():
            interrupt = workshop.shell.interrupt
            made = {name: PlaceUp(place) for name, place in places.items()}
            began = time.monotonic()
            failure: RaysideError | None = None
            try:
                graph.up([*made.values()], console, interrupt=interrupt, at_once=AT_ONCE, goes_on=True)
            except RaysideError as error:
                failure = error
            # Attendees of ready places need not wait for the others.
            ready = {name: places[name] for name, each in made.items() if each.is_up}
            if ready:
                graph.up(workshop.door_steps(workshop.door_to(ready)), console, interrupt=interrupt)
        if failure and console.as_json:
            raise failure
        _show(console, workshop)
        if failure:
            raise failure
        console.event(f"{counted(len(places), 'place')} ready after {lasting(time.monotonic() - began)}")


def status(settings: Settings, console: Console) -> None:
    workshop = workshop_of(settings)
    workshop.require()
    _show(console, workshop)


def sheet(settings: Settings, console: Console, file: Path) -> None:
    """Writes the sheet of the places to a private file. Raises NotRunning.

    It is a page to print if the file's name ends in .html, else CSV.
    """
    workshop = workshop_of(settings)
    workshop.require()
    told = workshop.door.secrets.told()
    if told is None:
        raise NotRunning("the workshop has no front door", hint="./invokew workshop --places N makes it")
    is_page = file.suffix.lower() == ".html"
    write_private(file, as_page(told) if is_page else as_csv(told))
    part = "card" if is_page else "line"
    console.result(
        f"{file} has {counted(len(told.places), 'place')}. Whoever has a {part} of it is in that place."
    )


def free(settings: Settings, console: Console, place: str) -> None:
    """Releases a place: the next attendee without one gets it, with its files."""
    workshop = workshop_of(settings)
    require_place(workshop, place)
    # Before it can be claimed again, and once more, as the editor may have written in between. Neither a dead
    # node nor an attendee's files prevent the release.
    _forget(workshop.place(place))
    freed = workshop.door.secrets.free(place)
    if failure := _forget(workshop.place(place)):
        console.event(f"What the editor there told, and what was packed to take home, may stay: {failure}")
    if console.as_json:
        _show_rows(console, [row for row in workshop.rows() if row.name == place])
    console.result(f"{place} is nobody's now." if freed else f"{place} was nobody's.")


def _forget(place: Place) -> str:
    """Removes the editor's records of its attendee; returns the error, or an empty text."""
    try:
        inside.forget(place)
    except RaysideError as error:
        return error.message
    return ""


def pause(settings: Settings, console: Console, idle: str | None) -> None:
    """Removes the workers of all places, with their running tasks.

    `idle`: minutes without activity; only places without activity and running jobs are paused.
    """
    minutes = minutes_of(idle) if idle is not None else 0

    def parts(workshop: Workshop) -> list[Step]:
        places = workshop.places()
        if idle is None:
            return [Paused(place) for place in places.values()]
        claims = workshop.door.secrets.claims()
        return [IdlePaused(place, claims.get(name), minutes) for name, place in places.items()]

    workshop = _change_workers(settings, console, parts)
    _show_rows(console, workshop.rows())
    console.result("\nThe editors and all files are there. Next: ./invokew workshop --resume")


def resume(settings: Settings, console: Console) -> None:
    _show(
        console,
        _change_workers(
            settings, console, lambda workshop: [Resumed(place) for place in workshop.places().values()]
        ),
    )


def minutes_of(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= _LONGEST_IDLE:
        raise InvalidArgument(f"--idle is {text}", hint=f"name minutes, from 1 to {_LONGEST_IDLE}")
    return int(text)


def _change_workers(
    settings: Settings, console: Console, parts: Callable[[Workshop], Sequence[Step]]
) -> Workshop:
    workshop = workshop_of(settings)
    workshop.require()
    with alone_with(workshop, console), console.progress():
        graph.up(parts(workshop), console, interrupt=workshop.shell.interrupt, at_once=AT_ONCE, goes_on=True)
    return workshop


def remove(settings: Settings, console: Console) -> None:
    workshop = workshop_of(settings)
    with alone_with(workshop, console):
        remove_places(workshop, console, {})


def remove_places(workshop: Workshop, console: Console, also: Mapping[str, Any]) -> None:
    """Removes the places, under the cluster's lock; `--json` shows `also`, too."""
    places = workshop.places()
    if workshop.is_gone:
        for place in places.values():
            StateFolder(place.instance).undo(console.event)
        console.result(f"Kubernetes went before; the records of {counted(len(places), 'place')} are removed.")
        return
    with console.progress():
        used = workshop.used()
        if places:
            # Once, before parallel use: cached properties are not locked from Python 3.12 on.
            _ = workshop.base.kinds
        # The door first, so that nobody enters a place that is being removed.
        graph.down(workshop.door_steps(workshop.door), console)
        graph.down([PlaceUp(place) for place in places.values()], console, at_once=REMOVED_AT_ONCE)
    if console.as_json:
        console.document({"places": [], "used": used.document(), **also})
    console.result(
        f"{counted(len(places), 'place')} removed; the cluster {workshop.base.instance.name} stays."
    )
    if used.places:
        console.result(str(used))


def workshop_of(settings: Settings) -> Workshop:
    shell = Shell()
    return Workshop(choice.base_of_workshop(settings, shell), settings, shell)


def require_place(workshop: Workshop, name: str) -> None:
    workshop.require()
    if name not in workshop.recorded():
        raise InvalidArgument(
            f"there is no place {name}", hint="./invokew workshop --status lists the places"
        )


def _show(console: Console, workshop: Workshop) -> None:
    _show_rows(console, workshop.rows())
    if told := workshop.door.secrets.told():
        console.result()
        console.result(f"Room        {told.url}/_door/join/{told.key}")
        console.result("            whoever opens this link gives a name, and gets the next free place")
        console.result(f"Teacher     {told.teacher_url}/#{told.teacher_key}")
        console.result("            shows what each attendee is at; the link is for you alone")
        # With an Ingress, attendees see the controller's certificate.
        whose = "for the teacher's page alone: " if told.is_by_ingress else ""
        console.result(f"Certificate {whose}SHA-256 {workshop.door.secrets.fingerprint() or 'not made yet'}")
    console.result("\nNext: ./invokew workshop --sheet FILE writes a link for each place")


def _show_rows(console: Console, rows: Sequence[Row]) -> None:
    if console.as_json:
        console.document({"places": [row.document() for row in rows]})
    console.table(
        ("place", "namespace", "state", "attendee", ""),
        [
            (row.name, row.namespace, row.state, row.claim.attendee if row.claim else "", row.detail)
            for row in rows
        ],
    )


def alone_with(workshop: Workshop, console: Console) -> AbstractContextManager[None]:
    """Returns a context manager with the cluster's lock; it waits for another command."""
    lock = workshop.base.instance.lock(workshop.settings.cache_folder)
    return alone(lock, lambda: console.event("Another command changes this cluster: waiting for its end"))
