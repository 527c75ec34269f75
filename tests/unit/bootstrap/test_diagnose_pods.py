"""Tests what is said of pods: those in trouble or restarted, and of RayJobs that KubeRay gave up."""

from __future__ import annotations

from typing import Any

from bootstrap.diagnosis.evidence import Weight
from bootstrap.diagnosis.explain import findings
from tests.unit.bootstrap.test_trouble import NAME, NOT_READY, container, ended, event, pod, waits
from tests.unit.diagnosed import job, only, seen

READY = {"type": "Ready", "status": "True"}


def test_a_pod_that_no_node_takes_is_told_with_the_schedulers_words() -> None:
    words = "0/1 nodes are available: 1 Insufficient cpu."
    scheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": words}
    stuck = pod(conditions=(scheduled, NOT_READY))
    found = only(findings(seen(pods=[stuck])))
    assert (found.id, found.pod, found.what) == ("pod-failed", NAME, f"no node takes pod {NAME}")
    assert (found.where, found.why) == (f"pod {NAME}, on no node yet", words)
    leaving: dict[str, Any] = {
        "metadata": {"name": "old", "deletionTimestamp": "now"},
        "spec": {},
        "status": {},
    }
    room = only(findings(seen(pods=[stuck, leaving])))
    assert (room.id, room.weight) == ("pod-failed", Weight.WAITING)
    assert room.why == f"{words}; a pod is leaving, which may make room"


def test_a_pod_without_its_image_and_one_that_crashes_say_their_last_words() -> None:
    image = pod(container(waits("ErrImageNeverPull", "not present")))
    assert only(findings(seen(pods=[image]))).id == "image-missing"
    crash = pod(container(waits("CrashLoopBackOff"), lastState=ended(1, message="no such file: x.yaml")))
    assert "no such file: x.yaml" in only(findings(seen(pods=[crash]))).why


def test_a_container_that_was_killed_for_memory_and_runs_again() -> None:
    again = container({"running": {}}, restartCount=2, lastState=ended(137, "OOMKilled"))
    found = only(findings(seen(pods=[pod(again, conditions=(READY,))])))
    assert (found.id, found.what) == (
        "container-restarted",
        "container ray-head was restarted 2 times, and runs again",
    )
    assert "OOMKilled, exit code 137" in found.why
    # With cgroup v1 the kubelet was seen to call it so.
    again["lastState"] = ended(137, "Error")
    unsure = only(findings(seen(pods=[pod(again, conditions=(READY,))])))
    assert "most often because memory ran out" in unsure.why
    assert unsure.hint == found.hint == "raise resources.limits.memory, or have its tasks load less"


def test_events_of_an_earlier_pod_of_that_name_are_not_told_of_the_one_that_is_there() -> None:
    earlier = event("FailedMount", "no such secret", count=9)
    earlier["involvedObject"]["uid"] = "u0"
    assert only(findings(seen(pods=[pod(container(waits("ContainerCreating")))], events=[earlier]))).id == (
        "nothing-wrong"
    )


def test_an_event_without_a_reason_ends_nothing() -> None:
    odd = event("x", "m")
    del odd["reason"]
    creating = pod(container(waits("ContainerCreating")), conditions=(NOT_READY,))
    assert only(findings(seen(pods=[creating], events=[odd]))).id == "nothing-wrong"


def test_of_one_pod_only_its_own_is_told() -> None:
    well = pod(container({"running": {}}), conditions=(READY,), phase="Running")
    well["metadata"] = {"name": "other", "uid": "u2"}
    image = pod(container(waits("ErrImageNeverPull", "not present")))
    found = only(findings(seen(pods=[image, well]), pod="other"))
    assert (found.id, found.why) == ("nothing-wrong", "pod other is Running")


def test_a_rayjob_that_failed_before_ray_had_it() -> None:
    status = {
        "jobDeploymentStatus": "Failed",
        "reason": "DeadlineExceeded",
        "message": "The RayJob has passed the activeDeadlineSeconds",
        "jobId": "own-1",
    }
    rayjob = {"metadata": {"name": "own"}, "status": status}
    found = only(findings(seen(rayjobs=[rayjob])))
    assert (found.id, found.what) == ("rayjob-failed", "RayJob own failed")
    assert found.why.startswith("DeadlineExceeded: The RayJob has passed")


def test_a_rayjob_that_kuberay_gave_up_while_ray_had_its_job() -> None:
    late = {
        "jobDeploymentStatus": "Failed",
        "reason": "DeadlineExceeded",
        "message": "too late",
        "jobId": "train-1",
    }
    rayjob = {"metadata": {"name": "own"}, "status": late}
    stopped = findings(seen([job(status="STOPPED")], rayjobs=[rayjob]))
    assert [found.id for found in stopped] == ["rayjob-failed"]
    # Of a job that failed in Ray the cause is told, and no more.
    assert [found.id for found in findings(seen([job(code=5)], rayjobs=[rayjob]))] == ["job-failed"]


def test_a_rayjob_that_kuberay_refuses() -> None:
    status = {
        "jobDeploymentStatus": "ValidationFailed",
        "reason": "ValidationFailed",
        "message": "no such mode",
    }
    found = only(findings(seen(rayjobs=[{"metadata": {"name": "own"}, "status": status}])))
    assert (found.id, found.why) == ("rayjob-failed", "ValidationFailed: no such mode")
