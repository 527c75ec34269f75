"""Checks the labs themselves: each exercise fails before it is solved, and passes after."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bootstrap.errors import NotSolved, OtherTarget
from bootstrap.labs import needs
from bootstrap.labs.copies import Copy
from bootstrap.labs.exercise import Exercise
from bootstrap.labs.lesson import Lesson
from bootstrap.settings import POD
from bootstrap.targets.target import Target
from rayside.errors import MissingProgram, RaysideError

# A lesson is for at most ten minutes.
LONGEST = 600.0


@dataclass(frozen=True)
class Result:
    """One lab's result; `status` is passed, failed or skipped, `why` is empty where it passed."""

    name: str
    target: str
    status: str
    seconds: float
    why: str = ""

    def document(self) -> dict[str, Any]:
        return asdict(self)


def check_all(
    lessons: Iterable[Lesson], target: Target, report: Callable[[str, str], None]
) -> Iterable[Result]:
    """Yields the result of each lab, checked in a new copy; `report` gets its name and what goes on."""
    for lesson in lessons:
        if why := cannot_run(lesson, target):
            yield Result(lesson.name, target.instance.target, "skipped", 0.0, why)
            continue
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="rayside-lab-") as home:
            why = _why_not(lesson, Path(home), target, partial(report, lesson.name))
        seconds = round(time.monotonic() - began, 1)
        if not why and seconds > LONGEST:
            why = f"it took {seconds:.0f} s, and a lab is for at most {LONGEST:.0f}"
        yield Result(lesson.name, target.instance.target, "failed" if why else "passed", seconds, why)


def cannot_run(lesson: Lesson, target: Target) -> str:
    """Returns why a lab can't be done on that target, and what helps; empty where it can."""
    try:
        require_possible(lesson, target)
    except (OtherTarget, MissingProgram) as error:
        return f"{error.message}: {error.hint}"
    return ""


def require_possible(lesson: Lesson, target: Target) -> None:
    """Checks that a lab can be done on that target. Raises OtherTarget, MissingProgram."""
    if target.instance.target not in lesson.targets:
        names = " or ".join(lesson.targets)
        up = f"./invokew up --target {lesson.targets[0]}"
        # A workspace brings up none.
        hint = f"{up}, where Rayside was cloned" if target.instance.target == POD else up
        raise OtherTarget(f"it needs a cluster on {names}", hint=hint)
    if lacking := needs.lacking(lesson.needs, target):
        brings = " && ".join(need.brings for need in lacking.values())
        raise MissingProgram(f"it needs {' and '.join(lacking)}", hint=brings)


def verify(exercise: Exercise, lesson: Lesson) -> None:
    """Checks the learner's exercise. Raises NotSolved, and what else its code raises."""
    try:
        lesson.code.verify(exercise)
    finally:
        exercise.close()


def _why_not(lesson: Lesson, home: Path, target: Target, report: Callable[[str], None]) -> str:
    """Returns why the lab does not work as it should; empty where it does."""
    copy = Copy(lesson, home)
    copy.make()
    exercise = Exercise(copy.folder, target, report)
    try:
        _set_up(lesson, exercise)
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


def _set_up(lesson: Lesson, exercise: Exercise) -> None:
    if hasattr(lesson.code, "setup"):
        lesson.code.setup(exercise)


def set_up(lesson: Lesson, copy: Copy, exercise: Exercise) -> None:
    """Makes what is lacking of the copy, and what the lab's own `setup` makes."""
    copy.make()
    _set_up(lesson, exercise)


def solve(lesson: Lesson, copy: Copy, exercise: Exercise) -> None:
    """Solves the exercise: the solution's files, and what the lab's own `solve` does."""
    copy.solve()
    if hasattr(lesson.code, "solve"):
        lesson.code.solve(exercise)
