"""Checks lab 5: what can't be pickled was found, and neither it nor the large table is captured any more."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from bootstrap.labs.exercise import Exercise, Run

TARGETS = ("local", "kind", "pod")
# A function with nothing large in it weighs less than 2 kB.
_LIGHT = 100_000


def solve(exercise: Exercise) -> None:
    exercise.write_answers(first="LOCK", second="JOURNAL", mebibytes=15)


def verify(exercise: Exercise) -> None:
    first, second, mebibytes = (exercise.answer(name) for name in ("first", "second", "mebibytes"))
    # The program as it was at the beginning says what the learner has seen; both jobs run at once.
    original = replace(exercise, folder=Path(__file__).parent)
    looking = original.submit("python main.py --look")
    working = exercise.submit("python main.py")
    named = _not_serializable(exercise.succeeded(exercise.wait(looking)))
    exercise.require(
        [first] == named,
        f"inspect_serializability does not name {first} first",
        "submit main.py --look as it was at the beginning: behind FailTuple( stands the name",
    )
    exercise.require(
        second == "JOURNAL",
        f"without {first} it names another variable than {second}",
        f"take {first} out of main.py, and submit main.py --look again",
    )
    exercise.require(
        str(mebibytes).startswith("15"),
        f"the function did not weigh {mebibytes} MiB with the table in it",
        "Ray's warning that the remote function is very large says it in parentheses",
    )
    _check(exercise, exercise.wait(working))


def _check(exercise: Exercise, run: Run) -> None:
    captured = ", ".join(_not_serializable(run))
    exercise.require(
        not captured,
        f"Ray still can't pickle {captured}",
        "make it inside an actor, and give the tasks the actor's handle",
    )
    exercise.succeeded(run)
    exercise.require(
        "corrected [6.0, 21.0, 240.0, 3978.0]" in run.output,
        "the readings are not corrected as they were",
        "each reading still has to be multiplied by its factor: table.corrected(reading)",
    )
    exercise.require(
        "journal has 4 readings" in run.output,
        "the journal has not got the four readings",
        "one actor keeps the journal for all tasks; ask it how many it has",
    )
    exercise.require(
        _number(exercise, run, r"function weighs (\d+) bytes") < _LIGHT,
        "the function still carries the table",
        "make the table an argument of correct",
    )
    times = _number(exercise, run, r"table was pickled (\d+) times")
    exercise.require(
        times == 1,
        f"the table was pickled {times} times, and once is enough",
        "ray.put the table once, and give each task the reference",
    )


def _not_serializable(run: Run) -> list[str]:
    """Returns the variables that `inspect_serializability` has named in the output."""
    return re.findall(r"FailTuple\((\w+) ", run.output)


def _number(exercise: Exercise, run: Run, pattern: str) -> int:
    found = re.search(pattern, run.output)
    if found is None:
        exercise.not_solved(
            "the last two lines of main.py are gone", "they say what was sent: put them back at its end"
        )
    return int(found[1])
