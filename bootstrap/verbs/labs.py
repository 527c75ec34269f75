"""Verbs `labs` and `lab`: list the labs, guide a learner through one, check one or all."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from bootstrap.errors import NotSolved, RayDied
from bootstrap.labs import checking, copies
from bootstrap.labs.copies import Copy, Progress
from bootstrap.labs.exercise import Exercise
from bootstrap.labs.lesson import Lesson, find, lessons
from bootstrap.settings import ROOT, Settings
from bootstrap.targets import choice
from rayside.console import Console
from rayside.errors import InvalidArgument, NotRunning
from rayside.ray.state import Dashboard
from rayside.settings import as_environment
from rayside.system.shell import Shell

_ASKS_TO_RUN = "\nEnter runs it, s skips it, q leaves: "
_ASKS_TO_GO_ON = "\nEnter goes on, q leaves: "
# Exit codes of a command that did not do its work: Rayside's (docs/verbs.md), the shell's, Ctrl-C. Others
# may be the lesson itself: a job that fails, a wrong type.
_NOT_DONE = {2, 3, 4, 6, 126, 127, 130}


def lab(
    settings: Settings, console: Console, name: str | None, *, all: bool, update: Path | None, **asked: Any
) -> int:
    """Runs the one of `step`, `check`, `solve`, `reset` and `update` that is given; returns the exit code."""
    given = {option: value for option, value in {**asked, "update": update}.items() if value}
    if all:
        if name or [*given] not in (["check"], ["reset"]):
            raise InvalidArgument(
                "--all goes with --check or with --reset, and with nothing else",
                hint="./invokew lab --all --check",
            )
        if "check" in given:
            return check_all(settings, console)
        begun = [copy for copy in map(Copy, lessons()) if copy.exists]
        reset(settings, console, begun, everything=True)
        return 0
    if len(given) > 1:
        raise InvalidArgument(
            "--step, --check, --solve, --reset and --update are five commands", hint="give one of them"
        )
    if not name:
        raise InvalidArgument("no lab was named", hint="./invokew labs lists them")
    lesson = find(name, lessons())
    if "step" in given:
        return run_step(settings, console, lesson, given["step"])
    if update:
        take_over(console, lesson, update)
    elif "reset" in given:
        reset(settings, console, [Copy(lesson)], everything=False)
    else:
        (check if "check" in given else solve if "solve" in given else follow)(settings, console, lesson)
    return 0


def list_labs(settings: Settings, console: Console) -> None:
    """Lists the labs, with their targets, needs, and whether they were passed here."""
    rows = [(lesson, Copy(lesson).progress()) for lesson in lessons()]
    if console.as_json:
        console.document([_document(lesson) for lesson, _ in rows])
    console.table(
        ("lab", "passed", "on", "about"),
        [
            (lesson.name, "yes" if progress.passed else "-", ", ".join(lesson.targets), lesson.title)
            for lesson, progress in rows
        ],
    )
    following = next((lesson for lesson, progress in rows if not progress.passed), None)
    if following:
        console.result(f"\nNext: ./invokew lab {following.name}")


def check_all(settings: Settings, console: Console) -> int:
    """Checks that each lab fails unsolved, and passes solved; returns 1 if one does not.

    The learner's copies are unchanged.
    """
    target = choice.existing(settings, Shell())
    target.access.require()
    results = []
    with console.progress():
        for lesson in lessons():
            console.started(lesson.name, lesson.name)
            result = checking.checked(lesson, target, partial(console.note, lesson.name))
            outcome = {"passed": "done", "skipped": "kept"}.get(result.status, "failed")
            detail = f"{result.status}, {result.why}" if result.why else result.status
            console.finished(lesson.name, lesson.name, outcome, detail)
            results.append(result)
    failed = [result.name for result in results if result.status == "failed"]
    if console.as_json:
        console.document({"labs": [result.document() for result in results]})
    console.result(
        f"failed: {', '.join(failed)}" if failed else "every lab can be done here, or says why not"
    )
    return 1 if failed else 0


def reset(settings: Settings, console: Console, begun: Sequence[Copy], *, everything: bool) -> None:
    """Resets these copies, and ends the jobs of their labs; edited files are kept elsewhere."""
    # Before the reset: running jobs might still write into the copies.
    _end_jobs_of(settings, console, [copy.lesson for copy in begun])
    results = [(copy, copy.reset()) for copy in begun]
    if console.as_json:
        rows = [{"folder": str(copy.folder), "kept": str(kept) if kept else None} for copy, kept in results]
        named = [{"name": copy.lesson.name, **row} for copy, row in zip(begun, rows, strict=True)]
        console.document({"labs": named} if everything else rows[0])
    for copy, kept in results:
        edited = f"; what you had edited is in {kept}" if kept else ""
        console.result(f"{copy.folder} is as at the beginning{edited}")
    following = "labs" if everything else f"lab {begun[0].lesson.name}"
    console.result(f"{'' if begun else 'No lab was begun. '}Next: ./invokew {following}")


def check(settings: Settings, console: Console, lesson: Lesson) -> None:
    """Checks the learner's exercise. Raises NotSolved."""
    copy, exercise = _at_work(settings, console, lesson)
    _make_room(console, lesson, exercise)
    try:
        with console.progress(), console.work(lesson.name, f"check of {lesson.name}"):
            checking.verify(exercise, lesson)
    except NotSolved:
        progress = copy.progress()
        copy.note(replace(progress, checks_failed=progress.checks_failed + 1))
        raise
    copy.note(Progress(len(lesson.steps), passed=True))
    if console.as_json:
        console.document({"name": lesson.name, "passed": True})
    console.result(f"Passed: {lesson.title}")


