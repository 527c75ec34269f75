"""Explains why the process of a task or an actor ended: its exit, its node, its restarts."""

from __future__ import annotations

import re
from dataclasses import replace

from bootstrap.diagnosis.causes.cause import POST_MORTEM, Cause
from bootstrap.diagnosis.causes.program import raised
from bootstrap.diagnosis.failure import Failure
from bootstrap.ray.outcome import explain_exit

_SILENT = (
    "its process ended without a word, as by os._exit, a crash in native code, or a kill by the system "
    "for its memory"
)


def worker_died(failure: Failure) -> Cause | None:
    if failure.name != "WorkerCrashedError":
        return None
    told = re.match(r"UnexpectedSystemExit: Worker exits with an exit code (.*)", _error(failure), re.DOTALL)
    if told and not re.fullmatch(r"-?\d+\.\s*", told[1]):
        return raised(replace(failure, name="SystemExit", message=told[1].strip().removesuffix(".")))
    process = failure.subject.partition(" ")[2] or failure.subject
    # Only lines of that task's own process tell of its signal.
    own = rf"^\({re.escape(process)} pid=\d+[^)]*\) .*?\*\*\* (SIG[A-Z]+) received"
    exit_code = re.search(r"exits with an exit code (\d+)", failure.text)
    if received := re.search(own, failure.text, re.MULTILINE):
        why = f"its process got {received[1]}"
        why += ", as it crashed in native code" if received[1] in ("SIGSEGV", "SIGABRT", "SIGBUS") else ""
    elif exit_code:
        why = f"its process ended with {explain_exit(int(exit_code[1]))}"
    else:
        why = f"{_SILENT}; Ray does not know its exit code"
    tried = f"; it was tried {failure.attempts} times" if failure.attempts > 1 else ""
    return Cause(
        "worker-died",
        f"the worker process of {failure.subject} died",
        why + tried,
        "dmesg, as root, says whether the kernel killed it for its memory; else look at its native code",
    )


def _error(failure: Failure) -> str:
    """Returns what Ray's table has of the end of the task's process."""
    return failure.task.error if failure.task else ""


def node_died(failure: Failure) -> Cause | None:
    node_lines = [line for line in failure.message.splitlines() if "its node has died" in line]
    if failure.name not in ("NodeDiedError", "LocalRayletDiedError") and not node_lines:
        return None
    return Cause(
        "node-died",
        f"the node of {failure.subject} died",
        node_lines[0] if node_lines else failure.message.partition("\n")[0],
        "./invokew status shows which nodes are left; then submit the job again",
    )


# --- actors ------------------------------------------------------------------------------


def actor_init_raised(failure: Failure) -> Cause | None:
    created = "creation task" in failure.message or "__init__" in failure.subject
    if failure.name != "ActorDiedError" or not created or not failure.cause:
        return None
    actor = failure.subject.removeprefix("task ").removeprefix("actor ").partition(".")[0]
    return Cause(
        "actor-init-raised",
        f"actor {actor} could not be made: its __init__ raised {failure.cause.partition(':')[0]}",
        failure.cause.partition(": ")[2],
        POST_MORTEM,
    )


def actor_killed(failure: Failure) -> Cause | None:
    if failure.name != "ActorDiedError" or "killed by `ray.kill`" not in failure.text:
        return None
    return Cause(
        "actor-killed",
        f"{failure.subject} was used after it had been killed",
        "the program, or another one, called ray.kill on it",
        "look for ray.kill in the program: call the actor before it, or make a new actor",
    )


def actor_died(failure: Failure) -> Cause | None:
    if failure.name not in ("ActorDiedError", "ActorUnavailableError"):
        return None
    reason = re.search(r"The actor is (?:dead because|temporarily unavailable:) (.+)", failure.text)
    why = (reason[1] if reason else failure.message).partition(" Some common causes include")[0]
    if "End of file" in why or "Socket closed" in why:
        why = _SILENT
    if failure.restarts:
        return Cause(
            "actor-out-of-restarts",
            f"{failure.subject} died again and has no restarts left",
            f"it was started again {_times(failure.restarts)}; {why}",
            "mend what ends its process, or raise max_restarts in @ray.remote",
        )
    return Cause(
        "actor-died",
        f"{failure.subject} died",
        why,
        "mend what ends its process; @ray.remote(max_restarts=3) starts it again",
    )


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"
