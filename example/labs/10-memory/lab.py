"""Checks lab 10: what keeps memory was found, in the worker and in the object store, and gives it back."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

from bootstrap.labs import lab_packages
from bootstrap.labs.exercise import Exercise, Run
from rayside.plain import printed
from rayside.system.shell import Shell

TARGETS = ("local", "kind")
# MiB. The leak is about 90 between the first batch of pages and the last; what the allocator keeps is less.
_GROWN = 40
_PARTS = ("clean", "fold", "split", "index")


def setup(exercise: Exercise) -> None:
    lab_packages.offer_profilers(exercise.target, exercise.report, exercise.folder.parent)
    lab_packages.offer_mprof(exercise.target, exercise.report, exercise.folder.parent)


def solve(exercise: Exercise) -> None:
    with exercise.untouched(Path(__file__).parent) as untouched:
        line = untouched.line("main.py", "parts.clean(text)")
    exercise.write_answers(part="fold", line=line, curve="rises", objects=4, blocks="spilled")


def verify(exercise: Exercise) -> None:
    answers = {name: exercise.answer(name) for name in ("part", "line", "curve", "objects", "blocks")}
    part = answers["part"]
    exercise.require(part in _PARTS, f"there is no part {part}", f"the parts are {', '.join(_PARTS)}")
    profilers = str(lab_packages.profilers(exercise.target, exercise.report))
    with exercise.untouched(Path(__file__).parent) as untouched:
        without = untouched.submit(f"python main.py without={part}")
        looking = untouched.submit("python main.py lines objects", py_modules=[profilers])
        watching = untouched.submit("python main.py mprof", py_modules=[profilers])
        mended = exercise.submit("python main.py objects")
        less = untouched.succeeded(untouched.wait(without))
        looked = untouched.succeeded(untouched.wait(looking))
        watched = untouched.succeeded(untouched.wait(watching))
        ended = exercise.wait(mended)
        spilled = untouched.succeeded(untouched.run("python spill.py"))
    growth = _growth(exercise, less)
    exercise.require(
        growth < _GROWN,
        f"without {part} the memory still grows by {growth} MiB",
        "leave out half of the parts, then half of those that are left: without=clean,fold",
    )
    curve = "rises" if _rise(exercise, watched) > _GROWN else "level"
    blocks = "spilled" if re.search(r"with 16 references: Spilled [1-9]\d* MiB", spilled.output) else "lost"
    seen = {
        "line": (
            _line(looked),
            "Increment is the third column; the first row is what the process had before",
        ),
        "curve": (curve, "labs/mprof plot makes a picture of it"),
        "objects": (_objects(looked), "main.py says it last when it is asked for the objects"),
        "blocks": (blocks, "the second row that spill.py prints says it, and the first block could be read"),
    }
    for name, (value, hint) in seen.items():
        exercise.require(answers[name] == value, f"{name} was not {answers[name]}", hint)
    _check_mended(exercise, exercise.succeeded(ended))


def _check_mended(exercise: Exercise, run: Run) -> None:
    exercise.require(
        "the last page begins with page0119" in run.output,
        "the job does not read the last page as it did",
        "leave the parts in, and let them return what they returned",
    )
    growth = _growth(exercise, run)
    exercise.require(
        growth < _GROWN,
        f"the memory grows by {growth} MiB between the first batch of pages and the last",
        "fold keeps every text that it was given, and what it returned; a limit keeps as many as it says",
    )
    exercise.require(
        _objects(run) == 1,
        f"the driver holds {_objects(run)} objects at the end, and needs one: the last text",
        "Ray forgets an object when nobody refers to it: keep the last reference alone",
    )


def _growth(exercise: Exercise, run: Run) -> int:
    """Returns by how many MiB the actor's process grew from the first batch of pages to the last."""
    sizes = [int(size) for size in re.findall(r"after \d+ pages: (\d+) MiB", run.output)]
    exercise.require(len(sizes) > 1, "the actor does not say how much memory it has", exercise.brought_back)
    return sizes[-1] - sizes[0]


def _line(run: Run) -> int:
    """Returns the line that memory_profiler blames, over all its reports."""
    increments: dict[int, float] = {}
    # A row is: line, memory, increment, occurrences, and the line's text; the first is what was there before.
    for line, increment, text in re.findall(
        r"(\d+) +[\d.]+ MiB +(-?[\d.]+) MiB +\d+ +(\S+)", printed(run.output)
    ):
        if text != "def":
            increments[int(line)] = increments.get(int(line), 0) + float(increment)
    return max(increments, key=lambda line: increments[line])


def _objects(run: Run) -> int:
    return sum(int(count) for count in re.findall(r"objects: (\d+) of type", run.output))


def _rise(exercise: Exercise, run: Run) -> float:
    """Returns by how many MiB the end of mprof's curve is above its beginning, which has to have a plot."""
    rows = re.findall(r"^(?:CMDLINE|MEM) .*$", printed(run.output), re.MULTILINE)
    sizes = [float(row.split()[1]) for row in rows if row.startswith("MEM")]
    command, variables = lab_packages.mprof(exercise.target, exercise.report)
    with tempfile.TemporaryDirectory() as folder:
        data, picture = Path(folder, "memory.dat"), Path(folder, "memory.png")
        data.write_text("\n".join(rows) + "\n")
        Shell().run([*command, "plot", "--output", picture, data], env={**os.environ, **variables})
        assert picture.read_bytes().startswith(b"\x89PNG")
    return sizes[-1] - sizes[0]
