"""Causes, each with one remedy, of pods that don't start or died, from their status and events.

The reasons come from the kubelet and the scheduler: pkg/kubelet/images/types.go,
pkg/kubelet/container/sync_result.go, pkg/kubelet/kuberuntime/kuberuntime_container.go,
pkg/kubelet/eviction/helpers.go and pkg/scheduler/schedule_one.go of Kubernetes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

from bootstrap.errors import ImageMissing, PodFailed, WrongArchitecture
from bootstrap.kube import pulls, room
from bootstrap.kube.api import Kube
from bootstrap.kube.pulls import Cause, first
from rayside.errors import RaysideError
from rayside.ray.outcome import explain_exit

_IMAGE = frozenset({"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "RegistryUnavailable"})
# Reasons of a program that the kubelet could not even start.
_NOT_STARTED = frozenset({"RunContainerError", "CreateContainerError", "StartError", "ContainerCannotRun"})
# Failures that the kubelet retries. The first attempt often fails only for a moment, for example
# before a Secret has reached the node: they count from the third on, about 3 s later.
_TRIED_AGAIN = frozenset({"FailedMount", "FailedAttachVolume", "FailedCreatePodSandBox"})
_TRIES = 3
# A responding node has ended a pod by then, even with a clock that is somewhat off.
_OVERDUE = timedelta(minutes=1)
# This exit code is 128 + SIGKILL.
_KILLED = 137
_TAINTS = "untolerated taint(s)"
_STARTED = frozenset({"Pulled", "Created", "Started"})


def explain(pod: Mapping[str, Any], events: Sequence[Mapping[str, Any]]) -> RaysideError | None:
    """Returns why `pod`, in the API's JSON, can't run; None if it runs or is starting.

    `events` are the pod's own, oldest first. Returns ImageMissing, WrongArchitecture or PodFailed.
    """
    name, status = pod["metadata"]["name"], pod.get("status", {})
    if "deletionTimestamp" in pod["metadata"]:
        return None
    if status.get("reason") == "Evicted":
        message = status.get("message", "")
        cause = first(room.EVICTED, message, room.EVICTED_ELSE)
        return _without_room(f"pod {name} was evicted from its node", cause, message)
    if is_unschedulable(pod):
        message = _condition(pod, "PodScheduled").get("message", "")
        cause = first(room.UNSCHEDULABLE, message, room.UNSCHEDULABLE_ELSE)
        return _without_room(f"no node takes pod {name}", cause, message)
    pulls_failed = [
        event["message"] for event in events if event.get("reason") == "Failed" and "message" in event
    ]
    for container, spec in _containers(pod):
        if error := _container(name, container, spec, pulls_failed):
            return error
    if status.get("phase") == "Failed":
        why = " ".join(status[key] for key in ("reason", "message") if key in status)
        return PodFailed(f"pod {name} failed{_last_lines(why)}", hint="run the command again")
    if _ready(pod):
        return None
    return _from_events(name, events)


def is_overdue(document: Mapping[str, Any]) -> bool:
    """Returns whether an object that is being removed should have gone by now.

    An overdue pod has a node that does not respond.
    """
    until = document["metadata"].get("deletionTimestamp")
    latest = datetime.now(timezone.utc) - _OVERDUE
    # It is UTC, as in 2026-01-31T23:59:59Z, so that the texts can be compared.
    return bool(until) and str(until) < latest.strftime("%Y-%m-%dT%H:%M:%SZ")


def waiting(pod: Mapping[str, Any]) -> str:
    """Returns what the pod waits for, as in `ray-head is starting`; empty if it is ready."""
    if is_overdue(pod):
        return f"its node {pod['spec'].get('nodeName', '')} does not answer, and it goes once that is removed"
    if "deletionTimestamp" in pod["metadata"]:
        return "it is being removed"
    if _ready(pod):
        return ""
    if _condition(pod, "PodScheduled").get("status") != "True":
        return "waiting for a node"
    for container, _ in _containers(pod):
        if reason := container.get("state", {}).get("waiting", {}).get("reason"):
            if reason in ("ContainerCreating", "PodInitializing"):
                return f"{container['name']} is being created"
            return f"{container['name']}: {reason}"
        if container in pod["status"].get("initContainerStatuses", []):
            if "running" in container.get("state", {}):
                return f"waiting for {container['name']}"
        elif not container.get("ready"):
            return f"{container['name']} is starting"
    # Kubernetes sets the pods of a lost node to not ready, but keeps the status of their containers.
    if pod["status"].get("containerStatuses") and not pod["spec"].get("readinessGates"):
        return f"its node {pod['spec'].get('nodeName', '')} does not answer"
    return "its containers are being created"


def waits(pods: Iterable[Mapping[str, Any]]) -> list[str]:
    """Returns what each pod that is not ready waits for, after the pod's name."""
    return [f"{pod['metadata']['name']}: {wait}" for pod in pods if (wait := waiting(pod))]


