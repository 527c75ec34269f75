"""Tests which workers a new head does not know, read from the API's own JSON."""

from __future__ import annotations

from typing import Any

from bootstrap.steps.ray_cluster import left_behind

EARLIER, HEAD, LATER = "2026-11-22T08:58:15Z", "2026-11-22T08:58:20Z", "2026-11-22T08:58:31Z"


def pod(name: str, container: str, **state: Any) -> dict[str, Any]:
    status = {"name": container, "state": {}, "lastState": {}, **state}
    return {"metadata": {"name": name}, "status": {"containerStatuses": [status]}}


def running(since: str) -> dict[str, Any]:
    return {"running": {"startedAt": since}}


def waiting(reason: str, began: str) -> dict[str, Any]:
    """Returns the status of a container that ran since `began` and ended."""
    return {"state": {"waiting": {"reason": reason}}, "lastState": {"terminated": {"startedAt": began}}}


def test_workers_that_started_before_the_head_are_left_behind() -> None:
    removed = pod("removed", "ray-worker", state=running(EARLIER))
    removed["metadata"]["deletionTimestamp"] = LATER
    pods = [
        pod("head", "ray-head", state=running(HEAD)),
        pod("stale", "ray-worker", state=running(EARLIER)),
        pod("joined", "ray-worker", state=running(LATER)),
        pod("crashing", "ray-worker", **waiting("CrashLoopBackOff", EARLIER)),
        pod("crashed here", "ray-worker", **waiting("CrashLoopBackOff", LATER)),
        # After the engine's restart: its program starts once this head answers.
        pod("restarted", "ray-worker", **waiting("PodInitializing", EARLIER)),
        removed,
        {"metadata": {"name": "not scheduled"}, "status": {}},
    ]
    assert left_behind(pods) == ["stale", "crashing"]


def test_while_no_head_runs_no_worker_is_left_behind() -> None:
    head = pod("head", "ray-head", state={"waiting": {"reason": "PodInitializing"}})
    assert left_behind([head, pod("worker", "ray-worker", state=running(EARLIER))]) == []
