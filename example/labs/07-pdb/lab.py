"""Checks lab 7: the task was looked into with pdb, whom pdb serves was seen, and debugpy stops it now."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bootstrap.labs.exercise import PATIENCE, Exercise
from rayside import yaml_file
from rayside.dap.one_request import ask
from rayside.plain import printed
from rayside.waiting import until

TARGETS = ("local", "kind", "pod")

_LEGACY = {"env_vars": {"RAY_DEBUG": "legacy"}}
# A task that comes to its breakpoint() in pdb says so.
_WAITS = "RemotePdb session open at"
_POSTAGE = "postage 485"
# With this exit code external.py says that this machine lets it make no network.
_NO_NETWORK = 3


def solve(exercise: Exercise) -> None:
    exercise.write_answers(parcel="books", unit="Kg", listed=0, secret="nothing", external="0.0.0.0")


def verify(exercise: Exercise) -> None:
    answers = {name: exercise.answer(name) for name in ("parcel", "unit", "listed", "secret")}
    has_networks = exercise.target.instance.target == "local" and sys.platform == "linux"
    external = exercise.answer("external") if has_networks else None
    with exercise.untouched(Path(__file__).parent) as untouched:
        job = untouched.submit("python main.py", runtime_env=_LEGACY)
        _until_waiting(untouched, job)
        listed = _listed(untouched, job)
        of_job = {"env_vars": {"PDB_JOB": untouched.job(job).job_id or ""}}
        typing = untouched.run("python attach.py 'p parcels' 'p weights'", runtime_env=of_job)
        told = untouched.succeeded(typing).output
        stranger = untouched.succeeded(untouched.run("python stranger.py", runtime_env=of_job)).output
        untouched.succeeded(untouched.wait(job))
        if has_networks:
            _check_external(untouched, external)
    _check_answers(exercise, answers, told, listed)
    asked = "nothing" if _served(stranger) else "something"
    exercise.require(
        answers["secret"] == asked,
        f"pdb did not ask for a {answers['secret']}",
        "read what stranger.py prints: who connected, and as whom does what it typed run?",
    )
    _check_mended(exercise)


def _until_waiting(untouched: Exercise, job: str) -> None:
    """Waits until the first task of the job has come to pdb."""
    output, _ = until(
        lambda: (untouched.dashboard.output(job), untouched.job(job).ended),
        lambda seen: _WAITS in seen[0] or seen[1],
        PATIENCE,
    )
    assert _WAITS in output, f"no task waits in pdb: {output}"


def _listed(untouched: Exercise, job: str) -> int:
    """Returns how many tasks of the job the relay lists as paused."""
    token = untouched.target.instance.token_file.read_text()
    port = untouched.target.instance.ports.relay
    answer = until(
        lambda: ask(port, "pausedTasks", {"token": token}, timeout=10.0),
        lambda answer: bool(answer.get("problem") == ""),  # Ray may take too long to answer the relay.
        PATIENCE,
    )
    assert answer.get("problem") == "", answer
    job_id = untouched.job(job).job_id
    return sum(task["job_id"] == job_id for task in answer["tasks"])


def _check_answers(exercise: Exercise, answers: Mapping[str, Any], told: str, listed: int) -> None:
    """Compares the answers with what `ray debug` told of the task as it was at the beginning."""
    shown = re.findall(r"^[\[{].*[\]}]$", printed(told), re.MULTILINE)
    assert len(shown) == 2, f"ray debug showed: {told}"
    parcels, weights = (ast.literal_eval(text) for text in shown)
    # Only what is weighed by its bare number has a wrong weight: no parcel here is measured in grams alone.
    (wrong,) = [name for name, amount, unit in parcels if weights[name] == amount and unit != "g"]
    (unit,) = [unit for name, _, unit in parcels if name == wrong]
    exercise.require(
        answers["parcel"] == wrong,
        f"the weight of {answers['parcel']} is right",
        "compare p parcels with p weights: one is taken for grams, and is none",
    )
    exercise.require(
        answers["unit"] == unit,
        f"the unit of {wrong} is not {answers['unit']!r}",
        "copy it as p parcels shows it, in upper and lower case",
    )
    exercise.require(
        answers["listed"] == listed,
        f"./invokew breakpoints does not list {answers['listed']} tasks of this job",
        "run it while the task waits; tasks of other jobs do not count",
    )


def _check_external(untouched: Exercise, answer: object) -> None:
    """Compares the answer with where pdb listens with --ray-debugger-external. Raises NotSolved."""
    run = untouched.run("python external.py")
    if run.exit_code == _NO_NETWORK:
        untouched.report(f"external.py can't do its work here: {run.output.strip().splitlines()[-1]}")
        return
    listens = re.search(r"^pdb listens at (\S+)$", untouched.succeeded(run).output, re.MULTILINE)
    assert listens and "(Pdb)" in run.output, f"external.py printed: {run.output}"
    untouched.require(
        answer == listens[1],
        f"with --ray-debugger-external pdb does not listen at {answer}",
        "external.py prints it behind `pdb listens at`",
    )


def _served(stranger: str) -> bool:
    """Returns whether pdb ran what a stranger typed, in another process than the stranger's."""
    pids = re.findall(r"user (\d+) in process (\d+)", stranger)
    assert len(pids) == 2, f"the stranger saw: {stranger}"
    return bool(pids[0][1] != pids[1][1])


def _check_mended(exercise: Exercise) -> None:
    """Checks that the learner's program stops in the relay's debugger, and weighs right."""
    runtime_env = yaml_file.read(exercise.folder / "runtime_env.yaml") or {}
    if not isinstance(runtime_env, dict):
        exercise.not_solved("runtime_env.yaml is not a mapping", 'write env_vars: {NAME: "value"}')
    variables = runtime_env.get("env_vars") or {}
    exercise.require(
        not isinstance(variables, Mapping) or variables.get("RAY_DEBUG") != "legacy",
        "with RAY_DEBUG of legacy the tasks still wait in pdb, of which the relay knows nothing",
        "runtime_env.yaml is where it is set",
    )
    job = exercise.submit("python main.py", runtime_env=runtime_env)
    document = exercise.debug(job)
    run = exercise.succeeded(exercise.wait(job))
    stopped = [stop["function"] for stop in document["stopped"]]
    exercise.require(
        stopped == ["weigh", "charge"],
        f"the debugger stopped in {' and '.join(stopped) or 'no task'}, and not in weigh and charge",
        "leave breakpoint() and ray.util.pdb.set_trace() in main.py where they were, and RAY_DEBUG unset",
    )
    exercise.require(
        _POSTAGE in run.output,
        f"the job says {printed(run.output).strip().splitlines()[-1]!r}, and 485 is right",
        "Kg is kilograms: let weigh not mind upper and lower case",
    )
