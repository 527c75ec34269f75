"""Checks lab 16: why each of three tasks does not start was seen, and the mended job makes its book."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from bootstrap.labs.exercise import PATIENCE, Exercise
from rayside.waiting import until

TARGETS = ("local", "kind", "pod")
_SEEN = {
    "impossible": "compare what each task asks for with what the cluster has",
    "starved": "it asks for a processor alone; see what is free, and what the placement group holds",
    "innocent": "its state is PENDING_ARGS_AVAIL: its arguments are not there yet",
}
# After so many seconds without a free processor nobody is about to give one back.
_HELD = 10.0


def solve(exercise: Exercise) -> None:
    exercise.write_answers(impossible="cover", starved="index", innocent="bind")


def verify(exercise: Exercise) -> None:
    answers = {name: exercise.answer(name) for name in _SEEN}
    seen = _seen(exercise)
    for name, hint in _SEEN.items():
        exercise.require(answers[name] == seen[name], f"{answers[name]} is not the one that is {name}", hint)
    job = exercise.submit("python main.py")
    why = _watch(exercise, job)
    exercise.require(not why, why, "ask it for what there is, or give back the group when its tasks are done")
    run = exercise.succeeded(exercise.wait(job))
    exercise.require(
        "scanned 4 of 4 pages in the group" in run.output,
        "the pages are not scanned in a placement group",
        "keep the group for the scans, and remove it when they are done",
    )
    exercise.require(
        "bound an index of 4 pages and a cover" in run.output,
        "the book has not got its index and its cover",
        "leave the tasks as they are; only what they ask for, and when, has to change",
    )


def _seen(exercise: Exercise) -> dict[str, str]:
    """Runs the program as it was at the beginning until it stands still; returns which task is what."""
    original = replace(exercise, folder=Path(__file__).parent)
    job = original.submit("python main.py")

    def which() -> dict[str, str]:
        return {
            _kind(exercise, task): task["name"]
            for task in _tasks(exercise, job)
            if task["state"].startswith("PENDING") and task["name"] != "scan"
        }

    seen = until(which, lambda found: set(found) == set(_SEEN), PATIENCE)
    exercise.dashboard.stop(job)
    exercise.wait(job)
    assert set(seen) == set(_SEEN), f"the program as it was at the beginning has {seen}"
    return seen


def _watch(exercise: Exercise, job: str) -> str:
    """Returns why the learner's job will never end; empty when it has ended, or may still end."""
    held_since: float | None = None

    def stuck() -> str:
        nonlocal held_since
        # A task inside the group has its processor; it waits for a worker to come up.
        waiting = [
            task
            for task in _tasks(exercise, job)
            if task["state"] == "PENDING_NODE_ASSIGNMENT" and not task["placement_group_id"]
        ]
        for task in waiting:
            if _kind(exercise, task) == "impossible":
                return f"{task['name']} asks for {_wish(task)}, and no node has that"
        if not waiting or _free(exercise, job) >= 1 or "scanned" not in exercise.dashboard.output(job):
            held_since = None
            return ""
        held_since = held_since or time.monotonic()
        held = time.monotonic() - held_since > _HELD
        names = " and ".join(sorted({task["name"] for task in waiting}))
        return f"the placement group holds every processor, and nothing is left for {names}" if held else ""

    def look() -> tuple[bool, str]:
        ended = exercise.job(job).ended
        return ended, "" if ended else stuck()

    return until(look, any, PATIENCE)[1]


def _tasks(exercise: Exercise, job: str) -> list[dict[str, Any]]:
    job_id = exercise.job(job).job_id
    return exercise.dashboard.table("tasks", job_id=job_id) if job_id else []


def _kind(exercise: Exercise, task: Mapping[str, Any]) -> str:
    """Returns what a task that does not start is: one of the names in `answers.yaml`."""
    if task["state"] == "PENDING_ARGS_AVAIL":
        return "innocent"
    wish = _wish(task)
    nodes = exercise.dashboard.table("nodes", state="ALIVE")
    fits = any(
        all(node["resources_total"].get(name, 0) >= amount for name, amount in wish.items()) for node in nodes
    )
    return "starved" if fits else "impossible"


def _wish(task: Mapping[str, Any]) -> dict[str, float]:
    return dict(task["required_resources"] or {})


def _free(exercise: Exercise, job: str) -> float:
    """Returns how many processors of the cluster no placement group of the job holds."""
    groups = exercise.dashboard.table("placement_groups", creator_job_id=exercise.job(job).job_id or "")
    held = sum(
        bundle["unit_resources"].get("CPU", 0)
        for group in groups
        if group["state"] == "CREATED"
        for bundle in group["bundles"]
    )
    nodes = exercise.dashboard.table("nodes", state="ALIVE")
    return float(sum(node["resources_total"].get("CPU", 0) for node in nodes) - held)
