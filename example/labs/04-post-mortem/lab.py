"""Checks lab 4: the failed task was looked into, and its driver knows what to refuse and what to repeat."""

from __future__ import annotations

from pathlib import Path

from bootstrap.labs.exercise import Exercise

TARGETS = ("local", "kind", "pod")

_OUTCOMES = ("north 930", "south refused: math domain error", "west 1170")


def solve(exercise: Exercise) -> None:
    exercise.write_answers(field="vineyard", half=46.5, runs=1, condition="register.attempt() == 2")


def verify(exercise: Exercise) -> None:
    field, half, runs = (exercise.answer(name) for name in ("field", "half", "runs"))
    condition = str(exercise.answer("condition"))
    with exercise.untouched(Path(__file__).parent) as untouched:
        job = untouched.submit("python main.py", debug=True, post_mortem=True)
        document = untouched.debug(job, evaluate=["district", "name", "half"])
        untouched.succeeded(untouched.wait(job))
    stops = [stop["evaluated"] for stop in document["stopped"] if stop["reason"] == "exception"]
    (south,) = [stop for stop in stops if stop["district"] == "'south'"]
    west = [stop for stop in stops if stop["district"] == "'west'"]
    exercise.require(
        repr(field) == south["name"],
        f"the task did not fail at {field}",
        "evaluate `name` where the task of the south stopped",
    )
    exercise.require(
        str(half) == south["half"],
        f"half was not {half} there",
        "evaluate `half` where the task of the south stopped",
    )
    exercise.require(
        runs == len(west),
        f"Ray did not run the task of the west {runs} times",
        "each run that fails is one stop: count those of the west, in the code as it came",
    )
    _check_mended(exercise, condition)


def _check_mended(exercise: Exercise, condition: str) -> None:
    """Checks what the mended job prints, what it repeats, and where the condition stops. Raises NotSolved."""
    connect, begin = exercise.line("main.py", "register.connect("), exercise.line("main.py", "areas = {}")
    job = exercise.submit("python main.py", debug=True)
    breaks = [("main.py", connect, condition), ("main.py", begin, "district == 'south'")]
    document = exercise.debug(job, breaks=breaks, evaluate=["district", "register.attempt()"])
    output = exercise.succeeded(exercise.wait(job)).output
    hints = (
        "the north was right: do not change how an area is computed",
        "the first except clause that fits is taken, and both fit; error.cause has the short text",
        "retry_exceptions of @ray.remote names the exceptions after which Ray runs a task again",
    )
    for wanted, hint in zip(_OUTCOMES, hints, strict=True):
        exercise.require_printed(output, wanted, hint)
    stops = [(stop["line"], stop["evaluated"]) for stop in document["stopped"]]
    souths = [seen for line, seen in stops if line == begin]
    exercise.require(
        len(souths) == 1,
        f"Ray ran the task of the south {len(souths)} times, and a wrong field stays wrong",
        "give retry_exceptions a list with the one exception that passes by itself",
    )
    seen = [(stop["district"], stop["register.attempt()"]) for line, stop in stops if line == connect]
    exercise.require(
        seen == [("'west'", "2")],
        f"with the condition {condition} it stopped {len(seen)} times: {seen}",
        "the first run is attempt 0; register.attempt() says which it is",
    )
