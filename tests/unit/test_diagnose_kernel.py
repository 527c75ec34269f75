"""Tests what is said of processes that the kernel killed for want of memory, by its own lines."""

from __future__ import annotations

from typing import Any

import pytest

from bootstrap.diagnosis import kernel
from bootstrap.diagnosis.evidence import Kill
from bootstrap.diagnosis.explain import findings
from bootstrap.diagnosis.kernel import read_kills
from tests.unit.diagnosed import NODE, NOW, job, only, seen, task
from tests.unit.test_trouble import NAME, container, ended, pod

UID = "e51ea847-3651-4cc3-a788-c40edee187e3"
GROUP = (
    "/docker/2a0d/kubelet.slice/kubelet-kubepods.slice/"
    f"kubelet-kubepods-burstable-pod{UID.replace('-', '_')}.slice/cri-containerd-4db8.scope"
)
# As /dev/kmsg of Linux 6.18 gave them, with cgroup v1.
RECORDS = [
    "4,2711,53267596329,-;tail invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=999\n",
    "6,2745,53267596784,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=cri-containerd-4db8.scope,"
    f"mems_allowed=0,oom_memcg={GROUP.rpartition('/')[0]},task_memcg={GROUP},task=tail,pid=2279,uid=1000\n",
    "3,2746,53267596805,-;Memory cgroup out of memory: Killed process 2279 (tail) total-vm:22060kB, "
    "anon-rss:19200kB, file-rss:1620kB, shmem-rss:0kB, UID:1000 pgtables:92kB oom_score_adj:999\n"
    " SUBSYSTEM=none\n",
]
DIED = "ray.exceptions.WorkerCrashedError: The worker died unexpectedly while executing this task.\n"
LOG = f'Traceback (most recent call last):\n  File "train.py", line 6, in <module>\n    ray.get(x)\n{DIED}'


def kill(**more: Any) -> Kill:
    its = {"pid": 4711, "program": "ray::load", "megabytes": 900, "limit": False, "group": "", "at": NOW - 61}
    return Kill(**{**its, **more})


def running(again: dict[str, Any], **status: Any) -> Any:
    """A pod with this container, which is ready, and with the id that the kernel's records have."""
    made = pod(again, conditions=({"type": "Ready", "status": "True"},), **status)
    made["metadata"]["uid"] = UID
    return made


def test_a_kill_is_read_with_its_group_and_its_time() -> None:
    (found,) = read_kills(RECORDS, booted=1_000_000.0)
    assert found == {
        "pid": 2279,
        "program": "tail",
        "megabytes": 20,
        "limit": True,
        "group": GROUP,
        "at": pytest.approx(1_053_267.596805),
    }


def test_a_kill_for_the_whole_machines_memory_is_no_limits() -> None:
    line = (
        RECORDS[2].replace("Memory cgroup out of memory", "Out of memory").replace("(tail)", "(ray::a (b) c)")
    )
    (found,) = read_kills([line], 0)
    assert (found["limit"], found["group"], found["program"]) == (False, "", "ray::a (b) c")


def test_of_many_kills_the_last_are_kept_and_what_is_no_record_is_passed_over() -> None:
    many = [RECORDS[2].replace("2279", str(number)) for number in range(1, 1001)]
    found = read_kills(many, 0)
    assert (len(found), found[-1]["pid"]) == (200, 1000)
    odd = ["", "no record", "6,1,2,-;Memory cgroup out of memory: Killed process x (y)"]
    assert read_kills(odd, 0) == []


def test_where_the_log_may_not_be_read_there_is_nothing(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel, "_LOG", tmp_path / "none")
    assert kernel.kills() == []


@pytest.mark.parametrize(
    ("one", "identity"),
    [
        (kill(), "task-out-of-memory"),
        (kill(pid=4712), "worker-died"),
        # Another process had the same number before.
        (kill(at=NOW - 600), "worker-died"),
    ],
)
def test_a_worker_that_the_kernel_killed_is_told_so(one: Kill, identity: str) -> None:
    row = task(error="RPC error: Socket closed", error_type="WORKER_DIED", worker_pid=4711)
    found = only(findings(seen([job()], [row], logs={"train-1": LOG}, kills=[one])))
    assert found.id == identity
    if identity == "task-out-of-memory":
        assert found.what == "job train-1 failed: task load was killed by the kernel for its memory"
        assert (
            found.why == "the kernel killed ray::load at 900 MB, as this machine had no memory left (dmesg)"
        )
    unsubmitted = only(findings(seen(tasks=[row], kills=[one])))
    assert unsubmitted.id == identity


@pytest.mark.parametrize(
    ("one", "identity"),
    [
        (kill(pid=25, limit=True, group=GROUP), "task-out-of-memory"),
        # In a pod the numbers are others, so it is the pod and the name that tell.
        (kill(limit=True, group=GROUP.replace("e51e", "0000")), "worker-died"),
        (kill(limit=True, group=GROUP, program="ray::other"), "worker-died"),
    ],
)
def test_in_a_pod_it_is_told_by_the_pod_and_the_name(one: Kill, identity: str) -> None:
    row = task(error="Socket closed", error_type="WORKER_DIED", worker_pid=4711, node_id="n1")
    well = running(container({"running": {}}), podIP="10.0.0.7")
    node = {**NODE, "node_id": "n1", "node_ip": "10.0.0.7"}
    found = only(
        findings(seen([job()], [row], nodes=[node], logs={"train-1": LOG}, kills=[one], pods=[well]))
    )
    assert found.id == identity


@pytest.mark.parametrize(("one", "code", "identity"), [
    (kill(pid=25487, program="python", at=NOW - 5), 137, "job-out-of-memory"),
    (kill(pid=25487, program="python", at=NOW - 5), 139, "job-crashed"),
    (kill(pid=25487, program="python", at=NOW - 500), 137, "job-killed"),
])  # fmt: skip
def test_a_driver_that_the_kernel_killed_is_told_so(one: Kill, code: int, identity: str) -> None:
    assert only(findings(seen([job(code=code)], kills=[one]))).id == identity


def test_a_pod_over_its_limit_has_the_kernels_words() -> None:
    gone = pod(container({"terminated": ended(137, "OOMKilled")["terminated"]}), phase="Failed")
    gone["metadata"]["uid"] = UID
    found = only(findings(seen(pods=[gone], kills=[kill(group=GROUP, limit=True, program="python")])))
    assert (found.id, found.pod) == ("pod-failed", NAME)
    assert "the kernel killed python at 900 MB, as its limit of memory was reached (dmesg)" in found.why


def test_a_container_that_runs_again_has_them_too_whatever_kubernetes_calls_its_end() -> None:
    # With cgroup v1 the kubelet was seen to call it so.
    again = container({"running": {}}, restartCount=1, lastState=ended(137, "Error"))
    found = only(
        findings(seen(pods=[running(again)], kills=[kill(group=GROUP, limit=True, program="python")]))
    )
    assert found.id == "container-restarted"
    assert found.why.endswith(
        "the kernel killed python at 900 MB, as its limit of memory was reached (dmesg)"
    )
