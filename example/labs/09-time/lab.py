"""Checks lab 9: what each profiler says was read off, and the work is done once, by all tasks together."""

from __future__ import annotations

import re
from pathlib import Path

from bootstrap.labs import lab_packages
from bootstrap.labs.exercise import PATIENCE, Exercise, Run
from rayside.plain import printed
from rayside.waiting import until

TARGETS = ("local", "kind")
_TASKS = 4
# Each of 5,000 entries and of 60 titles needs to be made plain once.
_NEEDED = 5_060
_COUNTED = "python -m cProfile -o driver.prof main.py cprofile && python report.py driver.prof"
# A task that is looked into from outside works for minutes, and is stopped when it was seen.
_LONG = 1_000


def setup(exercise: Exercise) -> None:
    lab_packages.offer_profilers(exercise.target, exercise.report, exercise.folder.parent)


def solve(exercise: Exercise) -> None:
    exercise.write_answers(function="plain", calls=600_000, line=24, sampled="plain", at_once=1, gets=4)


def verify(exercise: Exercise) -> None:
    names = ("function", "calls", "line", "sampled", "at_once", "gets")
    answers = {name: exercise.answer(name) for name in names}
    profilers = str(lab_packages.profilers(exercise.target, exercise.report))
    with exercise.untouched(Path(__file__).parent) as untouched:
        counting = untouched.submit(_COUNTED)
        by_line = untouched.submit("python main.py lines timeline", py_modules=[profilers])
        mended = exercise.submit(_COUNTED)
        counted = untouched.succeeded(untouched.wait(counting))
        lines = untouched.succeeded(untouched.wait(by_line))
        ended = exercise.wait(mended)
        sampled = _sampled(untouched)
    calls = _calls(counted)
    function = max(calls, key=lambda name: sum(calls[name]))
    seen = {
        "function": (function, "its name stands in parentheses; ncalls is the first column"),
        "calls": (calls[function][0], "ncalls is the first column of cProfile's report"),
        "line": (
            _slowest_line(lines),
            "% Time is the fifth column of line_profiler's report, the line the first",
        ),
        "sampled": (sampled, "the first row that spy.py prints has the function that was seen most often"),
        "at_once": (_at_once(lines), "main.py prints it last when it is asked for the timeline"),
        "gets": (_gets(counted), "report.py prints the row of get last; ncalls is its first column"),
    }
    for name, (value, hint) in seen.items():
        exercise.require(answers[name] == value, f"{name} was not {answers[name]}", hint)
    _check_mended(exercise, exercise.succeeded(ended))


def _check_mended(exercise: Exercise, run: Run) -> None:
    for shelf in ("history", "poetry", "science", "travel"):
        exercise.require(
            f"{shelf} lacks {len(shelf)}\n" in run.output,
            f"the job does not find the {len(shelf)} titles that the catalogue lacks of {shelf}",
            "do less to find them, but find the same",
        )
    calls = _calls(run).get("plain", [])
    exercise.require(
        calls and max(calls) <= _NEEDED,
        f"plain is called {max(calls, default=0)} times in one task, and {_NEEDED} is enough",
        "make each entry plain once, and look each title up among them: a set finds it at once",
    )
    exercise.require(
        _gets(run) == 1,
        f"the driver calls ray.get {_gets(run)} times, and one call waits for all tasks",
        "begin all tasks first, and give ray.get the list of what they return",
    )


def _calls(run: Run) -> dict[str, list[int]]:
    """Returns how often each function of library.py was called, in each report of a task that has it."""
    calls: dict[str, list[int]] = {}
    # A row of cProfile: ncalls, and where it recurses the primitive ones behind /, then four times.
    for count, name in re.findall(r"(\d+)(?:/\d+)?(?: +[\d.]+){4} library\.py:\d+\((\w+)\)", run.output):
        calls.setdefault(name, []).append(int(count))
    return calls


def _gets(run: Run) -> int:
    """Returns how often the driver has called ray.get."""
    row = re.search(r"(\d+)(?:/\d+)?(?: +[\d.]+){4} worker\.py:\d+\(get\)", run.output)
    return int(row[1]) if row else 0


def _slowest_line(run: Run) -> int:
    # A row of line_profiler: line, hits, time, time for each hit, percentage, and the line's text.
    rows = re.findall(r"(\d+) +\d+ +[\d.]+ +[\d.]+ +([\d.]+) ", printed(run.output))
    return int(max(rows, key=lambda row: float(row[1]))[0])


def _at_once(run: Run) -> int:
    (most,) = re.findall(rf"timeline: {_TASKS} ran, at most (\d+) at once", run.output)
    return int(most)


def _sampled(exercise: Exercise) -> str:
    """Returns the function in which py-spy finds a worker of the learner's first program most often."""
    job = exercise.submit(f"python main.py {_LONG}")
    until(lambda: exercise.job(job).status, lambda status: status == "RUNNING", PATIENCE)
    run = exercise.succeeded(exercise.run("python spy.py"))
    exercise.dashboard.stop(job)
    rows = re.findall(r"^ *\d+ (\w+) \(library\.py\)$", run.output, re.MULTILINE)
    return str(rows[0])
