"""Explains pods that can't run, were restarted or are gone, and RayJobs that KubeRay gave up."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bootstrap.diagnosis.evidence import Evidence, Row
from bootstrap.diagnosis.finding import Finding, Weight, sentence
from bootstrap.kube.cause import first
from bootstrap.kube.room import EVICTED, EVICTED_ELSE
from bootstrap.kube.trouble import explain, waiting
from rayside.ray.outcome import explain_exit

_EVICTED = "Evicted"
# With cgroup v1 the kubelet may call this end `Error`: it is not told of a kill for memory.
_KILLED = 137


def troubled_pods(evidence: Evidence) -> Iterator[Finding]:
    """Yields a finding for each pod that can't run."""
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
            sentence(what),
            sentence(f"pod {name}, {f'node {on}' if on else 'on no node yet'}"),
            sentence(why or waiting(pod)),
            sentence(error.hint),
            Weight.WAITING if makes_room else Weight.POD,
            pod=name,
        )


def restarted_containers(evidence: Evidence) -> Iterator[Finding]:
    """Yields a finding for each container that runs again after it ended badly."""
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
                sentence(f"container {container['name']} was restarted {times}, and runs again"),
                sentence(f"pod {name}"),
                sentence(_ending(ended, killed=killed)),
                "raise resources.limits.memory, or have its tasks load less"
                if ended["exitCode"] == _KILLED
                else f"./invokew diagnose --pod {shlex.quote(name)} --archive pod.tar.gz keeps its logs",
                Weight.PART_FAILED,
                pod=name,
            )


def evicted_pods(evidence: Evidence) -> Iterator[Finding]:
    """Yields a finding for each pod of Ray's that was evicted and is gone: KubeRay replaces it."""
    there = {pod["metadata"].get("uid") for pod in evidence.pods}
    for event in evidence.events:
        of = event.get("involvedObject") or {}
        is_evicted = event.get("reason") == _EVICTED and of.get("kind") == "Pod"
        if is_evicted and of.get("uid") not in there and _has_a_clusters_name(of.get("name"), evidence):
            yield _evicted(event)


def failed_rayjobs(evidence: Evidence) -> Iterator[Finding]:
    """Yields a finding for each RayJob that failed, unless its job failed in Ray, which says more."""
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
            sentence(f"RayJob {name} failed"),
            sentence(f"RayCluster {status.get('rayClusterName') or 'of none'}"),
            sentence(why or "KubeRay does not say why"),
            "correct what it names, and submit it again: ./invokew submit --job FILE.yaml",
            Weight.FAILED,
            job=status.get("jobId") or name,
        )


def _evicted(event: Row) -> Finding:
    name, message = str(event["involvedObject"].get("name")), str(event.get("message") or "")
    cause = first(EVICTED, message, EVICTED_ELSE)
    return Finding(
        "pod-evicted",
        sentence(f"pod {name} was evicted from its node, and is gone"),
        sentence(f"last heard of {_time(event)}"),
        sentence(": ".join(filter(None, [cause.why, message]))),
        cause.hint,
        Weight.PART_FAILED,
        pod=name,
    )


def _has_a_clusters_name(name: object, evidence: Evidence) -> bool:
    """Returns whether a pod is called as KubeRay calls those of a RayCluster of which pods are there.

    Its names are CLUSTER-head-RANDOM and CLUSTER-GROUP-worker-RANDOM (PodName in KubeRay's util.go).
    """
    labels = [pod["metadata"].get("labels") or {} for pod in evidence.pods]
    clusters = {each["ray.io/cluster"] for each in labels if "ray.io/cluster" in each}
    return any(re.fullmatch(rf"{re.escape(cluster)}-(head|.+-worker)-\w+", str(name)) for cluster in clusters)


def _ending(ended: Row, *, killed: bool) -> str:
    """Returns how a container ended, with its last words."""
    if killed:
        code = ended["exitCode"]
        return f"it was killed, for it needed more than its limit of memory (OOMKilled, exit code {code})"
    last = next(iter((ended.get("message") or "").strip().splitlines()[-1:]), "")
    return f"{explain_exit(ended['exitCode'])}{f': {last}' if last else ''}"


def _events(evidence: Evidence, name: str, uid: str | None) -> Sequence[Row]:
    """Returns a pod's events, oldest first; with `uid`, not those of an earlier pod of that name."""
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
