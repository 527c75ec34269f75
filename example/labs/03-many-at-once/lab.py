"""Checks lab 3: what was seen in three tasks, three coroutines and three threads, and the mended actors."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from bootstrap.errors import NotSolved
from bootstrap.labs.exercise import Exercise

TARGETS = ("local", "kind", "pod")

_STOPS = {
    "visit": ("main.py", 'return f"{visitor} holds'),
    "book": ("theatre.py", "self.next_seat = seat + 1"),
    "ticket": ("theatre.py", 'return f"seat {seat}'),
}
# A lock that is held while a call waits for the others would hold all of them for ever.
_PATIENCE = 90.0


def solve(exercise: Exercise) -> None:
    exercise.write_answers(seat=1, next_seat=2, visit=3, book=1, ticket=1)


def verify(exercise: Exercise) -> None:
    answers = {name: exercise.answer(name) for name in ("seat", "next_seat", *_STOPS)}
    job = exercise.submit("python main.py")  # It runs while the other is debugged.
    with exercise.untouched(Path(__file__).parent) as untouched:
        stops = _stops(untouched)
    for name, seen in stops.items():
        processes = len({stop["worker_id"] for stop in seen})
        exercise.require(
            answers[name] == processes,
            f"the stops in {name} are not of {answers[name]} processes",
            "the process's number is in the title of each stop: compare those",
        )
    second = stops["book"][1]["evaluated"]
    for name, expression in (("seat", "seat"), ("next_seat", "self.next_seat")):
        exercise.require(
            str(answers[name]) == second[expression],
            f"{expression} was not {answers[name]} at the second stop in Office.book",
            "evaluate both at each stop, before you continue",
        )
    _check_tickets(exercise, job)


def _stops(untouched: Exercise) -> dict[str, list[dict[str, Any]]]:
    """Returns the stops in each of the functions, which the lab's own files make."""
    job = untouched.submit("python main.py", debug=True)
    breaks = [(file, untouched.line(file, text)) for file, text in _STOPS.values()]
    document = untouched.debug(job, breaks=breaks, evaluate=["seat", "self.next_seat"])
    untouched.succeeded(untouched.wait(job))
    stops = {
        name: [stop for stop in document["stopped"] if (Path(stop["file"]).name, stop["line"]) == place]
        for name, place in zip(_STOPS, breaks, strict=True)
    }
    assert all(len(seen) == 3 for seen in stops.values()), document
    return stops


def _check_tickets(exercise: Exercise, job: str) -> None:
    """Checks that each visitor holds a ticket of their own, for a seat of their own. Raises NotSolved."""
    try:
        run = exercise.wait(job, patience=_PATIENCE)
    except NotSolved as running:
        exercise.not_solved(
            running.message, "no call may hold a lock while it waits for calls that need the same"
        )
    output = exercise.succeeded(run).output
    tickets = re.findall(r"^(\w+) holds: seat (\d+) for (\w+)$", output, re.MULTILINE)
    told = "; ".join(f"{holder} holds seat {seat} for {name}" for holder, seat, name in tickets)
    seats = sorted(seat for _, seat, _ in tickets)
    exercise.require(
        seats == ["1", "2", "3"],
        f"the seats 1, 2 and 3 are to be sold, and {told or 'no ticket was printed'}",
        "between the reading and the writing of next_seat no other call may get its turn",
    )
    exercise.require(
        all(holder == name for holder, _, name in tickets),
        f"a ticket is for another visitor: {told}",
        "what belongs to one call is kept in a local variable, for all threads share self",
    )
