"""Rows of Ray's tables and of Kubernetes, checked and read as evidence.

The columns are those of Ray's State API (ray/util/state/common.py) and of its Jobs API, of Ray 2.60.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from bootstrap.diagnosis.evidence import Actor, Node, PlacementGroup, Row, Task
from rayside.ray.records import Job, read_job

# Where a moment is a number of milliseconds, it is below this one: the year 5138.
_LATEST = 1e14
# Ray's supervisors of jobs are actors in this namespace, and nobody's but Ray's.
_SUPERVISORS = "SUPERVISOR_ACTOR_RAY_NAMESPACE"


def read_jobs(rows: Iterable[Row]) -> list[Job]:
    """Returns the jobs of Ray's table; as all here that reads rows, raises where one is not like Ray's."""
    jobs = [read_job(row) for row in rows]
    job: Any  # What a stranger answers may be of any type.
    for job in jobs:
        for name in (job.submission_id, job.status, job.entrypoint):
            _name(name)
        for text in (job.job_id, job.message, job.node_id):
            _text(text)
        _seconds(job.started * 1000)
        if not isinstance(job.runtime_env, Mapping) or not isinstance(job.exit_code, int | None):
            raise TypeError("its runtime_env or its exit code is of another type")
    return jobs


def read_error_types(rows: Iterable[Any], jobs: Iterable[Job]) -> dict[str, str]:
    """Returns what Ray calls the failures of these jobs, by submission id."""
    rows = [row for row in rows if isinstance(row, Mapping)]
    types = {str(row.get("submission_id")): str(row.get("error_type") or "") for row in rows}
    return {job.submission_id: types.get(job.submission_id, "") for job in jobs}


def read_named(rows: Iterable[Row]) -> list[Row]:
    """Returns objects of Kubernetes that have names."""
    return [row for row in rows if _name(row["metadata"]["name"]) and _fields(row.get("status")) is not None]


def read_events(rows: Iterable[Row]) -> list[Row]:
    """Returns events of Kubernetes, with texts for what may be missing."""
    return [
        {**row, "involvedObject": _fields(row.get("involvedObject"))}
        | {name: _text(row.get(name)) for name in ("reason", "message")}
        for row in rows
    ]


def read_tasks(rows: Iterable[Row]) -> list[Task]:
    """Returns the tasks of Ray's table, without the supervisors of jobs."""
    return [_task(row) for row in rows if not str(row.get("name")).startswith("JobSupervisor.")]


def _name(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} in place of a name")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str | None):
        raise TypeError(f"{type(value).__name__} in place of a text")
    return value or ""


def _fields(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping | None):
        raise TypeError(f"{type(value).__name__} in place of an object")
    return value or {}


def _seconds(milliseconds: Any) -> float:
    """Returns a moment in seconds since 1970; 0 where none is told."""
    if milliseconds and not 0 <= milliseconds < _LATEST:
        raise ValueError("a time that is none")
    return (milliseconds or 0) / 1000


def _amounts(value: Any) -> Mapping[str, float]:
    return {name: float(amount) for name, amount in _fields(value).items()}


def _task(row: Row) -> Task:
    events = row.get("events") or []
    since = events[-1].get("created_ms") if events else row.get("creation_time_ms")
    environment = _text(_fields(row.get("runtime_env_info")).get("serialized_runtime_env"))
    return Task(
        task_id=_name(row["task_id"]),
        attempt=int(row.get("attempt_number") or 0),
        name=_text(row.get("name")),
        job_id=_text(row.get("job_id")),
        kind=_text(row.get("type")),
        state=_text(row.get("state")),
        error_type=_text(row.get("error_type")),
        error=_text(row.get("error_message")),
        required=_amounts(row.get("required_resources")),
        worker_id=_text(row.get("worker_id")),
        node_id=_text(row.get("node_id")),
        since=_seconds(since),
        runtime_env="" if environment == "{}" else environment,
    )


def read_actors(rows: Iterable[Row]) -> list[Actor]:
    """Returns the actors of Ray's table, without the supervisors of jobs."""
    return [_actor(row) for row in rows if row.get("ray_namespace") != _SUPERVISORS]


def _actor(row: Row) -> Actor:
    # It is a protobuf's oneof: one key, as `oom_context`, with the details below it.
    (kind, context), *_ = (row.get("death_cause") or {"": {}}).items()
    return Actor(
        actor_id=_name(row["actor_id"]),
        name=_text(row.get("class_name")),
        job_id=_text(row.get("job_id")),
        state=_text(row.get("state")),
        required=_amounts(row.get("required_resources")),
        restarts=int(row.get("num_restarts") or 0),
        reason=_text(context.get("reason")) or kind.removesuffix("_context"),
        cause=_text(context.get("error_message")),
    )


def read_nodes(rows: Iterable[Row]) -> list[Node]:
    """Returns the nodes of Ray's table."""
    return [
        Node(
            node_id=_name(row["node_id"]),
            address=_text(row.get("node_ip")),
            alive=row.get("state") == "ALIVE",
            message=_text(row.get("state_message")),
            total=_amounts(row.get("resources_total")),
            ended=_seconds(row.get("end_time_ms")),
        )
        for row in rows
    ]


def read_groups(rows: Iterable[Row]) -> list[PlacementGroup]:
    """Returns the placement groups of Ray's table."""
    return [
        PlacementGroup(
            name=_text(row.get("name")) or _text(row["placement_group_id"]),
            job_id=_text(row.get("creator_job_id")),
            state=_text(row.get("state")),
            bundles=[_amounts(bundle.get("unit_resources")) for bundle in row.get("bundles") or []],
            since=_seconds(
                int((row.get("stats") or {}).get("creation_request_received_ns") or 0) // 1_000_000
            ),
        )
        for row in rows
    ]


def read_used(status: Row) -> dict[str, dict[str, float]]:
    """Returns how much of each resource is in use, by node, from what `/api/cluster_status` says."""
    report = ((status.get("data") or {}).get("clusterStatus") or {}).get("loadMetricsReport") or {}
    return {
        node: {name: float(amounts[0]) for name, amounts in usage.items()}
        for node, usage in (report.get("usageByNode") or {}).items()
    }