def take_over(console: Console, lesson: Lesson, changed: Path) -> None:
    """Replaces a lab by the one in the folder `changed`; the learner's edited files stay."""
    if "RAYSIDE_PROGRESS" not in os.environ:
        # Elsewhere it would overwrite files under version control.
        raise InvalidArgument(
            "--update is for the places of a workshop",
            hint="./invokew workshop --push LAB brings a lab there",
        )
    if not (changed / "lab.py").is_file() or not (changed / "README.md").is_file():
        raise InvalidArgument(f"{changed} is no lab", hint="name a folder with a README.md and a lab.py")
    updated, kept = Copy(lesson).update(changed)
    if console.as_json:
        console.document({"name": lesson.name, "updated": updated, "kept": kept})
    console.result(f"{lesson.name} is the one of {changed}")
    for names, what in ((updated, "other files now"), (kept, "files that you edited stay")):
        if names:
            console.result(f"{what}: {', '.join(names)}")


def solve(settings: Settings, console: Console, lesson: Lesson) -> None:
    copy, exercise = _at_work(settings, console, lesson)
    with console.progress(), console.work(lesson.name, f"solution of {lesson.name}"):
        checking.solve(lesson, copy, exercise)
    if console.as_json:
        console.document({"name": lesson.name, "folder": str(copy.folder)})
    console.result(f"{copy.folder} is solved. Next: ./invokew lab {lesson.name} --check")


def follow(settings: Settings, console: Console, lesson: Lesson) -> None:
    """Guides the learner through a lab step by step, from the last finished step.

    Without a terminal it only prints the steps; with JSON it makes the files, and prints their paths.
    """
    copy, exercise = _at_work(settings, console, lesson)
    if console.as_json:
        texts = {"en": str(lesson.folder / "README.md"), "zh": str(lesson.folder / "README.zh.md")}
        console.document({**_document(lesson), "files": copy.files(), "texts": texts})
        return
    console.result(f"{lesson.title}\n\n{lesson.section('Goal')}\n\nThe files are in {copy.folder}", "header")
    done = copy.progress().steps_done if console.typed_at else 0
    if done >= len(lesson.steps):
        done = 0
    for number, step in enumerate(lesson.steps[done:], done + 1):
        console.result(f"\nStep {number} of {len(lesson.steps)}: {step.title}", "current")
        console.result(step.text)
        if not console.typed_at:
            continue
        try:
            typed = console.ask(_ASKS_TO_RUN if step.command else _ASKS_TO_GO_ON)
        except EOFError:
            typed = "q"
        if typed.strip().lower().startswith("q"):
            console.result(f"./invokew lab {lesson.name} goes on here")
            return
        if step.command and not typed.strip():
            _make_room(console, lesson, exercise)
            _run(settings, step.command)
        copy.note(replace(copy.progress(), steps_done=number))
    console.result(f"\n{lesson.section('What you see')}")
    console.result(f"\nNext: ./invokew lab {lesson.name} --check")


