"""Tests how a driver that listens before its `ray.init` is found, and what of its job's data is believed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rayside.errors import NotRunning
from rayside.ray.job_processes import announced
from rayside.ray.metadata import DRIVER
from rayside.relay.cluster import ClusterDebuggees
from tests.unit.rayside.test_relay_process import JOBS, WORKERS, Clock
from tests.unit.rayside.test_state import JOB, WORKER, Recorded

NODES = [{"node_id": "n1", "node_ip": "127.0.0.2"}, {"node_id": "n2", "node_ip": "127.0.0.3"}]
SAID = json.dumps({"port": 40001, "pid": 3543})
# Before `ray.init` Ray knows neither the driver nor an id of the job.
EARLY: dict[str, Any] = {
    **JOB,
    "job_id": None,
    "driver_info": None,
    "driver_node_id": "n1",
    "metadata": {DRIVER: SAID},
}
ROW = {
    **WORKER,
    "worker_type": "DRIVER",
    "worker_id": "02000000" + 48 * "f",
    "debugger_port": 40001,
    "pid": 3543,
}


def announced_drivers(job: dict[str, Any]) -> list[tuple[str, int, int]]:
    (read,) = Recorded(jobs=[job]).jobs()
    return [(driver.host, driver.port, driver.pid) for driver in announced([read], {"n1": "127.0.0.2"})]


def test_a_driver_is_found_by_what_it_announces() -> None:
    assert announced_drivers(EARLY) == [("127.0.0.2", 40001, 3543)]


@pytest.mark.parametrize(
    "announcement",
    [
        None,
        5,
        [],
        *("", "{", "[]", "null"),
        "[" * 100_000,
        *('{"port": 40001}', '{"port": "40001", "pid": 7}', '{"port": 40001.0, "pid": 7}'),
        *('{"port": true, "pid": 7}', '{"port": 22, "pid": 7}', '{"port": 65536, "pid": 7}'),
        *('{"port": -1, "pid": 7}', '{"port": 40001, "pid": 0}', '{"port": 40001, "pid": 1e9}'),
        '{"port": 40001, "pid": 99999999}',
        '{"port": 40001, "pid": 7, "more": "' + "x" * 100 + '"}',
        '{"port": 4' + "0" * 90 + ', "pid": 7}',
    ],
)
def test_anything_else_in_its_place_is_nothing(announcement: object) -> None:
    assert announced_drivers({**EARLY, "metadata": {DRIVER: announcement}}) == []


def test_no_address_comes_from_the_job() -> None:
    announcement = json.dumps({"port": 40001, "pid": 7, "host": "192.0.2.1"})
    assert announced_drivers({**EARLY, "metadata": {DRIVER: announcement}}) == [("127.0.0.2", 40001, 7)]
    assert announced_drivers({**EARLY, "driver_node_id": "another"}) == []
    assert announced_drivers({**EARLY, "driver_node_id": None}) == []


@pytest.mark.parametrize("status", ["PENDING", "SUCCEEDED", "FAILED", "STOPPED"])
def test_a_job_that_does_not_run_has_no_driver(status: str) -> None:
    assert announced_drivers({**EARLY, "status": status}) == []


def cluster(**answers: Any) -> tuple[Clock, Recorded, ClusterDebuggees]:
    clock = Clock()
    dashboard = Recorded(**{"workers": [], "tasks": [], "nodes": NODES, **answers})
    return clock, dashboard, ClusterDebuggees(dashboard, clock=clock)


def test_a_driver_is_the_same_debuggee_before_and_after_its_init() -> None:
    clock, dashboard, debuggees = cluster(jobs=[EARLY])
    (before,) = debuggees.look()
    assert (before.host, before.port, before.pid) == ("127.0.0.2", 40001, 3543)
    assert (before.task, before.job_id, before.submission_id, before.driver) == ("driver", "", "j1", True)
    assert before.prove is not None, "nothing is sent to it without the handshake"
    dashboard.answers.update(workers=[ROW], jobs=[{**EARLY, "job_id": "02000000"}])
    clock.now += 0.2
    (after,) = debuggees.look()
    assert (after.worker_id, after.job_id, after.submission_id) == (before.worker_id, "02000000", "j1")
    assert after.paused().worker_id == after.shown_id == ROW["worker_id"]
    # The job ends before its row goes.
    dashboard.answers["jobs"] = [{**EARLY, "job_id": "02000000", "status": "SUCCEEDED"}]
    for _ in range(10):
        clock.now += 0.2
        (ending,) = debuggees.look()
        assert ending.worker_id == before.worker_id


def test_a_relay_that_comes_later_knows_it_by_rays_id() -> None:
    clock, dashboard, debuggees = cluster(jobs=[{**EARLY, "job_id": "02000000"}], workers=[ROW])
    for _ in range(10):
        (driver,) = debuggees.look()
        assert driver.worker_id == driver.shown_id == ROW["worker_id"]
        clock.now += 0.2
    # A driver that has left Ray (ray.shutdown, or the next program of its entrypoint) does not come back.
    dashboard.answers["workers"] = []
    for _ in range(10):
        assert debuggees.look() == []
        clock.now += 0.2


def test_a_driver_that_has_ended_is_gone_with_its_job() -> None:
    clock, dashboard, debuggees = cluster(jobs=[EARLY])
    assert len(debuggees.look()) == 1
    dashboard.answers["jobs"] = [{**EARLY, "status": "FAILED"}]
    clock.now += 1.1
    assert debuggees.look() == []


def test_the_port_of_another_process_can_not_be_claimed() -> None:
    worker = {**WORKER, "debugger_port": 40001}
    _, _, debuggees = cluster(jobs=[EARLY], workers=[worker])
    (only,) = debuggees.look()
    assert (only.worker_id, only.driver) == ("w1", False)
    _, _, debuggees = cluster(jobs=[{**EARLY, "submission_id": "thief", "start_time": 1795259563440}, EARLY])
    (only,) = debuggees.look()
    assert only.submission_id == "j1"


def test_waiting_drivers_cost_one_request_a_second_however_many_they_are() -> None:
    jobs = [
        {**EARLY, "submission_id": f"j{n}", "metadata": {DRIVER: json.dumps({"port": 40000 + n, "pid": 7})}}
        for n in range(100)
    ]
    clock, dashboard, debuggees = cluster(jobs=jobs)
    assert len(debuggees.look()) == 100
    dashboard.paths.clear()
    for _ in range(50):
        clock.now += 0.2
        debuggees.look()
    assert set(dashboard.paths) == {WORKERS, JOBS}
    assert dashboard.paths.count(JOBS) <= 10


def test_jobs_that_name_no_node_of_the_cluster_are_not_asked_for_more_than_once_a_second() -> None:
    clock, dashboard, debuggees = cluster(jobs=[{**EARLY, "driver_node_id": "another"}])
    for _ in range(50):
        assert debuggees.look() == []
        clock.now += 0.2
    assert dashboard.paths.count("/api/v0/nodes") <= 11


def test_workers_are_found_while_the_jobs_can_not_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, dashboard, debuggees = cluster(jobs=[], workers=[WORKER])
    assert len(debuggees.look()) == 1

    def fails() -> list[Any]:
        raise NotRunning("the Jobs API does not answer", hint="")

    monkeypatch.setattr(dashboard, "jobs", fails)
    clock.now += 1.1
    monkeypatch.setattr(debuggees, "_ask_again", clock.now + 60)
    assert len(debuggees.look()) == 1
