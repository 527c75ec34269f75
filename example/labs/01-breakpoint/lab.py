"""Checks lab 1: the wrong sum was seen at the breakpoint, and the package is mended."""

from __future__ import annotations

from bootstrap.labs.exercise import Exercise

TARGETS = ("local", "kind", "pod")


def solve(exercise: Exercise) -> None:
    exercise.write_answers(shop="west", cents=421)


def verify(exercise: Exercise) -> None:
    shop, cents = exercise.answer("shop"), exercise.answer("cents")
    exercise.require(
        shop == "west", f"the sum of {shop} is right", "look at `sales` and `cents` of each stop"
    )
    exercise.require(
        cents == 421, f"the sum was not {cents}", "evaluate `cents` where the task of that shop stops"
    )
    job = exercise.submit("python main.py", py_modules=["prices"])
    document = exercise.debug(job, evaluate=["shop"])
    shops = {stop["evaluated"]["shop"] for stop in document["stopped"]}
    exercise.require(
        len(shops) == 3, f"{len(shops)} of 3 tasks stopped", "leave breakpoint() in main.py where it was"
    )
    run = exercise.succeeded(exercise.wait(job))
    exercise.require(
        "total 1175" in run.output,
        f"the job says {run.output.strip().splitlines()[-1]!r}, and 11.75 is right",
        "step into in_cents for the price 4.1, and mend prices/__init__.py",
    )