def run_step(settings: Settings, console: Console, lesson: Lesson, typed: str) -> int:
    """Runs the command of one step as if the learner had typed it; returns its exit code.

    `typed`: the step's number as text, from 1. Raises InvalidArgument.
    """
    steps = dict(enumerate(lesson.steps, 1))
    number = int(typed) if typed.isascii() and typed.isdigit() else 0
    if number not in steps:
        raise InvalidArgument(f"{lesson.name} has no step {typed!r}", hint=f"it has 1 to {len(steps)}")
    step = steps[number]
    if not step.command:
        raise InvalidArgument(f"step {number} of {lesson.name} runs nothing", hint="do what its text says")
    if console.as_json:
        raise InvalidArgument("--step shows what its command prints", hint="leave --json out")
    copy, exercise = _at_work(settings, console, lesson)
    _make_room(console, lesson, exercise)
    console.result(f"Step {number} of {len(steps)}: {step.title}", "current")
    console.result(step.command)
    code = _run(settings, step.command)
    if code not in _NOT_DONE:
        progress = copy.progress()
        copy.note(replace(progress, steps_done=max(number, progress.steps_done)))
    return code


def _document(lesson: Lesson) -> dict[str, Any]:
    copy = Copy(lesson)
    progress = copy.progress()
    return {
        "name": lesson.name,
        "title": lesson.title,
        "targets": list(lesson.targets),
        "needs": list(lesson.needs),
        "steps": len(lesson.steps),
        "steps_done": progress.steps_done,
        "passed": progress.passed,
        "folder": str(copy.folder),
    }


def _at_work(settings: Settings, console: Console, lesson: Lesson) -> tuple[Copy, Exercise]:
    """Returns the learner's copy, made if missing, and the exercise on the running cluster."""
    target = choice.existing(settings, Shell())
    checking.require_possible(lesson, target)
    target.access.require()
    copy = Copy(lesson)
    exercise = Exercise(copy.folder, target, lambda text: console.note(lesson.name, text))
    # Results of `setup` may be gone, or for another cluster: it makes missing ones again.
    if not copy.exists or hasattr(lesson.code, "setup"):
        with console.progress(), console.work(lesson.name, f"{lesson.name} in {copy.folder}"):
            checking.set_up(lesson, copy, exercise)
    else:
        copy.make()
    return copy, exercise


def _end_jobs_of(settings: Settings, console: Console, begun: Sequence[Lesson]) -> None:
    # Without a cluster there are no jobs.
    with contextlib.suppress(NotRunning, RayDied):
        target = choice.existing(settings, Shell())
        # On a target without labs no job belongs to a lab.
        names = {lesson.name for lesson in begun if target.instance.target in lesson.targets}
        if names:
            _end_left(console, target.access.require(), names.__contains__)


def _make_room(console: Console, lesson: Lesson, exercise: Exercise) -> None:
    """Ends running jobs of other labs, which may occupy the CPUs that this one needs."""
    _end_left(console, exercise.dashboard, lambda lab: lab != lesson.name)


def _end_left(console: Console, dashboard: Dashboard, is_meant: Callable[[str], bool]) -> None:
    jobs = {job: lab for job, lab in copies.running(dashboard).items() if is_meant(lab)}
    if jobs:
        what = " and ".join(f"job {job}, which lab {lab} had left running" for job, lab in jobs.items())
        with console.progress(), console.work("left", f"end of {what}"):
            copies.end(dashboard, jobs)


def _run(settings: Settings, command: str) -> int:
    """Runs the command of a step as if the learner had typed it; returns its exit code as in a shell."""
    environment = {**os.environ, **as_environment(settings)}
    code = subprocess.run(["sh", "-c", command], cwd=ROOT, env=environment, check=False).returncode
    return code if code >= 0 else 128 - code
