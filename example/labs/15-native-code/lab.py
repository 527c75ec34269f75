"""Checks lab 15: where a worker crashed in C was seen, its core dump is kept, and the C code is mended."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from bootstrap.labs.exercise import Exercise

# Ray's image has no compiler and no gdb (see the README).
TARGETS = ("local",)
NEEDS = ("cc", "gdb", "valgrind")

_CRASH = "import gauge; gauge.smooth(None, 6)"
_MENDED = (
    ("west None", "a gauge that was broken has NULL for values: there is nothing to smooth"),
    ("north [3.5, 5.0, 6.0, 5.0, 4.0, 3.0]", "valgrind says in which line too much is read"),
    (f"south {[9.0] * 8}", "valgrind says in which line too much is read"),
)
# Python itself reads what it has not written, and loses what it needs to its end.
_VALGRIND = (
    *("valgrind", "--quiet", "--undef-value-errors=no", "--leak-check=full"),
    *("--show-leak-kinds=definite", sys.executable, "-S"),
)


def solve(exercise: Exercise) -> None:
    with exercise.untouched(Path(__file__).parent) as untouched:
        _build(untouched)
        exercise.write_answers(**_crash(untouched))


def verify(exercise: Exercise) -> None:
    answers = {name: exercise.answer(name) for name in ("function", "line", "python_line")}
    with exercise.untouched(Path(__file__).parent) as untouched:
        _build(untouched)
        crash = _crash(untouched)
        for name, answer in answers.items():
            exercise.require(
                str(answer) == crash[name],
                f"{name} is not {answer}",
                "look at the frame of gauge.c below the signal handlers; py-spy has the lines of Python",
            )
        (untouched.folder / "cores.py").write_text(exercise.text("cores.py"))
        _check_core(untouched)
    _build(exercise)
    _check_memory(exercise)
    run = exercise.succeeded(exercise.run(f"python main.py {exercise.folder.parent / 'cores'}"))
    for wanted, hint in _MENDED:
        exercise.require_printed(run.output, wanted, hint)


def _run(exercise: Exercise, command: Sequence[str], **variables: str) -> tuple[int, str]:
    """Runs a command in the copy; returns its exit code and all that it printed."""
    done = subprocess.run(
        command,
        cwd=exercise.folder,
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=300,
    )
    return done.returncode, done.stdout


def _build(exercise: Exercise) -> None:
    code, output = _run(exercise, ["cc", "-g", "-shared", "-fPIC", "-o", "libgauge.so", "gauge.c"])
    exercise.require(code == 0, f"gauge.c can't be compiled:\n{output.strip()}", exercise.brought_back)


def _crash(exercise: Exercise) -> dict[str, str]:
    """Returns where the untouched code crashes, as gdb and Python's faulthandler say."""
    options = ["--batch", "--quiet", "-ex", "run", "-ex", "backtrace", "--args"]
    _, native = _run(exercise, ["gdb", *options, sys.executable, "-c", _CRASH])
    frame = re.search(r"\bin (\w+) \([^\n]*\) at [^\n]*gauge\.c:(\d+)", native)
    _, traceback = _run(exercise, [sys.executable, "-X", "faulthandler", "-c", _CRASH])
    line = re.search(r'gauge\.py", line (\d+)', traceback)
    assert frame and line, native + traceback
    return {"function": frame[1], "line": frame[2], "python_line": line[1]}


def _check_core(untouched: Exercise) -> None:
    """Checks that the learner's cores.py keeps a core dump of the worker. Raises NotSolved."""
    folder = untouched.folder.parent / "cores"
    run = untouched.succeeded(untouched.run(f"python main.py {folder}"))
    assert "west crashed" in run.output, run.output
    pattern = Path("/proc/sys/kernel/core_pattern").read_text().strip()
    if pattern.startswith(("|", "/")) or resource.getrlimit(resource.RLIMIT_CORE)[1] == 0:
        untouched.report(f"this machine does not let a process keep its core dump: {pattern}")
        return
    dumps = [file for file in folder.glob("*") if _is_elf(file)]
    untouched.require(
        dumps,
        "the worker has crashed and left no core dump in the folder",
        "cores.keep has to raise the soft limit to the hard one, and to change into that folder",
    )


def _is_elf(file: Path) -> bool:
    with file.open("rb") as opened:
        return opened.read(4) == b"\x7fELF"


def _check_memory(exercise: Exercise) -> None:
    """Checks that valgrind finds nothing in gauge.c. Raises NotSolved."""
    _, output = _run(exercise, [*_VALGRIND, "alone.py"], PYTHONMALLOC="malloc")
    reports = re.split(r"^==\d+== *$", output, flags=re.MULTILINE)
    ours = [report.strip() for report in reports if "gauge.c" in report]
    exercise.require(
        not ours,
        "valgrind finds this:\n" + "\n".join(ours[0].splitlines()[:4] if ours else ()),
        "each report names a line of gauge.c: what is read there, or is made there and never freed",
    )
