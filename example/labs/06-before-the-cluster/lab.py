"""Checks lab 6: types and a test find a fault each, an actor shows its state, one process runs it all."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from bootstrap.labs.exercise import PATIENCE, Exercise, Run
from bootstrap.settings import ROOT

TARGETS = ("local", "kind")
NEEDS = ("mypy",)
_SOLD = "sold {'north': 470, 'south': 275, 'west': 430}"


def solve(exercise: Exercise) -> None:
    exercise.write_answers(dropped=3)


def verify(exercise: Exercise) -> None:
    _check_types(exercise)
    _check_tests(exercise)
    one_process = exercise.submit("python one_process.py")
    _check_state(exercise)
    _check_one_process(exercise, exercise.wait(one_process))


def _check_types(exercise: Exercise) -> None:
    # It leaves no cache behind, which would count as an edited file.
    options = ["--strict", f"--cache-dir={os.devnull}"]
    checked = _python(ROOT, "mypy", *options, str(exercise.folder / "pipeline.py"))
    found = next((line for line in checked.stdout.splitlines() if ": error:" in line), "")
    exercise.require(
        checked.returncode == 0,
        f"mypy says: {found.rpartition('/')[2] or (checked.stdout + checked.stderr).strip()}",
        "say in pipeline.py what happens where there is no value",
    )


def _check_tests(exercise: Exercise) -> None:
    tests = exercise.text("test_pipeline.py")
    with tempfile.TemporaryDirectory(prefix="rayside-lab-") as name:
        folder = Path(name)
        (folder / "test_pipeline.py").write_text(tests)
        (folder / "pipeline.py").write_text(_with_the_fault())
        exercise.require(
            _python(folder, "unittest").returncode != 0,
            "the tests pass although aggregate forgets sales",
            "write a test in which one shop is in two parts",
        )
        (folder / "pipeline.py").write_text(exercise.text("pipeline.py"))
        tested = _python(folder, "unittest")
        last = (tested.stderr.strip().splitlines() or ["they say nothing"])[-1]
        exercise.require(
            tested.returncode == 0,
            f"your tests of your pipeline.py: {last}",
            f".venv/bin/python -m unittest discover -s labs/{exercise.folder.name} shows which",
        )


def _check_state(exercise: Exercise) -> None:
    dropped = exercise.answer("dropped")
    job = exercise.submit("python stateful.py")
    stops = exercise.debug(job, evaluate=["self.dropped"])["stopped"]
    run = exercise.succeeded(exercise.wait(job))
    workers, values = (
        {stop["worker_id"] for stop in stops},
        [stop["evaluated"]["self.dropped"] for stop in stops],
    )
    exercise.require(
        len(stops) == 3 and len(workers) == 1,
        f"stateful.py stopped {len(stops)} times, in {len(workers)} processes",
        "one actor takes all three files, and its method has a breakpoint()",
    )
    exercise.require(
        values == ["1", "3", "3"],
        f"self.dropped was {', '.join(values)} at the stops",
        "add to it what clean leaves out, before the breakpoint()",
    )
    exercise.require(
        str(dropped) == values[1],
        f"at the second stop self.dropped was not {dropped}",
        "./invokew debug: c goes on to the next stop, p self.dropped shows it",
    )
    exercise.require(_SOLD in run.output, "stateful.py has other sums", f"right is: {_SOLD}")


def _check_one_process(exercise: Exercise, run: Run) -> None:
    exercise.require(
        "local_mode` is no longer supported" not in run.output,
        "one_process.py still asks Ray for its local mode, which Ray has removed",
        "take ray.init out, and call total._function(file)",
    )
    exercise.succeeded(run)
    exercise.require(
        _SOLD in run.output and "Ray is connected: False" in run.output,
        "one_process.py does not work in one process alone",
        "total.remote connects to a cluster; total._function(file) is the plain function",
    )


def _with_the_fault() -> str:
    """Returns a pipeline.py with no fault but that of `aggregate`."""
    here = Path(__file__).parent
    right, wrong = ((here / name).read_text() for name in ("solution/pipeline.py", "pipeline.py"))
    start = "def aggregate("
    return right.partition(start)[0] + start + wrong.partition(start)[2]


def _python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs a module with this Python, which has no Ray."""
    command = [sys.executable, "-B", "-m", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE, check=False)
