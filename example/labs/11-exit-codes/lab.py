"""Checks lab 11: how each job ended was seen, `diagnose` explains it, and the script hides no failure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bootstrap.diagnosis.explain import findings
from bootstrap.diagnosis.gather import gather
from bootstrap.labs.exercise import Exercise, Run
from bootstrap.labs.pods import Pods

TARGETS = ("local", "kind")

# By the name in answers.yaml: what is submitted, and what `diagnose` calls its end.
_ENDS = {
    "well": ("python ends.py well", "nothing-wrong"),
    "raises": ("python ends.py raises", "driver-raised"),
    "missing": ("no-such-program", "job-failed"),
    "interrupted": ("python ends.py interrupted", "job-failed"),
    "killed": ("python ends.py killed", "job-failed"),
    "crashes": ("python ends.py crashes", "job-failed"),
    "denied": ("python ends.py denied", "task-out-of-memory"),
    "worker": ("python worker.py", "worker-died"),
    "monitor": ("python monitor.py", "task-out-of-memory"),
}
_TRIES = 3


def solve(exercise: Exercise) -> None:
    codes = {"well": 0, "raises": 1, "missing": 127, "interrupted": 130, "killed": 137, "crashes": 139}
    exercise.write_answers(**codes, denied=1, worker=1, monitor="task-out-of-memory", pod=137)


def verify(exercise: Exercise) -> None:
    answers = {name: exercise.answer(name) for name in _ENDS}
    on_kubernetes = exercise.target.kubernetes is not None
    pod = exercise.answer("pod") if on_kubernetes else None
    _check_answers(exercise, answers)
    if on_kubernetes:
        _check_pod(exercise, pod)
    _check_script(exercise)


def _check_answers(exercise: Exercise, answers: dict[str, Any]) -> None:
    """Compares the answers with how the programs, as they came, really end. Raises NotSolved."""
    with exercise.untouched(Path(__file__).parent) as untouched:
        entrypoints = {name: entrypoint for name, (entrypoint, _) in _ENDS.items()}
        monitor = entrypoints.pop("monitor")
        runs = {**_run(untouched, entrypoints), "monitor": _run_monitor(untouched, monitor)}
    evidence = gather(exercise.target, list).evidence
    for name, run in runs.items():
        found = findings(evidence, job=run.submission_id)[0]
        assert found.id == _ENDS[name][1], f"diagnose says of {name}: {found}"
        if name == "monitor":
            exercise.require(
                answers[name] == found.id,
                f"diagnose does not call it {answers[name]}",
                "./invokew diagnose --job NAME ends each finding with a word in brackets",
            )
            continue
        exercise.require(
            answers[name] == run.exit_code,
            f"the job of {name} does not end with exit code {answers[name]}",
            "./invokew submit --wait says it behind `failed`; a job that succeeded ended with 0"
            if name != "worker"
            else "the exit code is that of the program that was submitted, not that of Ray's worker",
        )


def _check_pod(exercise: Exercise, answer: object) -> None:
    """Compares the answer with how the pod ends. Raises NotSolved."""
    pods = Pods(exercise)
    try:
        with exercise.untouched(Path(__file__).parent) as untouched:
            name = Pods(untouched).make("greedy.yaml")
        status = pods.wait(name, "greedy", lambda status: "terminated" in status.get("state", {}), "ended")
        ended = status["state"]["terminated"]
        found = findings(gather(exercise.target, list, pod=name).evidence, pod=name)[0]
        assert (found.id, "64Mi" in found.why) == ("pod-failed", True), found
        exercise.require(
            answer == ended["exitCode"],
            f"the pod does not end with exit code {answer}",
            f"./invokew diagnose --pod {name} has it in brackets",
        )
    finally:
        pods.remove()


def _check_script(exercise: Exercise) -> None:
    """Checks that run.sh ends as the program that it runs, and shows what that printed. Raises NotSolved."""
    runs = _run(exercise, {how: f"sh run.sh {how}" for how in ("well", "crashes")})
    for how, code in (("well", 0), ("crashes", 139)):
        run = runs[how]
        exercise.require(
            run.exit_code == code,
            f"sh run.sh {how} ends with exit code {run.exit_code}, and its program with {code}",
            "$? has the exit code of the command before; keep it, and end the script with exit",
        )
        exercise.require(
            f"{how}: counting rows" in run.output,
            f"sh run.sh {how} does not show what its program printed",
            "show output.txt before the script ends",
        )


def _run_monitor(exercise: Exercise, entrypoint: str) -> Run:
    """Runs monitor.py alone, and again where a busy machine was too slow: Ray gives its start 30 s."""
    for _ in range(_TRIES):
        run = exercise.run(entrypoint)
        if "timed out during startup" not in run.output:
            break
    return run


def _run(exercise: Exercise, entrypoints: dict[str, str]) -> dict[str, Run]:
    """Runs all of these jobs side by side."""
    jobs = exercise.submit_all(list(entrypoints.values()))
    return {name: exercise.wait(job) for name, job in zip(entrypoints, jobs, strict=True)}
