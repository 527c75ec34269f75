"""Checks lab 8: the tasks were looked into by DAP, and by pydevd, which connects to who plays PyCharm."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bootstrap.labs.exercise import Exercise, Run
from rayside import yaml_file
from rayside.plain import printed

# A pod can't connect to an IDE on the loopback address of this machine.
TARGETS = ("local",)
_HERE = Path(__file__).parent
_TAKINGS = "takings {'fjord': 90, 'island': 70, 'strait': 90}"
_TASKS = 3
# Seconds: most of them are pip's, once for each cluster.
_PATIENCE = 400.0


def solve(exercise: Exercise) -> None:
    (package,) = _runtime_env(exercise)["pip"]
    exercise.write_answers(crossing="strait", longest=1180.0, version=package.partition("==")[2], file="copy")


def verify(exercise: Exercise) -> None:
    answers = {name: exercise.answer(name) for name in ("crossing", "longest", "version", "file")}
    _check_seen_by_dap(exercise, answers)
    with _port_of_nobody() as port:
        _check_mended(exercise, _called(exercise, port))
    with _ide() as (ide, port):
        run = _called(exercise, port)
        _check_mended(exercise, run)
        told = _told(ide)
    _check_seen_by_pydevd(exercise, answers, told)


def _check_seen_by_dap(exercise: Exercise, answers: Mapping[str, Any]) -> None:
    """Compares the answers with what a debugger at the relay sees in the program as it came."""
    with exercise.untouched(_HERE) as untouched:
        job = untouched.submit("python main.py", debug=True)
        line = untouched.line("main.py", "euros = 0")
        document = untouched.debug(job, breaks=[("main.py", line)], evaluate=["crossing", "max(lengths)"])
        untouched.succeeded(untouched.wait(job))
    stops = [stop["evaluated"] for stop in document["stopped"]]
    # No ferry takes what is longer than 100 m.
    (wrong,) = [stop for stop in stops if float(stop["max(lengths)"]) > 100]
    exercise.require(
        repr(answers["crossing"]) == wrong["crossing"],
        f"the lengths of {answers['crossing']} are metres",
        "evaluate crossing and max(lengths) at each stop",
    )
    exercise.require(
        answers["longest"] == float(wrong["max(lengths)"]),
        f"max(lengths) was not {answers['longest']} there",
        "evaluate it at the stop of that crossing",
    )


def _check_mended(exercise: Exercise, run: Run) -> None:
    exercise.require(
        "unexpected keyword argument" not in run.output,
        "settrace has no argument of such a name",
        "the arguments of pydevd-pycharm's settrace are written_like_this by now",
    )
    exercise.succeeded(run)
    output = printed(run.output)
    # What workers print may follow in the same line.
    takings = re.search(r"takings \{.*?\}", output)
    exercise.require(
        _TAKINGS in output,
        f"the job says {takings[0] if takings else 'nothing of takings'}, and {_TAKINGS} is right",
        "what is longer than 100 is in centimetres",
    )


def _check_seen_by_pydevd(exercise: Exercise, answers: Mapping[str, Any], told: str) -> None:
    """Compares the answers with what the stand-in for PyCharm was told."""
    files = re.findall(r"^stopped in \w+, line \d+ of (.+)$", told, re.MULTILINE)
    exercise.require(
        len(files) == _TASKS,
        f"{len(files)} of {_TASKS} tasks stopped in the IDE",
        "leave settrace in main.py where it was, with the port that the program is given",
    )
    (version,) = set(re.findall(r"with pydevd (.+)$", told, re.MULTILINE))
    exercise.require(
        str(answers["version"]) == version,
        f"the workers brought {version}, and not {answers['version']}",
        "ide.py says it when a worker connects; runtime_env.yaml names it",
    )
    mine = all(Path(file).is_relative_to(exercise.folder) for file in files)
    exercise.require(
        answers["file"] == ("mine" if mine else "copy"),
        f"the main.py that the IDE is told of is not of the kind {answers['file']}",
        "ide.py shows its path at each stop; is that in your folder?",
    )


def _called(exercise: Exercise, port: int) -> Run:
    """Runs the learner's program, which is to connect to an IDE at that port."""
    runtime_env = _runtime_env(exercise)
    return exercise.run(f"python main.py {port}", runtime_env=runtime_env, patience=_PATIENCE)


def _runtime_env(exercise: Exercise) -> dict[str, Any]:
    document = yaml_file.read(exercise.folder / "runtime_env.yaml")
    packages = document.get("pip") if isinstance(document, dict) else None
    if not isinstance(packages, list):
        exercise.not_solved("runtime_env.yaml brings no package by pip", exercise.brought_back)
    return dict(document)


@contextmanager
def _port_of_nobody() -> Iterator[int]:
    """Yields a port of this machine at which nobody listens, and nobody can meanwhile."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


@contextmanager
def _ide() -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Yields the stand-in for PyCharm, as the lab has it, and the port at which it listens."""
    command = [sys.executable, str(_HERE / "ide.py"), "--port", "0", "--stops", str(_TASKS), "crossing"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as ide:
        try:
            assert ide.stdout
            yield ide, int(ide.stdout.readline().rpartition(":")[2])
        finally:
            ide.terminate()


def _told(ide: subprocess.Popen[str]) -> str:
    """Returns what the stand-in printed. The job has ended: so has it, unless tasks have not stopped."""
    try:
        return ide.communicate(timeout=10)[0]
    except subprocess.TimeoutExpired:
        ide.terminate()
        return ide.communicate()[0]
