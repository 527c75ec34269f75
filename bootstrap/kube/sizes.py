"""Sizes of pods and nodes, and the number of places that fit, by the pods' resource requests.

The scheduler puts a pod on a node that has as much left as the pod requests
(https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/#how-pods-with-resource-requests-are-scheduled).
"""

from __future__ import annotations

import contextlib
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from math import ceil
from typing import Any

GIB = 1024**3
_ENDED = ("Succeeded", "Failed")
# KubeRay's init container in workers, which waits for the head (ray-operator/controllers/ray/common/pod.go).
_WAITS = {"resources": {"requests": {"cpu": "200m", "memory": "256Mi"}}}


@dataclass(frozen=True)
class Size:
    """Requests of pods, or capacity of a node: thousandths of a CPU, bytes of memory, and pods."""

    cpu: int = 0
    memory: int = 0
    pods: int = 1

    def __add__(self, other: Size) -> Size:
        return Size(self.cpu + other.cpu, self.memory + other.memory, self.pods + other.pods)

    def __sub__(self, other: Size) -> Size:
        return Size(self.cpu - other.cpu, self.memory - other.memory, self.pods - other.pods)

    def fits(self, room: Size) -> bool:
        """Returns whether the free capacity `room` is enough."""
        return self.cpu <= room.cpu and self.memory <= room.memory and self.pods <= room.pods

    def __str__(self) -> str:
        return shown(self.cpu, self.memory)


NOTHING = Size(pods=0)


def of_pod(spec: Mapping[str, Any]) -> Size:
    """Returns the scheduler's size of a pod: all of its containers, or its largest init container.

    An init container that keeps running (restartPolicy Always) counts with the containers.
    """
    together, alone = NOTHING, NOTHING
    for container in spec.get("initContainers") or []:
        own = _of_container(container)
        if container.get("restartPolicy") == "Always":
            together += own
            own = NOTHING
        alone = Size(max(alone.cpu, together.cpu + own.cpu), max(alone.memory, together.memory + own.memory))
    for container in spec.get("containers") or []:
        together += _of_container(container)
    overhead = _of(spec.get("overhead") or {})
    both = Size(max(together.cpu, alone.cpu), max(together.memory, alone.memory), 0)
    return both + Size(overhead.cpu, overhead.memory, 1)


def of_cluster(spec: Mapping[str, Any]) -> list[Size]:
    """Returns the size of each pod of a RayCluster, its head first."""
    sizes = [of_pod(spec["headGroupSpec"]["template"]["spec"])]
    for group in spec["workerGroupSpecs"]:
        worker = dict(group["template"]["spec"])
        worker["initContainers"] = [*(worker.get("initContainers") or []), _WAITS]
        sizes += [of_pod(worker)] * int(group["replicas"])
    return sizes


def _of_container(container: Mapping[str, Any]) -> Size:
    return _of((container.get("resources") or {}).get("requests") or {})


def _of(resources: Mapping[str, Any]) -> Size:
    return Size(millicores(resources.get("cpu", "0")), octets(resources.get("memory", "0")), 0)


def of_nodes(nodes: Iterable[Mapping[str, Any]], pods: Iterable[Mapping[str, Any]]) -> dict[str, Size]:
    """Returns the free capacity of each node that takes pods, by name; it may be negative.

    Nodes that are cordoned, not ready, or tainted against all pods take none.
    """
    left: dict[str, Size] = {}
    for node in nodes:
        if takes_pods(node):
            given = node["status"]["allocatable"]
            left[node["metadata"]["name"]] = _of(given) + Size(pods=int(given.get("pods", 110)))
    for pod in _on(left, pods):
        left[pod["spec"]["nodeName"]] -= of_pod(pod["spec"])
    return left


def takes_pods(node: Mapping[str, Any]) -> bool:
    """Returns whether the node takes pods without tolerations."""
    spec = node.get("spec") or {}
    taints = [taint.get("effect") for taint in spec.get("taints") or []]
    return not spec.get("unschedulable") and _answers(node) and not {"NoSchedule", "NoExecute"} & {*taints}


