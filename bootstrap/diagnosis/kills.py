"""Finds which process of Ray's the kernel killed for want of memory, and says so."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from bootstrap.diagnosis.evidence import Evidence, Kill, Row, Task
from bootstrap.diagnosis.failure import Failure
from bootstrap.ray.records import Job

# Ray notices within so many seconds that a worker is gone; 1 to 2 were measured.
_NOTICED = 15.0


def killed(failure: Failure, evidence: Evidence) -> Failure:
    """Returns the failure with the kernel's kill of its task's process, where there is one."""
    return replace(failure, kill=_of_task(failure.task, evidence)) if failure.task else failure


def of_driver(job: Job, evidence: Evidence) -> Kill | None:
    """Returns how the kernel killed the driver of a job of this machine."""
    if evidence.pods or not job.driver_pid:
        return None  # The numbers of a pod's processes are its own.
    own = [kill for kill in evidence.kills if kill.pid == job.driver_pid and kill.at >= job.started]
    return own[-1] if own else None


def in_pod(pod: Row, evidence: Evidence) -> Iterator[Kill]:
    """Yields what the kernel killed in that pod, oldest first."""
    uid = str(pod["metadata"].get("uid") or "")
    # The kubelet names the pod's cgroup by its uid; where systemd makes it, with these marks.
    names = (f"pod{uid}", f"pod{uid.replace('-', '_')}")
    if uid:
        yield from (kill for kill in evidence.kills if any(name in kill.group for name in names))


def words(kill: Kill) -> str:
    """Returns what the kernel did, as half a sentence."""
    of = "its limit of memory was reached" if kill.limit else "this machine had no memory left"
    return f"the kernel killed {kill.program} at {kill.megabytes} MB, as {of} (dmesg)"


def _of_task(task: Task, evidence: Evidence) -> Kill | None:
    kills: list[Kill]
    if evidence.pods:
        address = next((node.address for node in evidence.nodes if node.node_id == task.node_id), "")
        pods = [pod for pod in evidence.pods if address and (pod.get("status") or {}).get("podIP") == address]
        # Of a process's name the kernel has 15 characters, and Ray names a worker by its task.
        kills = [
            kill for pod in pods for kill in in_pod(pod, evidence) if kill.program == f"ray::{task.name}"[:15]
        ]
    else:
        kills = [kill for kill in evidence.kills if task.pid and kill.pid == task.pid]
    near = [kill for kill in kills if abs(task.since - kill.at) < _NOTICED]
    return near[-1] if near else None
