"""Checks of the labs themselves: each exercise fails before it is solved, and passes after."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bootstrap.errors import NotSolved, OtherTarget
from bootstrap.labs.copies import Copy
from bootstrap.labs.exercise import Exercise
from bootstrap.labs.lesson import Lesson, lacking
from bootstrap.settings import POD
from bootstrap.targets.target import Target
from rayside.errors import MissingProgram, RaysideError

# Limit in seconds: a lesson takes at most ten minutes.
LONGEST = 600.0


@dataclass(frozen=True)
class Result:
    """One lab's result; `status` is passed, failed or skipped, `why` is empty if it passed."""

    name: str
    target: str
    status: str
    seconds: float
    why: str = ""

    def document(self) -> dict[str, Any]:
        return asdict(self)


def checked(lesson: Lesson, target: Target, report: Callable[[str], None]) -> Result:
    if why := cannot_run(lesson, target):
        return Result(lesson.name, target.instance.target, "skipped", 0.0, why)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="rayside-lab-") as home:
        why = _why_not(lesson, Path(home), target, report)
    seconds = round(time.monotonic() - began, 1)
    if not why and seconds > LONGEST:
        why = f"it took {seconds:.0f} s, and a lab is for at most {LONGEST:.0f}"
    return Result(lesson.name, target.instance.target, "failed" if why else "passed", seconds, why)


def cannot_run(lesson: Lesson, target: Target) -> str:
    """Returns why a lab can't run on that target, with a hint; empty if it can."""
    try:
        require_possible(lesson, target)
    except (OtherTarget, MissingProgram) as error:
        return f"{error.message}: {error.hint}"
    return ""


def require_possible(lesson: Lesson, target: Target) -> None:
    """Checks that a lab can run on that target. Raises OtherTarget, MissingProgram."""
    if target.instance.target not in lesson.targets:
        names = " or ".join(lesson.targets)
        up = f"./invokew up --target {lesson.targets[0]}"
        # A workspace can't create clusters.
        hint = f"{up}, where Rayside was cloned" if target.instance.target == POD else up
        raise OtherTarget(f"it needs a cluster on {names}", hint=hint)
    if needs := lacking(lesson.needs):
        brings = " && ".join(need.brings for need in needs.values())
        raise MissingProgram(f"it needs {' and '.join(needs)}", hint=brings)


def verify(exercise: Exercise, lesson: Lesson) -> None:
    try:
        lesson.code.verify(exercise)
    finally:
        exercise.close()


def _why_not(lesson: Lesson, home: Path, target: Target, report: Callable[[str], None]) -> str:
    """Returns why the lab does not work as it should; empty if it does."""
    copy = Copy(lesson, home)
    exercise = Exercise(copy.folder, target, report)
    try:
        set_up(lesson, copy, exercise)
        try:
            verify(exercise, lesson)
            return "its check passes before it is solved"
        except NotSolved as not_solved:
            report(f"before it is solved: {not_solved.message}")
        solve(lesson, copy, exercise)
        verify(exercise, lesson)
    except NotSolved as not_solved:
        return f"solved, its check says: {not_solved.message}"
    except RaysideError as error:
        return f"{error.id}: {error.message}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    finally:
        exercise.close()
    return ""


def set_up(lesson: Lesson, copy: Copy, exercise: Exercise) -> None:
    copy.make()
    if hasattr(lesson.code, "setup"):
        lesson.code.setup(exercise)


def solve(lesson: Lesson, copy: Copy, exercise: Exercise) -> None:
    copy.solve()
    if hasattr(lesson.code, "solve"):
        lesson.code.solve(exercise)
