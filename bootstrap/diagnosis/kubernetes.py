"""Says what to ask Kubernetes for: Ray's pods with their last words, what happened to them, RayJobs, logs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bootstrap.diagnosis import cleaned
from bootstrap.kube.api import CORE, RAY, Kube
from bootstrap.kube.trouble import add_last_words
from rayside.errors import RaysideError

# The logs of so many pods are read, and so many lines of each container.
_MOST_PODS, _LINES = 20, "200"


def asks_of_kubernetes(kube: Kube, pod: str) -> dict[str, Callable[[], Any]]:
    """Returns what to ask, by the name under which it is told; `pod` is one that is meant, or empty."""
    return {
        "pods": lambda: _pods(kube, pod),
        "events": lambda: kube.items(f"{CORE}/namespaces/{kube.namespace}/events"),
        "RayJobs": lambda: kube.items(f"{RAY}/namespaces/{kube.namespace}/rayjobs"),
        "RayClusters": lambda: kube.items(f"{RAY}/namespaces/{kube.namespace}/rayclusters"),
        "logs of pods": lambda: _logs(kube, pod),
    }


def _pods(kube: Kube, name: str) -> list[dict[str, Any]]:
    pods = _of_ray(kube, name)
    for pod in pods:
        add_last_words(kube, pod)
    return pods


def _of_ray(kube: Kube, name: str) -> list[dict[str, Any]]:
    """Returns Ray's pods of the namespace, which may have others' too, and the one that is meant."""
    return [
        pod
        for pod in kube.pods("")
        if pod["metadata"]["name"] == name
        or (not name and any(key.startswith("ray.io/") for key in pod["metadata"].get("labels") or {}))
    ]


def _logs(kube: Kube, name: str) -> dict[str, str]:
    """Returns the end of each container's log, and of the one before its restart, by `pod/container`."""
    logs: dict[str, str] = {}
    for pod in _of_ray(kube, name)[:_MOST_PODS]:
        for container in (pod.get("status") or {}).get("containerStatuses") or []:
            for previous in (False, True) if container.get("restartCount") else (False,):
                called = f"{pod['metadata']['name']}/{container['name']}{'-before' if previous else ''}"
                try:
                    text = kube.pod_log(
                        pod["metadata"]["name"],
                        container["name"],
                        previous=str(previous).lower(),
                        tailLines=_LINES,
                    )
                except RaysideError as error:  # A container that never ran has none.
                    text = error.message
                logs[called] = cleaned.log(text)
    return logs
