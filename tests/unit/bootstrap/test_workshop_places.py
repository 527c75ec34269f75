"""Tests which places a workshop has, and how many fit onto a cluster's nodes."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bootstrap.delivery import front_door
from bootstrap.errors import PodFailed
from bootstrap.kube import api_client
from bootstrap.kube.sizes import (
    NOTHING,
    Fit,
    Size,
    fit,
    millicores,
    octets,
    of_cluster,
    of_nodes,
    of_pod,
    placed,
    quantity,
    shown,
)
from bootstrap.settings import ROOT, Settings
from bootstrap.steps.namespace import Namespace
from bootstrap.targets.place import Place
from bootstrap.verbs import workshop as verb
from bootstrap.workshop import inside
from bootstrap.workshop.attendees import LONGEST, MOST, PlaceName, listed, numbered, slug
from bootstrap.workshop.estimate import Used
from bootstrap.workshop.event import REMOVED_AT_ONCE, Workshop
from rayside.errors import InvalidArgument
from rayside.steps.step import Report, Status, ready
from rayside.system.shell import Shell
from tests.instances import instance
from tests.targets import kind_target
from tests.unit.scripted_debuggee import ScriptedConsole
from tests.unit.scripted_objects import objects

GIB = 1024**3


# --- the size of a place, and of a kind cluster -----------------------------------------


@pytest.mark.parametrize(("workers", "told"), [(2, "0.57 CPU and 2.31 GiB"), (1, "0.37 CPU and 1.81 GiB")])
def test_a_place_requests_what_the_page_says(workers: int, told: str) -> None:
    target = kind_target(Settings(target="kind", source="upstream", ray_workers=workers))
    step = next(step for step in target.steps() if step.name == "ray-cluster")
    size = sum(of_cluster(step.manifest()["spec"]), NOTHING)  # type: ignore[attr-defined]
    assert str(size) == told
    page = (ROOT / "docs" / "workshop.md").read_text()
    (said,) = [line for line in page.splitlines() if "A place with two workers requests" in line]
    assert {2: "requests 0.57 of a processor and 2.31 GiB", 1: "requests 0.37"}[workers] in said


@pytest.mark.parametrize(("processors", "workers", "places"), [(2, 2, 0), (4, 2, 4), (8, 2, 11), (2, 1, 1)])
def test_a_kind_cluster_has_room_as_the_page_says(processors: int, workers: int, places: int) -> None:
    page = (ROOT / "docs" / "workshop.md").read_text()
    figures = re.search(r"([\d.]+) for Kubernetes itself, ([\d.]+) for KubeRay, ([\d.]+) for the front", page)
    assert figures
    assert float(figures[3]) == front_door.size().cpu / 1000
    place = {2: 0.57, 1: 0.37}[workers]
    # The cluster beside which the places are is as large as one of them.
    left = processors - sum(map(float, figures.groups())) - place
    assert max(0, int(left / place)) == places


# --- their removal -----------------------------------------------------------------------


@dataclass
class Going:
    """Is what a workshop has, and goes by `goes`."""

    goes: Callable[[], object]
    name: str = "one"
    needs: tuple[str, ...] = ()
    title: str = "one"

    def check(self) -> Status:
        return ready()

    def undo(self, report: Report) -> None:
        self.goes()


def test_places_go_side_by_side(tmp_path: Path) -> None:
    together = threading.Barrier(REMOVED_AT_ONCE)
    names = [place.name for place in numbered(f"{2 * REMOVED_AT_ONCE}")]

    def place(name: str) -> Any:
        named, settings = instance(name, folder=tmp_path / name), Settings(cache_folder=tmp_path)
        # It goes only where as many others go at the same moment.
        steps = [Going(lambda: together.wait(10))]
        return SimpleNamespace(instance=named, settings=settings, steps=lambda: steps)

    event = SimpleNamespace(
        places=lambda: {name: place(name) for name in names},
        used=lambda: Used(0, 0, 0, 0, None),
        is_gone=False,
        door=None,
        door_steps=lambda door: [],
        base=SimpleNamespace(instance=instance(), kinds=()),
    )
    console = ScriptedConsole()
    verb.remove_places(cast(Workshop, event), console, {})
    assert f"{2 * REMOVED_AT_ONCE} places removed" in console.shown
    # As many connections are kept open.
    assert api_client._KEPT_OPEN >= REMOVED_AT_ONCE


def test_all_places_know_what_a_namespace_may_hold_by_one_look(tmp_path: Path) -> None:
    settings = Settings(target="kind", source="upstream", state_folder=tmp_path)
    base = kind_target(settings)
    vars(base)["kinds"] = [("/api/v1", "pods")]
    vars(base)["operator_namespace"] = ""
    vars(base)["kube"] = SimpleNamespace(kubeconfig=tmp_path, within=objects)
    for name in ("a", "b"):
        place = Place.beside(base, settings, Shell(), name)
        (namespace,) = [step for step in place.steps() if isinstance(step, Namespace)]
        assert namespace.kinds() is base.kinds


# --- names -------------------------------------------------------------------------------


def names(folder: Path, text: str | bytes) -> Path:
    file = folder / "the names.txt"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return file


def test_places_are_numbered_so_that_they_sort() -> None:
    assert [place.name for place in numbered("3")] == ["place-001", "place-002", "place-003"]
    assert numbered("1000")[9].name == "place-010"
    for count in ("0", "-1", "x", "²", f"{MOST + 1}"):
        with pytest.raises(InvalidArgument, match=f"--places is {count}"):
            numbered(count)


def test_each_line_of_a_list_is_a_place(tmp_path: Path) -> None:
    file = names(tmp_path, "\ufeffAda Lovelace\r\n\n# the afternoon\nGöran Ångström\n  Grace  Hopper \n")
    assert listed(file) == [
        PlaceName("ada-lovelace", "Ada Lovelace"),
        PlaceName("goran-angstrom", "Göran Ångström"),
        PlaceName("grace-hopper", "Grace Hopper"),
    ]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("Ada\nGrace\nada\n", r"line 3 of the names.txt, 'ada', gives the same place as 'Ada': ada"),
        ("Ada\n王小明\n", "line 2 of the names.txt, '王小明', has no letter"),
        ("\n# nobody\n", "has no names"),
        (b"\xff\xfe\x00", "can't be read"),
        ("x" * 300_000, "too large for a list"),
    ],
)
def test_a_list_that_gives_no_places_is_explained(tmp_path: Path, text: str | bytes, told: str) -> None:
    with pytest.raises(InvalidArgument, match=told):
        listed(names(tmp_path, text))
    for file in (tmp_path, tmp_path / "none"):
        with pytest.raises(InvalidArgument, match="can't be read"):
            listed(file)


def test_a_persons_name_is_part_of_kubernetes_names() -> None:
    for attendee in ("--Ada--", "a" * 100, f"{'a' * (LONGEST - 1)} b", "\x1b[2JEve", "../../etc"):
        name = slug(attendee)
        assert name
        assert len(name) <= LONGEST
        assert name.replace("-", "").isalnum()
        assert not name.startswith("-")
        assert not name.endswith("-")


# --- quantities --------------------------------------------------------------------------


def test_processors_are_counted_in_thousandths_and_memory_in_bytes() -> None:
    cpu = {"100m": 100, "1": 1000, "1.5": 1500, "0.1m": 1, "2e0": 2000, "1k": 10**6}
    assert {text: millicores(text) for text in cpu} == cpu
    memory = {"1Gi": GIB, "512Mi": GIB // 2, "1G": 10**9, "128974848000m": 128974848, "12e6": 12 * 10**6}
    assert {text: octets(text) for text in memory} == memory
    for text in ("", "Gi", "-1", "1Ki2", "nan", "1e999", "9" * 30, "1.2.3"):
        with pytest.raises(ValueError, match="is no quantity"):
            quantity(text)
    # Sizes are for people.
    assert shown(1500, 3 * GIB) == "1.5 CPU and 3 GiB"
    assert shown(270, int(1.8125 * GIB)) == "0.27 CPU and 1.81 GiB"


# --- room --------------------------------------------------------------------------------


def container(cpu: str = "", memory: str = "", **more: Any) -> dict[str, Any]:
    requests = {key: value for key, value in {"cpu": cpu, "memory": memory}.items() if value}
    return {"resources": {"requests": requests}, **more}


def node(name: str, cpu: str = "4", memory: str = "16Gi", **spec: Any) -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": spec.pop("ready", "True")}]
    return {
        "metadata": {"name": name},
        "spec": spec,
        "status": {"allocatable": {"cpu": cpu, "memory": memory, "pods": "10"}, "conditions": conditions},
    }


def test_a_pod_has_the_size_that_the_scheduler_counts() -> None:
    assert of_pod({"containers": [container("100m", "1Gi"), container("50m"), {}]}) == Size(150, GIB)
    first = [container("2", "1Mi"), container("10m", "1Gi", restartPolicy="Always"), container("1", "3Gi")]
    # The last of them runs beside the one that stays.
    assert of_pod({"containers": [container("1")], "initContainers": first}) == Size(2000, 4 * GIB)
    assert of_pod({"containers": [], "overhead": {"cpu": "5m"}}) == Size(5)


def test_a_node_has_left_what_its_pods_do_not_request() -> None:
    nodes = [
        node("a"),
        node("b", unschedulable=True),
        node("c", taints=[{"effect": "NoSchedule", "key": "x"}]),
        node("d", ready="Unknown"),
        node("e", taints=[{"effect": "PreferNoSchedule", "key": "x"}]),
    ]
    spec = {"nodeName": "a", "containers": [container("1", "2Gi")]}
    pods: list[dict[str, Any]] = [
        {"spec": spec, "status": {"phase": "Running"}},
        {"spec": spec, "status": {"phase": "Succeeded"}},
        {"spec": {**spec, "nodeName": "elsewhere"}, "status": {}},
        {"spec": {"containers": []}, "status": {"phase": "Pending"}},
    ]
    assert of_nodes(nodes, pods) == {"a": Size(3000, 14 * GIB, 9), "e": Size(4000, 16 * GIB, 10)}


def test_a_pod_has_its_room_where_its_node_answers() -> None:
    nodes = [node("a"), node("cordoned", unschedulable=True), node("dead", ready="Unknown")]
    on = {name: {"spec": {"nodeName": name}, "status": {}} for name in ("a", "cordoned", "dead", "gone")}
    ended = [{"spec": {"nodeName": "a"}, "status": {"phase": phase}} for phase in ("Succeeded", "Failed")]
    waits: dict[str, Any] = {"spec": {}, "status": {"phase": "Pending"}}
    assert placed(nodes, [*on.values(), *ended, waits]) == [on["a"], on["cordoned"]]


PLACE = [Size(200, GIB), Size(100, GIB), Size(100, GIB)]
NODE = Size(4000, 8 * GIB, 110)


@pytest.mark.parametrize(
    ("place", "count", "left", "expected"),
    [
        (PLACE, 2, [NODE], Fit(2, 0)),
        (PLACE, 3, [NODE], Fit(2, 1)),  # the third is on both nodes
        (PLACE, 30, [NODE, NODE], Fit(5, 10)),
        # Half of a place is none.
        (PLACE, 1, [Size(4000, 2 * GIB, 110)], Fit(0, 1)),
        # Pods are few, memory is not.
        (PLACE, 3, [Size(4000, 80 * GIB, 7)], Fit(2, 1)),
        ([Size(200, 9 * GIB)], 1, [NODE], Fit(0, None)),
        (PLACE, 1, [], Fit(0, 1)),
        (PLACE, 1, [Size(-100, -1, -3)], Fit(0, 1)),
    ],
)
def test_places_fit_as_a_whole_or_not(place: list[Size], count: int, left: list[Size], expected: Fit) -> None:
    assert fit(place, count, left, NODE) == expected


def test_pods_that_come_back_have_their_room() -> None:
    node = Size(4000, 8 * GIB, 10)
    place = [Size(1000, 2 * GIB)]
    assert fit(place, 4, [node], node).count == 4
    assert fit(place, 4, [node], node, owed=[Size(1000, 2 * GIB)]) == Fit(3, 1)
    # Where they find none, they take none.
    assert fit(place, 4, [node], node, owed=[Size(9000, 2 * GIB)]).count == 4


def test_a_thousand_places_are_counted_at_once() -> None:
    began = time.process_time()
    assert fit(PLACE, 1000, [NODE] * 400, NODE).more == 0
    assert time.process_time() - began < 5


# --- what is not a teacher's to decide alone ----------------------------------------------


def test_a_place_is_freed_though_its_node_is_dead_or_its_attendee_keeps_files_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    freed: list[str] = []

    def forget(place: Place) -> None:
        raise PodFailed("no answer", hint="look")

    def free(place: str) -> bool:
        freed.append(place)
        return True

    event = SimpleNamespace(
        require=lambda: None,
        recorded=lambda: ["place-001"],
        place=lambda name: name,
        door=SimpleNamespace(secrets=SimpleNamespace(free=free)),
    )
    monkeypatch.setattr(verb, "workshop_of", lambda settings: event)
    monkeypatch.setattr(inside, "forget", forget)
    console = ScriptedConsole()
    verb.free(Settings(), console, "place-001")
    assert freed == ["place-001"]
    assert "may stay: no answer" in console.shown
    assert "place-001 is nobody's now" in console.shown


def test_a_label_alone_makes_no_place(tmp_path: Path) -> None:
    theirs = {"metadata": {"namespace": "others", "annotations": {}}, "spec": {}}
    kube = SimpleNamespace(items=lambda path, selector: [theirs])
    base = SimpleNamespace(kube=kube, instance=instance(folder=tmp_path / "rayside"))
    assert Workshop(cast(Any, base), Settings(), Shell()).clusters() == []
