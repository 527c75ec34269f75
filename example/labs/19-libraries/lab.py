"""Checks lab 19: functions of Ray Data, Tune and Train were looked into in their workers, and are mended."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from bootstrap.labs.exercise import Exercise
from rayside import yaml_file

TARGETS = ("local",)
# Seconds: most of them are pip's, once for each cluster.
_PATIENCE = 400.0
# Each is there in one of the functions, mended or not, for it looks at what the function was given.
_STATION, _UNIT = "str(batch['station'][0])", "str(batch['unit'][0])"
_THRESHOLD = "config['threshold']"
_MISSED = "config['counted'] - len([day for day in config['celsius'] if day >= config['threshold']])"
_RANK, _WARM = "rank", "part == sorted(config['celsius'])[-3:]"
_OUTCOMES = {
    "coldest -10.0": "a reading has a unit: what is Celsius already needs no conversion",
    "threshold 10": "the best trial is the one with the least `off`: which one is less than none?",
    "rank 0 has -15.0": "leave train_loop as it was",
}


def solve(exercise: Exercise) -> None:
    exercise.write_answers(station="harbour", threshold=20, rank=1)


def verify(exercise: Exercise) -> None:
    answers = {name: exercise.answer(name) for name in ("station", "threshold", "rank")}
    stops, output = _debugged(exercise)
    (wrong,) = [stop[_STATION] for stop in stops["convert"] if stop[_UNIT] == "'C'"]
    exercise.require(
        repr(answers["station"]) == wrong,
        f"the batch of {answers['station']} was right as it came",
        "stop where celsius.min() < -12, and look at batch",
    )
    trials = stops["objective"]
    # A trial runs in a thread of its own, and has its name there all the same.
    assert len({stop["task"] for stop in trials}) == 2, trials
    assert all(re.fullmatch(r"objective_\w+", stop["task"]) for stop in trials), trials
    (below,) = [stop[_THRESHOLD] for stop in trials if int(stop[_MISSED]) > 0]
    exercise.require(
        str(answers["threshold"]) == below,
        f"off was not below zero for the threshold {answers['threshold']}",
        "look at config and off at the stop of each trial",
    )
    ranks = stops["train_loop"]
    assert all(re.fullmatch(rf".+ rank {stop[_RANK]}", stop["task"]) for stop in ranks), ranks
    (warm,) = [stop[_RANK] for stop in ranks if stop[_WARM] == "True"]
    exercise.require(
        str(answers["rank"]) == warm,
        f"rank {answers['rank']} has not got the warm half",
        "both workers stop: look at rank and part in each",
    )
    for outcome, hint in _OUTCOMES.items():
        name = outcome.rpartition(" ")[0]
        line = next((line for line in output.splitlines() if line.startswith(name)), f"nothing of {name}")
        exercise.require(line == outcome, f"the job says {line!r}, and {outcome!r} is right", hint)


def _debugged(exercise: Exercise) -> tuple[dict[str, list[dict[str, Any]]], str]:
    """Returns where the learner's program stops, and what it prints.

    The stops are those of each function: the task, and what was evaluated.
    """
    job = exercise.submit("python main.py", runtime_env=_runtime_env(exercise), debug=True)
    lines = [
        exercise.line("weather.py", text) for text in ('return {"celsius"', 'return {"off"', "sum(part)")
    ]
    document = exercise.debug(
        job,
        breaks=[("weather.py", line) for line in lines],
        evaluate=[_STATION, _UNIT, _THRESHOLD, _MISSED, _RANK, _WARM],
        timeout=_PATIENCE,
    )
    run = exercise.succeeded(exercise.wait(job))
    stops: dict[str, list[dict[str, Any]]] = {"convert": [], "objective": [], "train_loop": []}
    for stop in document["stopped"]:
        stops[stop["function"]].append({"task": stop["task"], **stop["evaluated"]})
    return stops, run.output


def _runtime_env(exercise: Exercise) -> Mapping[str, Any]:
    document = yaml_file.read(exercise.folder / "runtime_env.yaml")
    if not isinstance(document, dict) or "pip" not in document:
        exercise.not_solved("runtime_env.yaml brings nothing by pip", exercise.brought_back)
    return document