def is_unschedulable(pod: Mapping[str, Any]) -> bool:
    """Returns whether the scheduler has found no node for the pod."""
    return bool(_condition(pod, "PodScheduled").get("reason") == "Unschedulable")


def first_problem(kube: Kube, selector: str) -> RaysideError | None:
    """Returns the problem of the first pod with these labels that can't run. Raises ClusterUnreachable."""
    for pod in kube.pods(selector):
        if _ready(pod):
            continue
        error = problem(kube, pod)
        if error and is_unschedulable(pod) and _leaving(kube):
            continue  # A pod on its way out makes room.
        if error:
            return error
    return None


def problem(kube: Kube, pod: dict[str, Any]) -> RaysideError | None:
    """Returns why this pod can't run, also from its events and logs; None if it runs or is starting.

    Adds details from the logs to `pod`. Raises ClusterUnreachable.
    """
    add_last_words(kube, pod)
    return explain(pod, kube.events("Pod", pod["metadata"]))


def _container(
    pod: str, container: Mapping[str, Any], spec: Mapping[str, Any], failed: Sequence[str]
) -> RaysideError | None:
    where = f"container {container['name']} of pod {pod}"
    waits = container.get("state", {}).get("waiting", {})
    reason, message = waits.get("reason", ""), waits.get("message", "")
    if reason in _IMAGE:
        return _no_image(where, container["image"], message or reason, failed)
    if reason == "InvalidImageName":
        return ImageMissing(
            f"{where} has an impossible image name, {container['image']!r}{_last_lines(message)}",
            hint="correct the image's name, as in rayproject/ray:2.60.0",
        )
    if reason == "CreateContainerConfigError":
        return PodFailed(
            f"{where} can't be made{_last_lines(message)}",
            hint="./invokew up makes our Secrets; make your own ones before you submit",
        )
    ended = container.get("state", {}).get("terminated") or container.get("lastState", {}).get("terminated")
    running = "running" in container.get("state", {})
    if running or (ended and ended.get("exitCode") == 0 and reason != "CrashLoopBackOff"):
        return None
    words = (ended or {}).get("message", "")
    if "exec format error" in f"{message}\n{words}".lower():
        return WrongArchitecture(
            f"{where} has programs for another processor architecture: exec format error with the image "
            f"{container['image']}; or its command is not a program",
            hint="use an image for this machine's architecture (uname -m)",
        )
    if reason in _NOT_STARTED:
        return PodFailed(
            f"{where} can't be started{_last_lines(message)}",
            hint="correct its command, or use an image that has it",
        )
    if ended is None:
        return None
    # If runc has run the program, the log says why.
    if ended.get("reason") in _NOT_STARTED or re.match(r"exec .+: no such file or directory", words):
        return PodFailed(
            f"{where} can't be started{_last_lines(words)}",
            hint="correct its command, or use an image that has it",
        )
    if ended.get("exitCode") == _KILLED:
        limit = spec.get("resources", {}).get("limits", {}).get("memory")
        of = f"its limit of {limit}" if limit else "the memory of its node"
        # Not every kernel reports to the kubelet that it killed the program for its memory.
        sure = "it needed" if ended.get("reason") == "OOMKilled" else "most often as it needed"
        return PodFailed(
            f"{where} was killed: {sure} more than {of} ({ended.get('reason')}, exit code {_KILLED})",
            hint="raise resources.limits.memory" if limit else "lower ray_workers, or free memory",
        )
    times = container.get("restartCount", 0)
    again = f" {times + 1} times" if times and reason == "CrashLoopBackOff" else ""
    # The last line is the cause of its end; earlier errors may have been handled.
    cause = first(room.ENDED, words.strip().rpartition("\n")[2], room.ENDED_ELSE)
    because = f", as {cause.why}" if cause.why else ""
    return PodFailed(
        f"{where} ended{again}: {explain_exit(ended.get('exitCode', 1))}{because}{_last_lines(words)}",
        hint=cause.hint,
    )


