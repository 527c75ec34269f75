"""Program of a job: `python -m rayside.relay_actor.opening` opens debugger ports in other jobs' processes.

An actor runs our function between two of its own calls. Drivers and tasks can't run code of other jobs:
py-spy, which Ray installs, reads their stacks.
The file `FILE` in the job's folder lists the processes; one line that begins with `ANSWER` contains an
`Outcome` for each, as JSON.
"""

from __future__ import annotations

import json
import logging
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rayside.relay_actor.actor_by_id import ActorTable
from rayside.worker import attach

ANSWER, FILE = "RAYSIDE_OPENING ", "opening.json"
OPENED, BUSY, NOT_POSSIBLE = "opened", "busy", "not possible"
# Timeouts in seconds: an actor's call of our function, and py-spy.
_CALL, _SPY = 10.0, 30.0
# Limit of processes whose stacks are read: each needs another process on its node for a moment.
_MOST_BESIDE = 32
# Limits in characters: one stack, and the whole answer.
_LONGEST_STACK, _LONGEST = 20_000, 1_000_000


@dataclass(frozen=True)
class Process:
    """Process to be opened: an actor's by `actor_id`, with its name, if any; others by `pid` and node.

    `user` is the name of the user who requests it.
    """

    worker_id: str
    pid: int
    node_id: str
    actor_id: str = ""
    actor_name: str = ""
    namespace: str = ""
    user: str = ""


@dataclass(frozen=True)
class Outcome:
    """Outcome for one process: `result` is OPENED, BUSY or NOT_POSSIBLE; `stack` is py-spy's text, if any."""

    worker_id: str
    result: str
    why: str = ""
    stack: str = ""


def outcomes(text: str) -> dict[str, Outcome]:
    """Returns the outcomes, by worker, from the job's output. Raises ValueError if it has none.

    The output is untrusted, so other forms are refused.
    """
    answer = next((row for row in text.splitlines() if row.startswith(ANSWER)), "").removeprefix(ANSWER)
    try:
        rows = [{key: str(value) for key, value in row.items()} for row in json.loads(answer[:_LONGEST])]
        return {row["worker_id"]: Outcome(**row) for row in rows if _is_known(row["result"])}
    except (TypeError, KeyError, AttributeError, RecursionError):
        raise ValueError(answer[:200]) from None


def _is_known(result: str) -> bool:
    return result in (OPENED, BUSY, NOT_POSSIBLE)


def _open(actor: Any, user: str) -> str:
    """Opens a debugger port in the actor's process; returns the reason of a failure, else ""."""
    error = attach.open_in_ray(user=user)
    if isinstance(error, ImportError):
        return "its environment has no debugpy"
    return f"{type(error).__name__}: {error}"[:400] if error else ""


def _stack(pid: int) -> str:
    """Returns py-spy's stack dump of a process on this node. Raises RuntimeError with py-spy's reason."""
    program = shutil.which("py-spy") or str(Path(sys.executable).with_name("py-spy"))
    spy = [program, "dump", "--pid", str(pid)]
    try:
        done = subprocess.run(spy, capture_output=True, text=True, timeout=_SPY, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RuntimeError(f"py-spy could not be run: {error}") from None
    if done.returncode:
        if "permission denied" in done.stderr.lower():
            raise RuntimeError("py-spy is not allowed to read processes there (SYS_PTRACE)")
        # After its first line, py-spy prints its own backtrace.
        raise RuntimeError((done.stderr.strip().splitlines() or ["py-spy failed"])[0])
    return done.stdout[:_LONGEST_STACK]


def opened(processes: list[Process]) -> list[Outcome]:
    """Opens debugger ports in parallel where possible, and returns an outcome for each process."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    import rayside.worker

    # The actors' processes lack our package.
    ray.cloudpickle.register_pickle_by_value(rayside.worker)
    table = ActorTable()
    calls: dict[str, Any] = {}
    for process in processes:
        if process.actor_id:
            try:
                calls[process.worker_id] = _handle(table, process).__ray_call__.remote(_open, process.user)
            except Exception as error:
                calls[process.worker_id] = error
    if called := [call for call in calls.values() if not isinstance(call, Exception)]:
        ray.wait(called, num_returns=len(called), timeout=_CALL)
    done = [_of_actor(process, calls.get(process.worker_id)) for process in processes]
    spy = ray.remote(_stack)
    closed = [pair[0] for pair in zip(processes, done, strict=True) if pair[1].result != OPENED]
    tried = {
        process.worker_id: spy.options(
            num_cpus=0, scheduling_strategy=NodeAffinitySchedulingStrategy(process.node_id, soft=False)
        ).remote(process.pid)
        for process in closed[:_MOST_BESIDE]
    }
    if tried:
        ray.wait(list(tried.values()), num_returns=len(tried), timeout=2 * _SPY)
    # A character may take six in JSON, and all stacks together have to fit.
    most = min(_LONGEST_STACK, _LONGEST // 10 // max(1, len(tried)))
    return [_after(outcome, tried.get(outcome.worker_id), most) for outcome in done]


def _handle(table: ActorTable, process: Process) -> Any:
    """Returns a handle of the process's actor. Raises LookupError, ValueError, and as `ActorTable.handle`."""
    import ray

    try:
        return table.handle(process.actor_id)
    except Exception:  # Ray's internals may differ.
        if not process.actor_name:
            raise
        return ray.get_actor(process.actor_name, namespace=process.namespace)


def _of_actor(process: Process, call: Any) -> Outcome:
    import ray

    if call is None:
        return Outcome(process.worker_id, NOT_POSSIBLE, "another job can send code only to an actor")
    try:
        if isinstance(call, Exception):
            raise call
        why = ray.get(call, timeout=0)
    except ray.exceptions.GetTimeoutError:
        return Outcome(process.worker_id, BUSY, "it is in a call: attach again when that has ended")
    except Exception as error:
        cause = getattr(error, "cause", None) or error
        return Outcome(process.worker_id, NOT_POSSIBLE, f"{type(cause).__name__}: {cause}"[:400])
    return Outcome(process.worker_id, NOT_POSSIBLE if why else OPENED, why)


def _after(outcome: Outcome, tried: Any, most: int) -> Outcome:
    """Returns the outcome with `most` characters of the process's stack, or the reason why there is none."""
    import ray

    if tried is None:
        return outcome
    try:
        return replace(outcome, stack=ray.get(tried, timeout=0)[:most])
    except Exception as error:
        cause = getattr(error, "cause", None) or error
        return replace(outcome, why=f"{outcome.why}; no stack: {cause}"[:400])


def main() -> None:
    """Opens debugger ports in the processes in the file, and prints the outcomes."""
    import ray

    processes = [Process(**row) for row in json.loads(Path(FILE).read_text())]
    ray.init(log_to_driver=False, logging_level=logging.WARNING)
    sys.stdout.write(f"{ANSWER}{json.dumps([asdict(outcome) for outcome in opened(processes)])}\n")


if __name__ == "__main__":
    main()
