"""Checks lab 2: a condition, a hit count and a logpoint do what was asked, in code that nobody edited."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bootstrap.labs.exercise import Exercise
from rayside import yaml_file
from rayside.relay.stop_points import FORMS, HitCondition

TARGETS = ("local", "kind", "pod")

_POINTS = "breakpoints.yaml"
_HOURS = "[hour for hour, tenth in enumerate(tenths) if tenth <= -900]"
_TENTHS = "[tenth for tenth in tenths if tenth > -900]"


def solve(exercise: Exercise) -> None:
    exercise.write_answers(station="summit", mean=-3.2)


def verify(exercise: Exercise) -> None:
    exercise.require(
        exercise.text("main.py") == (Path(__file__).parent / "main.py").read_text(),
        "main.py was edited, and this lab is about code that stays as it is",
        exercise.brought_back,
    )
    station, mean = exercise.answer("station"), exercise.answer("mean")
    last = exercise.line("main.py", 'return f"{station}')
    second, log = (_point(exercise, name, last) for name in ("second", "log"))
    exercise.require(
        second["line"] != log["line"],
        f"both breakpoints are in line {log['line']}",
        "an editor has one breakpoint in a line: put one of them into another line of the loop",
    )

    job = exercise.submit("python main.py", debug=True)
    # The stop at the last line tells what is right, and comes behind all that the logpoint of its task says.
    points = {"main.py": [second, log, {"line": last}]}
    hours, without = _HOURS, f"round(sum({_TENTHS}) / len({_TENTHS}) / 10, 1)"
    document = exercise.debug(job, points=points, evaluate=["station", "hour", hours, without])
    exercise.succeeded(exercise.wait(job))
    stops = [
        {name: ast.literal_eval(value) for name, value in stop["evaluated"].items()} | {"line": stop["line"]}
        for stop in document["stopped"]
    ]
    truths = {stop["station"]: stop for stop in stops if stop["line"] == last}
    wrong = {name: stop[hours] for name, stop in truths.items() if stop[hours]}
    assert list(wrong) == ["summit"], document

    exercise.require(
        station in list(wrong),
        f"all that {station} has sent are temperatures",
        "stop with the condition `degrees < -90`, and look at `station`",
    )
    exercise.require(
        isinstance(mean, int | float) and abs(mean - truths[station][without]) < 0.06,
        f"the mean of {station} is not {mean}",
        "evaluate it where the task stops: the readings are in `tenths`",
    )
    _check_second([stop for stop in stops if stop["line"] != last], wrong[station], exercise)
    _check_log([message["text"] for message in document["messages"]], wrong[station], exercise)


def _point(exercise: Exercise, name: str, last: int) -> dict[str, Any]:
    """Returns one of the learner's breakpoints, as DAP has it. Raises NotSolved."""
    document = yaml_file.read(exercise.folder / _POINTS)
    point = document.get(name) if isinstance(document, Mapping) else None
    asked = ("line", "condition", "hitCondition" if name == "second" else "logMessage")
    for part in asked:
        exercise.require(
            isinstance(point, Mapping) and point.get(part) is not None,
            f"{_POINTS} has no {part} for {name}",
            f"write it below {name}:, as the comment there asks",
        )
    assert isinstance(point, Mapping)
    first = exercise.line("main.py", "for hour, tenth") + 1
    exercise.require(
        point["line"] in range(first, last),
        f"the line of {name} is {point['line']}, and the loop's lines are {first} to {last - 1}",
        "a reading is looked at in the loop",
    )
    count = str(point.get("hitCondition", "1"))
    exercise.require(
        HitCondition.of(count) is not None, f"the hitCondition {count!r} is not understood", f"it is {FORMS}"
    )
    return {part: point[part] if part == "line" else str(point[part]) for part in asked}


def _check_second(stops: list[dict[str, Any]], hours: list[int], exercise: Exercise) -> None:
    exercise.require(
        len(stops) == 1,
        f"the breakpoint `second` stopped {len(stops)} times, and once is asked for",
        "a condition chooses the readings, a hitCondition of 2 the second of those",
    )
    (stop,) = stops
    exercise.require(
        (stop["station"], stop["hour"]) == ("summit", hours[1]),
        f"the breakpoint `second` stopped at hour {stop['hour']} of {stop['station']}",
        "a breakpoint stops before its line runs: what its condition names has to be there by then",
    )


def _check_log(texts: list[str], hours: list[int], exercise: Exercise) -> None:
    said = "\n".join(texts[:5]) or "(nothing)"
    exercise.require(
        len(texts) == len(hours),
        f"the logpoint spoke {len(texts)} times, for {len(hours)} readings that are no temperature\n{said}",
        "its condition is that of `second`; it needs no hitCondition",
    )
    for hour, text in zip(hours, texts, strict=True):
        exercise.require(
            re.search(rf"(?<![\d.]){hour}(?![\d.])", text) and "-99.9" in text,
            f"the logpoint says {text!r}, and not that hour {hour} has -99.9",
            "what stands in braces is evaluated: {hour}",
        )
