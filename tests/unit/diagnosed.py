"""Makes evidence for tests of a diagnosis, from rows as Ray 2.60 gave them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bootstrap.diagnosis import tables
from bootstrap.diagnosis.evidence import Evidence, Finding
from bootstrap.diagnosis.explain import findings
from rayside.dap.paused_task import PausedTask
from rayside.ray.records import read_job

NOW = 1795435400.0
NODE: dict[str, Any] = {
    "node_id": "eb348e1b",
    "node_ip": "127.0.0.2",
    "is_head_node": True,
    "state": "ALIVE",
    "state_message": None,
    "resources_total": {"memory": 14564240589.0, "node:127.0.0.2": 1.0, "CPU": 2.0},
    "end_time_ms": 0,
}


def job(name: str = "train-1", status: str = "FAILED", code: int | None = 1, **more: Any) -> dict[str, Any]:
    """A row of the Jobs API; the job's own id is 02000000."""
    return {
        "type": "SUBMISSION",
        "job_id": "02000000",
        "submission_id": name,
        "driver_info": {"id": "02000000", "node_ip_address": "127.0.0.2", "pid": "25487"},
        "status": status,
        "entrypoint": "python train.py",
        "message": "Job is currently running.",
        "error_type": "JOB_ENTRYPOINT_COMMAND_ERROR" if status == "FAILED" else None,
        "start_time": (NOW - 60) * 1000,
        "runtime_env": None,
        "driver_node_id": "eb348e1b",
        "driver_exit_code": code,
        **more,
    }


def task(name: str = "load", state: str = "FAILED", error: str = "", **more: Any) -> dict[str, Any]:
    """A row of the table of tasks, which came into its state a minute ago."""
    return {
        "task_id": f"id-of-{name}",
        "attempt_number": 0,
        "name": name,
        "state": state,
        "job_id": "02000000",
        "type": "NORMAL_TASK",
        "node_id": None,
        "worker_id": None,
        "error_type": "TASK_EXECUTION_EXCEPTION" if state == "FAILED" else None,
        "error_message": error or None,
        "required_resources": {"CPU": 1.0},
        "runtime_env_info": {"serialized_runtime_env": "{}"},
        "events": [{"state": state, "created_ms": (NOW - 60) * 1000}],
        **more,
    }


def actor(name: str = "Model", state: str = "DEAD", **more: Any) -> dict[str, Any]:
    """A row of the table of actors."""
    return {
        "actor_id": f"id-of-{name}",
        "class_name": name,
        "state": state,
        "job_id": "02000000",
        "ray_namespace": "dfa37e65",
        "required_resources": {},
        "death_cause": None,
        "num_restarts": "0",
        **more,
    }


def died(text: str, reason: str = "WORKER_DIED") -> dict[str, Any]:
    """An actor's death cause."""
    return {"actor_died_error_context": {"error_message": text, "reason": reason}}


def paused(name: str = "look", **more: Any) -> PausedTask:
    since = "2026-11-23T12:27:49Z"
    return PausedTask(**{**PausedTask("w1", "127.0.0.2", 8792, "02000000", name, since).row(), **more})


def seen(
    jobs: Sequence[dict[str, Any]] = (),
    tasks: Sequence[dict[str, Any]] = (),
    actors: Sequence[dict[str, Any]] = (),
    nodes: Sequence[dict[str, Any]] = (NODE,),
    groups: Sequence[dict[str, Any]] = (),
    logs: Mapping[str, str] | None = None,
    used: Mapping[str, Mapping[str, float]] | None = None,
    **more: Any,
) -> Evidence:
    """The evidence of these rows."""
    return Evidence(
        now=NOW,
        jobs=[read_job(row) for row in jobs],
        error_types={row["submission_id"]: row["error_type"] for row in jobs},
        tasks=tables.read_tasks(tasks),
        actors=tables.read_actors(actors),
        nodes=tables.read_nodes(nodes),
        groups=tables.read_groups(groups),
        logs=logs or {},
        used=used or {},
        **more,
    )


def only(found: Sequence[Finding]) -> Finding:
    assert len(found) == 1, [(each.id, each.what) for each in found]
    return found[0]


def check(found: Finding, told: str) -> None:
    """Compares a finding with "id | what | why | where | hint": nothing is any text, a hint is part of it."""
    identity, what, why, where, hint = (*told.split(" | "), "", "", "")[:5]
    assert (found.id, found.what.removeprefix("job train-1 failed: ")) == (identity, what)
    assert (why or found.why, where or found.where) == (found.why, found.where)
    assert hint in found.hint


def of_log(log: str, **more: Any) -> Finding:
    """The one finding of a failed job that printed `log`."""
    return only(findings(seen([job()], logs={"train-1": log}, **more)))