def placed(nodes: Iterable[Mapping[str, Any]], pods: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Returns the pods that have not ended and are on a ready node, also one that takes no more pods.

    All other pods still need capacity: they wait for it, or will start on another node.
    """
    return _on({node["metadata"]["name"] for node in nodes if _answers(node)}, pods)


def _on(names: Container[str], pods: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Returns the pods on nodes of these names that have not ended."""
    return [
        pod
        for pod in pods
        if (pod.get("spec") or {}).get("nodeName") in names
        and (pod.get("status") or {}).get("phase") not in _ENDED
    ]


def _answers(node: Mapping[str, Any]) -> bool:
    conditions = {each["type"]: each["status"] for each in node["status"].get("conditions") or []}
    return conditions.get("Ready") == "True"


@dataclass(frozen=True)
class Fit:
    """Result of `fit`: `count` places fit; the rest needs `more` nodes like the largest.

    `more` is None if a pod of a place is too large for such a node.
    """

    count: int
    more: int | None


def fit(
    place: Sequence[Size], count: int, left: Iterable[Size], node: Size, owed: Sequence[Size] = ()
) -> Fit:
    """Returns how many places of these pods fit into the nodes' free capacity, the largest pods first.

    `node` is an empty one of the kind that would be added. A place fits if all of its pods do. `owed` are
    pods that come back before, and take their capacity first.
    """
    pods = _largest_first(place)
    nodes = list(left)
    for pod in _largest_first(owed):
        _placed([pod], nodes)
    fitting = 0
    while fitting < count and _placed(pods, nodes):
        fitting += 1
    if fitting == count:
        return Fit(fitting, 0)
    if not all(pod.fits(node) for pod in pods):
        return Fit(fitting, None)
    more, done = 0, fitting
    while done < count:
        if _placed(pods, nodes):
            done += 1
        else:
            nodes.append(node)
            more += 1
    return Fit(fitting, more)


def _largest_first(pods: Sequence[Size]) -> list[Size]:
    return sorted(pods, key=lambda size: (size.memory, size.cpu), reverse=True)


def _placed(pods: Sequence[Size], nodes: list[Size]) -> bool:
    """Puts each pod onto the first node with room; changes nothing if one finds none."""
    changed: dict[int, Size] = {}
    for pod in pods:
        for index, room in enumerate(nodes):
            here = changed.get(index, room)
            if pod.fits(here):
                changed[index] = here - pod
                break
        else:
            return False
    for index, room in changed.items():
        nodes[index] = room
    return True


# --- quantities --------------------------------------------------------------------------


def quantity(text: str) -> Decimal:
    """Returns the number of a Kubernetes quantity, as 0.1 for 100m. Raises ValueError."""
    # Not at the top: it imports a large package, which a command with API requests has imported.
    from kubernetes.utils.quantity import parse_quantity

    with contextlib.suppress(ValueError, ArithmeticError):
        # The bound is for untrusted quantities, whose exponent may have any size.
        if 0 <= (number := Decimal(parse_quantity(str(text)))) < 2**80:
            return number
    raise ValueError(f"{text!r} is no quantity")


def millicores(text: str) -> int:
    """Returns thousandths of a CPU, rounded up as in the scheduler."""
    return ceil(quantity(text) * 1000)


def octets(text: str) -> int:
    """Returns bytes, rounded up."""
    return ceil(quantity(text))


def shown(cpu: int, memory: int) -> str:
    """Returns thousandths of a CPU, and bytes, as text: 1.5 CPU and 3 GiB."""
    return f"{figure(cpu / 1000)} CPU and {figure(memory / GIB)} GiB"


def figure(number: float) -> str:
    """Returns a number as text, with three digits or more: 0.57, 2.31, 1155."""
    return f"{number:.3g}" if number < 100 else f"{number:.0f}"