def _no_image(where: str, image: str, message: str, failed: Sequence[str]) -> RaysideError:
    """Returns the error for a missing image; `failed` are the pod's earlier failures, oldest first."""
    # Before the next attempt, older kubelets only say that they wait.
    words, cause = pulls.told((message, *reversed(failed)), image) or (message, None)
    why = f": {cause.why}" if cause else ""
    told = f"{where} has no image {image}{why}{_last_lines(words)}"
    if cause and cause.name == "architecture":
        return WrongArchitecture(told, hint=cause.hint)
    if pulls.is_ours(image) or cause is None:
        hint = "./invokew up loads our images again; an image of your own: check its name and tag"
        return ImageMissing(told, hint=hint)
    return ImageMissing(told, hint=cause.hint)


def _without_room(what: str, cause: Cause, message: str) -> PodFailed:
    return PodFailed(f"{what}{f': {cause.why}' if cause.why else ''}{_last_lines(message)}", hint=cause.hint)


def _from_events(pod: str, events: Sequence[Mapping[str, Any]]) -> RaysideError | None:
    """Returns the error in the events since the last container's start; None if there is none."""
    since = max((at for at, event in enumerate(events) if event.get("reason") in _STARTED), default=-1)
    for event in reversed(events[since + 1 :]):
        reason, ending = event.get("reason"), _last_lines(event.get("message", ""))
        if reason == "NodeNotReady":
            return PodFailed(
                f"the node of pod {pod} is not ready{ending}",
                hint="./invokew up repairs the cluster",
            )
        if reason in _TRIED_AGAIN and _count(event) >= _TRIES:
            if reason == "FailedCreatePodSandBox":
                return PodFailed(
                    f"pod {pod} gets no network{ending}",
                    hint="./invokew down, then ./invokew up, starts afresh",
                )
            return PodFailed(
                f"pod {pod} can't mount a volume{ending}",
                hint="make what it names, or correct the pod's volumes",
            )
    return None


def _count(event: Mapping[str, Any]) -> int:
    return int((event.get("series") or event).get("count") or 1)


def _containers(pod: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Yields the status and spec of each container that the kubelet reports, init containers first."""
    for statuses, specs in (("initContainerStatuses", "initContainers"), ("containerStatuses", "containers")):
        by_name = {spec["name"]: spec for spec in pod.get("spec", {}).get(specs, [])}
        for status in pod.get("status", {}).get(statuses, []):
            yield status, by_name.get(status["name"], {})


def _condition(pod: Mapping[str, Any], kind: str) -> dict[str, Any]:
    conditions = pod.get("status", {}).get("conditions", [])
    return next((condition for condition in conditions if condition["type"] == kind), {})


def _ready(pod: Mapping[str, Any]) -> bool:
    succeeded = pod.get("status", {}).get("phase") == "Succeeded"
    return succeeded or _condition(pod, "Ready").get("status") == "True"


def _leaving(kube: Kube) -> bool:
    return any("deletionTimestamp" in pod["metadata"] for pod in kube.pods(""))


def add_last_words(kube: Kube, pod: dict[str, Any]) -> None:
    """Sets the last lines of a crashed container's log as its termination message.

    The kubelet does so itself only with `terminationMessagePolicy: FallbackToLogsOnError`.

    For a failed image pull, it adds the fault of the pod's Secrets before the kubelet's message; for a taint,
    which one before the scheduler's message, which does not name it from 1.34 on.
    """
    scheduled = _condition(pod, "PodScheduled")
    if _TAINTS in scheduled.get("message", "") and (taints := room.taints(kube, pod)):
        scheduled["message"] = f"{taints}\n{scheduled['message']}"
    for container, _ in _containers(pod):
        waits = container.get("state", {}).get("waiting", {})
        if waits.get("reason") in _IMAGE and (fault := pulls.fault_of_secrets(kube, pod)):
            waits["message"] = f"{fault}\n{waits.get('message', '')}"
        now, before = (container.get(state, {}).get("terminated") for state in ("state", "lastState"))
        ended = now or before
        if ended and ended.get("exitCode") and not ended.get("message"):
            ended["message"] = _log(kube, pod, container["name"], previous=not now)


def _log(kube: Kube, pod: Mapping[str, Any], container: str, *, previous: bool) -> str:
    try:
        query = {"previous": str(previous).lower(), "tailLines": "5"}
        return kube.pod_log(pod["metadata"]["name"], container, **query)
    except RaysideError:  # The log would only add details.
        return ""


def _last_lines(message: str) -> str:
    """Returns the message's last lines, which are the most useful, as the end of a sentence."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return f": {' | '.join(lines[-3:])}" if lines else ""
