"""Findings for a Ray cluster that does not respond, dead nodes, pods in trouble and failed RayJobs."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bootstrap.diagnosis.evidence import Evidence, Finding, Row, Weight
from bootstrap.kube.trouble import explain, waiting
from rayside.ray.outcome import explain_exit

# Seconds in which a node's death may be the cause of other failures.
_RECENT = 600.0
# With cgroup v1 the kubelet may report `Error` for this exit code: it does not see a kill for memory.
_KILLED = 137


def ray_unreachable(evidence: Evidence) -> Iterator[Finding]:
    """Yields a finding if Ray does not respond, with the last line of its head's log."""
    if evidence.ray is None:
        return
    lines = [line.strip() for line in evidence.head_log.splitlines() if line.strip()]
    errors = [line for line in lines if "ERR" in line or "Error" in line] or lines
    yield Finding(
        evidence.ray.id,
        evidence.ray.message,
        "Ray's head",
        f"its log ends with: {errors[-1]}" if errors else "it left no log",
        evidence.ray.hint,
        Weight.CLUSTER,
    )


def dead_nodes(evidence: Evidence) -> Iterator[Finding]:
    """Yields a finding for each node that died, but not for nodes that Ray was asked to remove."""
    alive = sum(node.alive for node in evidence.nodes)
    for node in evidence.nodes:
        if node.alive or "Expected termination" in node.message:
            continue
        recent = evidence.now - node.ended < _RECENT
        yield Finding(
            "node-dead",
            f"node {node.address} of Ray died",
            f"node {node.node_id[:12]}",
            f"{node.message or 'Ray does not say why'}; nodes alive: {alive}",
            "./invokew status shows what is left; a pod of it that died: ./invokew diagnose --pod NAME",
            Weight.CLUSTER if recent else Weight.PAST,
            at=node.ended,
        )


def troubled_pods(evidence: Evidence) -> Iterator[Finding]:
    leaving = any("deletionTimestamp" in pod["metadata"] for pod in evidence.pods)
    for pod in evidence.pods:
        name = pod["metadata"]["name"]
        error = explain(pod, _events(evidence, name, pod["metadata"].get("uid")))
        if error is None:
            continue
        what, _, why = error.message.partition(": ")
        makes_room = leaving and what.startswith("no node takes pod")
        why += "; a pod is leaving, which may make room" * makes_room
        on = pod.get("spec", {}).get("nodeName")
        yield Finding(
            error.id,
            what,
            f"pod {name}, {f'node {on}' if on else 'on no node yet'}",
            why or waiting(pod),
            error.hint,
            Weight.WAITING if makes_room else Weight.POD,
            pod=name,
        )


def restarted_containers(evidence: Evidence) -> Iterator[Finding]:
    """Yields a finding for each container that runs again after a failure."""
    for pod in evidence.pods:
        for container in pod.get("status", {}).get("containerStatuses", []):
            ended = container.get("lastState", {}).get("terminated") or {}
            if "running" not in container.get("state", {}) or not ended.get("exitCode"):
                continue
            name, killed = pod["metadata"]["name"], ended.get("reason") == "OOMKilled"
            restarts = container.get("restartCount", 1)
            times = "once" if restarts == 1 else f"{restarts} times"
            yield Finding(
                "container-restarted",
                f"container {container['name']} was restarted {times}, and runs again",
                f"pod {name}",
                _ending(ended, killed=killed),
                "raise resources.limits.memory, or have its tasks load less"
                if ended["exitCode"] == _KILLED
                else f"./invokew diagnose --pod {shlex.quote(name)} --archive pod.tar.gz keeps its logs",
                Weight.PART_FAILED,
                pod=name,
            )


def failed_rayjobs(evidence: Evidence) -> Iterator[Finding]:
    """Yields a finding for each RayJob that failed, unless Ray has its failed job, which says more."""
    known = {job.submission_id for job in evidence.jobs if job.status == "FAILED"}
    for rayjob in evidence.rayjobs:
        status = rayjob.get("status") or {}
        deployment = status.get("jobDeploymentStatus")
        failed = deployment in ("Failed", "ValidationFailed") or status.get("jobStatus") == "FAILED"
        if not failed or status.get("jobId") in known:
            continue
        name = rayjob["metadata"]["name"]
        why = ": ".join(status[key] for key in ("reason", "message") if status.get(key))
        yield Finding(
            "rayjob-failed",
            f"RayJob {name} failed",
            f"RayCluster {status.get('rayClusterName') or 'of none'}",
            why or "KubeRay does not say why",
            "correct what it names, and submit it again: ./invokew submit --job FILE.yaml",
            Weight.FAILED,
            job=status.get("jobId") or name,
        )


def _ending(ended: Row, *, killed: bool) -> str:
    if killed:
        code = ended["exitCode"]
        return f"it was killed, for it needed more than its limit of memory (OOMKilled, exit code {code})"
    last = next(iter((ended.get("message") or "").strip().splitlines()[-1:]), "")
    return f"{explain_exit(ended['exitCode'])}{f': {last}' if last else ''}"


def _events(evidence: Evidence, name: str, uid: str | None) -> Sequence[Row]:
    """Returns a pod's events, oldest first; with `uid`, without events of an earlier pod of that name."""
    own = [
        event
        for event in evidence.events
        if (of := event.get("involvedObject") or {}).get("name") == name
        and of.get("kind") == "Pod"
        and (uid is None or of.get("uid") == uid)
    ]
    return sorted(own, key=_time)


def _time(event: Mapping[str, Any]) -> str:
    return str(event.get("lastTimestamp") or event.get("eventTime") or event.get("firstTimestamp") or "")
