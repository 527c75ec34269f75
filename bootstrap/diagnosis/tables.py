"""Parser of rows of Ray's tables and of Kubernetes into evidence.

The columns belong to Ray's State API (ray/util/state/common.py) and its Jobs API, in Ray 2.60.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from bootstrap.diagnosis.evidence import Actor, Node, PlacementGroup, Row, Task
from rayside.ray.records import Job, read_job

# Namespace of Ray's supervisors of jobs; no other actors are in it.
_SUPERVISORS = "SUPERVISOR_ACTOR_RAY_NAMESPACE"


def read_jobs(rows: Iterable[Row]) -> list[Job]:
    """Returns the jobs of Ray's table. Like all readers here, it raises for a malformed row."""
    jobs = [read_job(row) for row in rows]
    job: Any  # A response may have any type.
    for job in jobs:
        if not isinstance(job.runtime_env, Mapping) or not isinstance(job.exit_code, int | None):
            raise TypeError("its runtime_env or its exit code is of another type")
    return jobs


def read_error_types(rows: Iterable[Row], jobs: Iterable[Job]) -> dict[str, str]:
    """Returns Ray's error types of these jobs, by submission id."""
    types = {_text(row.get("submission_id")): _text(row.get("error_type")) for row in rows}
    return {job.submission_id: types.get(job.submission_id, "") for job in jobs}


def read_named(rows: Iterable[Row]) -> list[Row]:
    return [row for row in rows if row["metadata"]["name"]]


def read_tasks(rows: Iterable[Row]) -> list[Task]:
    """Returns the tasks of Ray's table, without the supervisors of jobs."""
    return [_task(row) for row in rows if not _text(row.get("name")).startswith("JobSupervisor.")]


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _amounts(value: Any) -> Mapping[str, float]:
    return {name: float(amount) for name, amount in (value or {}).items()}


def _task(row: Row) -> Task:
    events = row.get("events") or []
    since = events[-1].get("created_ms") if events else row.get("creation_time_ms")
    environment = _text((row.get("runtime_env_info") or {}).get("serialized_runtime_env"))
    texts = {name: _text(row.get(name)) for name in ("name", "job_id", "state", "error_type")}
    return Task(
        **texts,
        task_id=_text(row["task_id"]),
        attempt=int(row.get("attempt_number") or 0),
        kind=_text(row.get("type")),
        error=_text(row.get("error_message")),
        required=_amounts(row.get("required_resources")),
        worker_id=_text(row.get("worker_id")),
        node_id=_text(row.get("node_id")),
        since=(since or 0) / 1000,
        runtime_env="" if environment == "{}" else environment,
    )


def read_actors(rows: Iterable[Row]) -> list[Actor]:
    return [_actor(row) for row in rows if row.get("ray_namespace") != _SUPERVISORS]


def _actor(row: Row) -> Actor:
    # It is a protobuf's oneof: one key, as `oom_context`, with the details below it.
    (kind, context), *_ = (row.get("death_cause") or {"": {}}).items()
    return Actor(
        actor_id=_text(row["actor_id"]),
        name=_text(row.get("class_name")),
        job_id=_text(row.get("job_id")),
        state=_text(row.get("state")),
        required=_amounts(row.get("required_resources")),
        restarts=int(row.get("num_restarts") or 0),
        reason=_text(context.get("reason")) or kind.removesuffix("_context"),
        cause=_text(context.get("error_message")),
    )


def read_nodes(rows: Iterable[Row]) -> list[Node]:
    return [
        Node(
            node_id=_text(row["node_id"]),
            address=_text(row.get("node_ip")),
            alive=row.get("state") == "ALIVE",
            message=_text(row.get("state_message")),
            total=_amounts(row.get("resources_total")),
            ended=(row.get("end_time_ms") or 0) / 1000,
        )
        for row in rows
    ]


def read_groups(rows: Iterable[Row]) -> list[PlacementGroup]:
    return [
        PlacementGroup(
            name=_text(row.get("name")) or _text(row["placement_group_id"]),
            job_id=_text(row.get("creator_job_id")),
            state=_text(row.get("state")),
            bundles=[_amounts(bundle.get("unit_resources")) for bundle in row.get("bundles") or []],
            since=int((row.get("stats") or {}).get("creation_request_received_ns") or 0) / 1e9,
        )
        for row in rows
    ]


def read_used(status: Row) -> dict[str, dict[str, float]]:
    """Returns the amount of each resource in use, by node, from a response of `/api/cluster_status`."""
    report = ((status.get("data") or {}).get("clusterStatus") or {}).get("loadMetricsReport") or {}
    return {
        node: {name: float(amounts[0]) for name, amounts in usage.items()}
        for node, usage in (report.get("usageByNode") or {}).items()
    }
