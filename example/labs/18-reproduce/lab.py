"""Checks lab 18: the recorded job fails here as it did there, was looked into, and runs when it is mended."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from bootstrap.labs.exercise import Exercise
from rayside import yaml_file

TARGETS = ("local",)
_HERE = Path(__file__).parent
_FEES = "fees {'105': 15, '106': 0, '107': 30}"


def solve(exercise: Exercise) -> None:
    exercise.write_answers(order=106, cents=4)


def verify(exercise: Exercise) -> None:
    order, cents = exercise.answer("order"), exercise.answer("cents")
    entrypoint = " ".join(exercise.text("entrypoint.txt").split())
    runtime_env = _runtime_env(exercise)
    _check_answers(exercise, _failing(exercise, entrypoint, runtime_env), order, cents)
    mended = replace(exercise, folder=exercise.folder / "job")
    run = mended.run(entrypoint, runtime_env=runtime_env)
    exercise.require(
        "ZeroDivisionError" not in run.output,
        "with your job/main.py the same job still fails in the same way",
        "see to the order that has less than one coin",
    )
    exercise.succeeded(run)
    exercise.require(
        _FEES in run.output,
        f"the mended job does not say {_FEES}",
        "an order of less than one coin costs no fee, and the others cost what they did",
    )


def _failing(exercise: Exercise, entrypoint: str, runtime_env: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Runs the program as it was at the beginning, as the learner says; returns where it stopped."""
    recorded = json.loads((_HERE / "failed" / "job.json").read_text())
    original = replace(exercise, folder=_HERE / "job")
    job = original.submit(entrypoint, runtime_env=runtime_env, debug=True)
    stopped: list[dict[str, Any]] = original.debug(job, exceptions=True, evaluate=["order", "cents"])[
        "stopped"
    ]
    run = original.wait(job)
    hint = "failed/job.json has the whole entrypoint, and in runtime_env the environment"
    exercise.require(
        run.status == "FAILED", "the job that you have described succeeds, and the recorded one failed", hint
    )
    exercise.require(
        "ZeroDivisionError" in run.output,
        f"it fails in another way than the recorded job: {run.output.strip().splitlines()[-1]}",
        hint,
    )
    exercise.require(
        entrypoint == recorded["entrypoint"],
        f"the recorded job was not run as {entrypoint!r}",
        "write the entrypoint of failed/job.json into entrypoint.txt",
    )
    # It is the record that has to be made anew where this fails, not the learner's work.
    package = exercise.job(job).runtime_env["working_dir"]
    assert package == recorded["runtime_env"]["working_dir"], f"the folder is now packed as {package}"
    return stopped


def _check_answers(exercise: Exercise, stopped: list[dict[str, Any]], order: object, cents: object) -> None:
    seen = [stop["evaluated"] for stop in stopped]
    assert seen, "the task that fails did not stop at its exception"
    exercise.require(
        {"order": repr(str(order)), "cents": str(cents)} in seen,
        f"the task of order {order} with {cents} cents did not stop",
        "./invokew debug --exceptions stops in the task that fails: p order, cents",
    )


def _runtime_env(exercise: Exercise) -> dict[str, Any]:
    written = yaml_file.read(exercise.folder / "runtime_env.yaml")
    variables = written.get("env_vars") if isinstance(written, Mapping) else None
    if not isinstance(variables, Mapping) or not all(isinstance(value, str) for value in variables.values()):
        exercise.not_solved(
            "runtime_env.yaml has no env_vars with a text for each",
            'write them as in env_vars: {NAME: "value"}',
        )
    return dict(written)
