"""Tests that a workshop's places are refused where the nodes have no room for them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bootstrap.errors import NoRoom
from bootstrap.kube.api import CORE
from bootstrap.kube.sizes import Size
from bootstrap.settings import Settings
from bootstrap.steps.place_bounds import DOOR
from bootstrap.steps.ray_cluster import PAUSED
from bootstrap.targets.place import Place
from bootstrap.workshop.event import Workshop
from rayside.system.shell import Shell
from tests.instances import instance
from tests.unit.scripted_objects import Objects, objects

NODES = f"{CORE}/nodes"


def api(nodes: list[dict[str, Any]]) -> Objects:
    return objects(lists={NODES: nodes})


def node(name: str, is_ready: str = "True", **spec: Any) -> dict[str, Any]:
    status = {
        "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"},
        "conditions": [{"type": "Ready", "status": is_ready}],
    }
    return {"metadata": {"name": name}, "spec": spec, "status": status}


def on(name: str, cpu: str = "0", **metadata: Any) -> dict[str, Any]:
    """Returns a pod on a node, or on none where its name is empty; it requests so much, and no memory."""
    spec = {"containers": [{"resources": {"requests": {"cpu": cpu}}}]}
    placed = {"nodeName": name} if name else {}
    return {"metadata": metadata, "spec": {**spec, **placed}, "status": {"phase": "Running"}}


def its_door(name: str) -> dict[str, Any]:
    """Returns the front door's pod there; it requests nothing, so that figures are round."""
    return on(name, namespace="team", labels={DOOR: "rayside"})


def of_place(name: str, kind: str, cpu: str = "0") -> dict[str, Any]:
    """Returns a pod of the place `other` there."""
    labels = {"ray.io/cluster": "rayside-other", "ray.io/node-type": kind}
    return on(name, cpu, namespace="other", labels=labels)


def room(kube: Objects, count: int) -> str:
    """Returns what is said of as many new places of one pod of 2 CPU and 1 GiB."""
    # No workshop is recorded there.
    named = instance("rayside", namespace="team", folder=Path("/no-such-folder/rayside"))
    base = SimpleNamespace(kube=kube, instance=named)
    size = Size(2000, 1024**3)
    place = SimpleNamespace(instance=instance("rayside-p", namespace="rayside-p"), size=size, pods=[size])
    workshop = Workshop(cast(Any, base), Settings(), Shell())
    return workshop.require_room([cast(Place, place)] * count)


def place_of_others(head: str, worker: str, monkeypatch: pytest.MonkeyPatch, **notes: str) -> None:
    """Gives the workshop the place `other`, of one worker, whose pods request so many processors."""

    def template(cpu: str) -> dict[str, Any]:
        return {"spec": {"containers": [{"resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}]}}

    group = {"replicas": 0 if notes else 1, "template": template(worker)}
    cluster = {
        "metadata": {"name": "rayside-other", "namespace": "other", "annotations": notes},
        "spec": {"headGroupSpec": {"template": template(head)}, "workerGroupSpecs": [group]},
    }
    monkeypatch.setattr(Workshop, "clusters", lambda _: [cluster])


def test_what_paused_places_get_back_is_not_free(monkeypatch: pytest.MonkeyPatch) -> None:
    kube = api([node("a"), node("b")])
    kube.lists[f"{CORE}/pods"] = [its_door("a"), of_place("a", "head")]
    place_of_others("0", "2", monkeypatch, **{PAUSED: "1"})
    # Two nodes of 4 CPU, of which its one worker needs 2.
    assert room(kube, 3).startswith("3 places")
    with pytest.raises(NoRoom, match=r"4 places of 2 CPU and 1 GiB do not fit: .*room for 3"):
        room(kube, 4)
    # It has its worker: the pod is there, and is counted as any other.
    place_of_others("0", "2", monkeypatch)
    kube.lists[f"{CORE}/pods"].append(of_place("a", "worker"))
    assert room(kube, 4).startswith("4 places")


def test_pods_of_places_that_wait_for_a_node_have_their_room(monkeypatch: pytest.MonkeyPatch) -> None:
    kube = api([node("a"), node("b"), node("dead", is_ready="Unknown")])
    place_of_others("2", "2", monkeypatch)
    head, worker = of_place("a", "head", "2"), of_place("b", "worker", "2")
    waiting, lost = of_place("", "worker", "2"), of_place("dead", "worker", "2")
    ended = {**worker, "status": {"phase": "Failed"}}
    # A RayJob in the same namespace has a cluster of its own.
    labels = {"ray.io/cluster": "of-a-job", "ray.io/node-type": "worker"}
    job = on("b", namespace="other", labels=labels)
    for pods in ([head, worker], [head, waiting], [head, lost], [head, ended], [head, job], [head], []):
        kube.lists[f"{CORE}/pods"] = [its_door("a"), *pods]
        # Of 8 CPU its pods have 4, or come to have them.
        assert room(kube, 2).startswith("2 places")
        with pytest.raises(NoRoom, match="room for 2"):
            room(kube, 3)
    # One that stays on a node which takes no others needs nothing of the rest.
    kube.lists[NODES] = [node("a"), node("b", unschedulable=True), node("c")]
    kube.lists[f"{CORE}/pods"] = [its_door("a"), head, worker]
    assert room(kube, 3).startswith("3 places")


def test_the_front_door_has_its_room() -> None:
    kube = api([node("a"), node("b")])
    kube.lists.update({"/apis/ray.io/v1/rayclusters": [], f"{CORE}/pods": [its_door("a")]})
    assert room(kube, 4).startswith("4 places")
    labels = {DOOR: "rayside"}
    others = on("a", namespace="other", labels=labels), on("a", namespace="team", labels={DOOR: "x"})
    for pods in ([], [its_door("")], [its_door("gone")], [*others]):
        kube.lists[f"{CORE}/pods"] = pods
        assert room(kube, 3).startswith("3 places")
        with pytest.raises(NoRoom, match="room for 3") as told:
            room(kube, 4)
        assert told.value.hint.startswith("add 1 node of 4 CPU")


def test_one_place_is_not_several() -> None:
    kube = api([node("a")])
    kube.lists.update({"/apis/ray.io/v1/rayclusters": [], f"{CORE}/pods": []})
    assert room(kube, 1).startswith("1 place of 2 CPU and 1 GiB, in one pod")
    kube.lists[NODES] = [node("a")]
    kube.lists[NODES][0]["status"]["allocatable"]["cpu"] = "1"
    with pytest.raises(NoRoom, match="1 place of 2 CPU and 1 GiB does not fit: the cluster has room for 0"):
        room(kube, 1)
