"""Tests that nodes have a workshop's images before its first place starts, and which nodes are waited for."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import yaml

from bootstrap.delivery.images_on_nodes import ImagesOnNodes
from bootstrap.errors import Forbidden, NoRoom, NotOurs, NotReady
from bootstrap.kube import rights
from bootstrap.kube.api import CORE, RAY
from bootstrap.kube.sizes import Size
from bootstrap.settings import ROOT, Settings
from bootstrap.shell import Shell
from bootstrap.sources.source import Images
from bootstrap.step import Condition, Report, Status, missing, ready
from bootstrap.steps.place_bounds import DOOR
from bootstrap.steps.ray_cluster import PAUSED
from bootstrap.targets.place import Place
from bootstrap.verbs import workshop as verb
from bootstrap.workshop.attendees import numbered
from bootstrap.workshop.event import Workshop
from tests.instances import instance
from tests.unit.scripted_debuggee import ScriptedConsole
from tests.unit.scripted_objects import Objects, applied, objects

SET = "/apis/apps/v1/namespaces/team/daemonsets/rayside-images-on-nodes"
PODS, EVENTS, NODES = f"{CORE}/namespaces/team/pods", f"{CORE}/namespaces/team/events", f"{CORE}/nodes"
CLUSTER = f"{RAY}/namespaces/team/rayclusters/rayside"
IMAGES = Images(
    "registry.test/ray:1", "registry.test/workspace:1", "registry.test/operator:1", "IfNotPresent"
)
NO_PULL = {"waiting": {"reason": "ErrImagePull", "message": "dial tcp: lookup hub.test: no such host"}}
CREATED = {"waiting": {"reason": "ContainerCreating"}}
RUNS: dict[str, Any] = {"running": {}}


def api(nodes: list[dict[str, Any]], **more: Any) -> Objects:
    cluster = {"metadata": {"name": "rayside", "uid": "u-1"}}
    return objects(
        objects={SET: None, CLUSTER: cluster},
        lists={NODES: nodes, PODS: [], EVENTS: []},
        **more,
    )


def on_nodes(kube: Objects, images: Images = IMAGES) -> ImagesOnNodes:
    return ImagesOnNodes(instance("rayside", namespace="team"), kube, images)


def node(name: str, is_ready: str = "True", **spec: Any) -> dict[str, Any]:
    status = {
        "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"},
        "conditions": [{"type": "Ready", "status": is_ready}],
    }
    return {"metadata": {"name": name}, "spec": spec, "status": status}


def pod(kube: Objects, name: str, *states: dict[str, Any], placed: bool = True) -> dict[str, Any]:
    """Returns the DaemonSet's pod for a node, whose containers are in these states, as the API has it."""
    template = kube.made(SET)["spec"]["template"]
    matches = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}
    terms = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [matches]}}
    spec = {**template["spec"], "affinity": {"nodeAffinity": terms}, **({"nodeName": name} if placed else {})}
    is_ready = bool(states) and all("running" in state for state in states)
    scheduled = {"type": "PodScheduled", "status": "True" if placed else "False"}
    if not placed:
        scheduled |= {"reason": "Unschedulable", "message": "0/2 nodes are available: 1 Insufficient memory."}
    statuses = [
        {**{"name": spec["containers"][at]["name"], "image": spec["containers"][at]["image"]}, "state": state}
        for at, state in enumerate(states)
    ]
    return {
        "metadata": {**template["metadata"], "name": f"images-{name}", "uid": name, "namespace": "team"},
        "spec": spec,
        "status": {
            "phase": "Running" if is_ready else "Pending",
            "conditions": [scheduled, {"type": "Ready", "status": str(is_ready)}],
            "containerStatuses": statuses,
        },
    }


def silent(_: str) -> None:
    pass


def asked(*nodes: dict[str, Any]) -> tuple[Objects, ImagesOnNodes]:
    """Returns an API with the DaemonSet, which has no pods yet."""
    kube = api(list(nodes))
    step = on_nodes(kube)
    assert step.check().condition is Condition.MISSING
    step.apply(silent)
    return kube, step


# --- what is made ------------------------------------------------------------------------


def test_each_node_runs_both_images_as_places_pull_them() -> None:
    kube = api([node("a")])
    on_nodes(kube, Images(*("ray:1", "workspace:1", "operator:1"), "IfNotPresent", "login")).apply(silent)
    document = kube.made(SET)
    pod_spec = document["spec"]["template"]["spec"]
    assert {each["image"]: each["imagePullPolicy"] for each in pod_spec["containers"]} == {
        "ray:1": "IfNotPresent",
        "workspace:1": "IfNotPresent",
    }
    # One that has ended holds no image.
    assert [each["command"] for each in pod_spec["containers"]] == [["/bin/sleep", "infinity"]] * 2
    assert pod_spec["imagePullSecrets"] == [{"name": "login"}]
    # It goes where places go.
    assert not {"tolerations", "nodeSelector", "affinity", "initContainers"} & pod_spec.keys()
    labels = document["spec"]["template"]["metadata"]["labels"]
    assert document["spec"]["selector"]["matchLabels"].items() <= labels.items()
    # Where no place was begun, `down` removes it by its owner.
    (owner,) = document["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("RayCluster", "rayside", "u-1")


def test_without_the_cluster_nothing_owns_it() -> None:
    kube = api([node("a")])
    kube.objects[CLUSTER] = None
    on_nodes(kube).apply(silent)
    assert "ownerReferences" not in kube.made(SET)["metadata"]


def test_another_image_is_asked_for_in_place_of_the_earlier_one() -> None:
    kube, step = asked(node("a"))
    kube.lists[PODS] = [pod(kube, "a", RUNS, RUNS)]
    assert step.check().condition is Condition.READY
    newer = on_nodes(kube, Images("ray:2", "workspace:1", "operator:1", "IfNotPresent"))
    assert newer.check().condition is Condition.MISSING
    newer.apply(silent)
    # The pod of the earlier one is still there, and ready.
    assert newer.check() == Status(Condition.PENDING, "0 of 1 nodes have the images; a: there is no pod yet")
    kube.lists[PODS] = [pod(kube, "a", RUNS, RUNS)]
    assert newer.check().condition is Condition.READY


def test_a_pod_whose_images_the_cluster_names_otherwise_counts() -> None:
    kube, step = asked(node("a"))
    its = pod(kube, "a", RUNS, RUNS)
    containers = [{**each, "image": f"cache.test/{each['image']}"} for each in its["spec"]["containers"]]
    its["spec"] = {**its["spec"], "containers": containers}
    kube.lists[PODS] = [its]
    assert step.check().condition is Condition.READY


# --- who is waited for -------------------------------------------------------------------


def test_nodes_that_take_no_pods_are_not_waited_for() -> None:
    kube, step = asked(
        *(node("a"), node("b")),
        *(node("dead", is_ready="Unknown"), node("starting", is_ready="False")),
        node("cordoned", unschedulable=True),
        node("control", taints=[{"effect": "NoSchedule", "key": "x"}]),
    )
    assert step.check().detail == "0 of 2 nodes have the images; a: there is no pod yet"
    # Kubernetes gives pods of a DaemonSet to some of those, too.
    kube.lists[PODS] = [
        pod(kube, "a", RUNS, RUNS),
        pod(kube, "dead", CREATED),
        pod(kube, "cordoned", NO_PULL),
    ]
    assert step.check().detail == "1 of 2 nodes have the images; b: there is no pod yet"
    kube.lists[PODS].append(pod(kube, "b", RUNS, RUNS))
    assert step.check() == ready("all 2 nodes have them")


def test_a_node_that_comes_later_is_waited_for() -> None:
    kube, step = asked(node("a"))
    kube.lists[PODS] = [pod(kube, "a", RUNS, RUNS)]
    assert step.check() == ready("the node has them")
    kube.lists[NODES].append(node("b"))
    assert step.check().condition is Condition.PENDING


def test_a_node_without_room_for_the_small_pod_gets_no_place_either() -> None:
    kube, step = asked(node("a"), node("full"))
    kube.lists[PODS] = [pod(kube, "a", RUNS, RUNS), pod(kube, "full", placed=False)]
    assert step.check() == ready("the node has them; without room for a pod: full")
    kube.lists[NODES] = [node("full")]
    assert step.check() == ready("no node takes pods; without room for a pod: full")


def test_a_node_that_can_not_pull_is_named_with_why() -> None:
    kube, step = asked(node("a"), node("b"), node("c"))
    kube.lists[PODS] = [
        pod(kube, "a", RUNS, RUNS),
        pod(kube, "b", CREATED, CREATED),
        pod(kube, "c", RUNS, NO_PULL),
    ]
    status = step.check()
    assert status.condition is Condition.PENDING
    assert status.detail.startswith(
        "1 of 3 nodes have the images; c: container workspace of pod images-c has"
    )
    assert "the node does not know the registry's name (DNS)" in status.detail
    assert "correct the registry in the image's name" in status.detail
    kube.lists[PODS].pop()
    assert "b: ray is being created" in step.check().detail


def test_a_pod_that_kubernetes_does_not_take_is_told() -> None:
    kube, step = asked(node("a"))
    passes = 'pods "images-a" is forbidden: error looking up service account'
    kube.lists[EVENTS] = [
        refused(passes, "2026-01-01T00:00:00Z"),
        {**refused("x", "2026-01-01T00:00:01Z"), "reason": "SuccessfulDelete"},
    ]
    assert step.check().detail == f"0 of 1 nodes have the images; a: {passes}"
    kube.lists[EVENTS].append(refused("exceeded quota: few", "2026-01-01T00:00:02Z"))
    with pytest.raises(Forbidden, match="on the node a: exceeded quota: few"):
        step.check()
    # That was of an earlier one of its name.
    kube.lists[EVENTS][-1]["involvedObject"]["uid"] = "another"
    assert step.check().condition is Condition.PENDING


def refused(message: str, time: str = "2026-01-01T00:00:00Z") -> dict[str, Any]:
    owner = {"kind": "DaemonSet", "uid": None}
    return {"reason": "FailedCreate", "message": message, "lastTimestamp": time, "involvedObject": owner}


def test_a_pod_that_was_evicted_is_there_beside_the_next_one() -> None:
    kube, step = asked(node("a"))
    evicted, next_one = pod(kube, "a", CREATED), pod(kube, "a", RUNS, RUNS)
    evicted["metadata"] |= {"creationTimestamp": "2026-01-01T00:00:00Z"}
    evicted["status"] |= {"phase": "Failed", "reason": "Evicted"}
    next_one["metadata"] |= {"creationTimestamp": "2026-01-01T00:00:01Z"}
    kube.lists[PODS] = [next_one, evicted]
    assert step.check().condition is Condition.READY
    next_one["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:02Z"
    assert step.check().condition is Condition.PENDING


# --- its end, and others' ----------------------------------------------------------------


def test_it_is_removed_and_nothing_of_others() -> None:
    kube, step = asked(node("a"))
    assert step.undo(silent) is None
    assert kube.deleted == [SET]
    assert step.undo(silent) is None
    metadata = {"name": "rayside-images-on-nodes", "namespace": "team"}
    theirs = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata}
    kube.objects[SET] = applied(theirs, manager="kubectl")
    assert step.undo(silent) is None
    assert kube.deleted == [SET]
    for act in (step.check, lambda: step.apply(silent)):
        with pytest.raises(NotOurs, match="a DaemonSet rayside-images-on-nodes in namespace team"):
            act()


def test_one_that_is_going_is_waited_for() -> None:
    kube, step = asked(node("a"))
    kube.lists[PODS] = [pod(kube, "a", RUNS, RUNS)]
    kube.made(SET)["metadata"]["deletionTimestamp"] = "2999-01-01T00:00:00Z"
    assert step.check().condition is Condition.PENDING


def test_who_may_not_look_has_none_to_remove() -> None:
    assert on_nodes(api([], unlistable={SET})).undo(silent) is None


# --- rights ------------------------------------------------------------------------------


def test_the_documented_rights_are_those_that_are_asked_for() -> None:
    page = (ROOT / "docs" / "workshop.md").read_text()
    blocks = re.findall(r"```yaml\n(- \{apiGroups.+?)```", page, re.DOTALL)
    documented = {
        (group, resource, verb)
        for rule in yaml.safe_load("".join(blocks))
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    rules = rights.IMAGES_ON_NODES + rights.INGRESS
    assert documented == {(rule.group, rule.resource, verb) for rule in rules for verb in rule.verbs}


# --- the workshop ------------------------------------------------------------------------


@dataclass
class Made:
    """A step of one place, which notes when it is made."""

    place: str
    order: list[str]
    is_there: bool = False
    needs: tuple[str, ...] = ()
    name: str = "one"
    title: str = "one"

    def check(self) -> Status:
        return ready() if self.is_there else missing()

    def apply(self, report: Report) -> None:
        self.order.append(self.place)
        self.is_there = True


@dataclass
class Event:
    """Plays a workshop whose places are made at once; `order` has what was made, as it was made."""

    kube: Objects
    folder: Path
    policy: str = "IfNotPresent"
    order: list[str] = field(default_factory=list)
    shell: Any = field(default_factory=Shell)

    @property
    def base(self) -> Any:
        images = Images("ray:1", "workspace:1", "operator:1", self.policy)
        named = instance("rayside", namespace="team", folder=self.folder)
        return SimpleNamespace(
            images=images, kube=self.kube, instance=named, access=SimpleNamespace(require=lambda: None)
        )

    @property
    def settings(self) -> Settings:
        return Settings(cache_folder=self.folder)

    @property
    def images(self) -> Any:
        event = self

        class Noted(ImagesOnNodes):
            def check(self) -> Status:
                is_there = self.kube.get(SET) is not None
                return ready() if is_there else missing()

            def apply(self, report: Report) -> None:
                super().apply(report)
                event.order.append("images")

        return Noted(self.base.instance, self.kube, self.base.images)

    def place(self, name: str) -> Any:
        named = instance(f"rayside-{name}", folder=self.folder / name)
        steps = [Made(name, self.order)]
        return SimpleNamespace(instance=named, settings=self.settings, hosted_steps=steps)

    def require_ground(self, places: Any) -> None:
        pass

    def require_room(self, places: Any) -> str:
        return ""

    def rows(self) -> list[Any]:
        return []

    url = ""
    door = SimpleNamespace(secrets=SimpleNamespace(told=lambda: None))

    def door_to(self, places: Any) -> None:
        self.order.append("door")

    def door_steps(self, door: Any) -> list[Any]:
        return []


@pytest.fixture
def event(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Event:
    """Provides a workshop on one node, whose images its step of that name brings there."""
    made = Event(api([node("a")]), tmp_path)
    monkeypatch.setattr(verb, "workshop_of", lambda settings: made)
    return made


def run(event: Event, *, dry_run: bool = False) -> str:
    console = ScriptedConsole()
    verb.make(event.settings, console, numbered(2), dry_run=dry_run)
    return console.shown


def test_nodes_have_the_images_before_the_first_place_starts(event: Event) -> None:
    run(event)
    assert (event.order[0], sorted(event.order[1:3]), event.order[3]) == (
        *("images", ["place-001", "place-002"]),
        "door",
    )


def test_nodes_that_have_the_images_anyway_are_asked_for_nothing(event: Event) -> None:
    event.policy = "Never"
    run(event)
    assert "images" not in event.order
    assert event.kube.objects[SET] is None


def test_a_dry_run_asks_no_node(event: Event) -> None:
    run(event, dry_run=True)
    assert (event.order, event.kube.objects[SET]) == ([], None)


def test_who_may_make_no_daemon_set_has_the_workshop_and_is_told(event: Event) -> None:
    event.kube.lacking.add("create daemonsets in team")
    shown = run(event)
    assert event.order[-1] == "door"
    assert "images" not in event.order
    (told,) = [line for line in shown.splitlines() if "Nodes pull the images as places come" in line]
    assert "in the namespace team: create daemonsets; ask for a Role in team" in told


@pytest.mark.parametrize("refusal", ["exceeded quota: few, requested: pods=1", 'violates PodSecurity "x"'])
def test_pods_that_a_quota_or_a_policy_forbids_are_no_failure_either(
    refusal: str, event: Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    event.kube.lists[EVENTS] = [refused(f'pods "images-a" is forbidden: {refusal}')]
    monkeypatch.setattr(Event, "images", on_nodes(event.kube))
    assert refusal in run(event)
    assert event.order[-1] == "door"


def test_nodes_that_do_not_get_them_keep_places_from_starting(
    event: Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = on_nodes(event.kube)
    vars(step)["patience"] = 0.0
    monkeypatch.setattr(Event, "images", step)
    with pytest.raises(NotReady, match="0 of 1 nodes have the images; a: there is no pod yet") as told:
        run(event)
    assert "kubectl cordon NODE" in told.value.hint
    assert event.order == []


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


def room(kube: Objects, folder: Path, count: int, policy: str = "IfNotPresent") -> str:
    """Returns what is said of as many new places of one pod of 2 CPU and 1 GiB."""
    event = Event(kube, folder, policy)
    size = Size(2000, 1024**3)
    place = SimpleNamespace(instance=instance("rayside-p", namespace="rayside-p"), size=size, pods=[size])
    workshop = Workshop(event.base, Settings(), Shell())
    return workshop.require_room([cast(Place, place)] * count)


def test_what_the_images_request_on_each_node_is_counted(tmp_path: Path) -> None:
    def nodes(**more: Any) -> Objects:
        kube = api([node("a"), node("b")], **more)
        kube.lists.update({"/apis/ray.io/v1/rayclusters": [], f"{CORE}/pods": [its_door("a")]})
        return kube

    # A node of 4 CPU has room for two places, and for nothing else.
    assert room(nodes(), tmp_path, 4, "Never").startswith("4 places")
    with pytest.raises(NoRoom, match="room for 2") as told:
        room(nodes(), tmp_path, 4)
    # A node that is added has one, too.
    assert told.value.hint.startswith("add 2 nodes of 4 CPU and 8 GiB")
    # A pod that is there is counted once.
    kube = nodes()
    on_nodes(kube).apply(silent)
    its = [pod(kube, name, RUNS, RUNS) for name in ("a", "b")]
    exact = f"{4000 + its_cpu(its[0])}m"
    for each in kube.lists[NODES]:
        each["status"]["allocatable"]["cpu"] = exact
    kube.lists[f"{CORE}/pods"] = [*its, its_door("a")]
    assert room(kube, tmp_path, 4).startswith("4 places")
    kube.lists[f"{CORE}/pods"] = [its_door("a")]
    assert room(kube, tmp_path, 4).startswith("4 places")
    # Another's pod with that label, in another namespace, is none of ours.
    others = {**its[0], "metadata": {**its[0]["metadata"], "namespace": "other"}}
    kube.lists[f"{CORE}/pods"] = [others, its[1], its_door("a")]
    with pytest.raises(NoRoom, match="room for 3"):
        room(kube, tmp_path, 4)


def place_of_others(head: str, worker: str, monkeypatch: pytest.MonkeyPatch, **notes: str) -> None:
    """Has the workshop have the place `other`, of one worker, whose pods request so many processors."""

    def template(cpu: str) -> dict[str, Any]:
        return {"spec": {"containers": [{"resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}]}}

    group = {"replicas": 0 if notes else 1, "template": template(worker)}
    cluster = {
        "metadata": {"name": "rayside-other", "namespace": "other", "annotations": notes},
        "spec": {"headGroupSpec": {"template": template(head)}, "workerGroupSpecs": [group]},
    }
    monkeypatch.setattr(Workshop, "clusters", lambda _: [cluster])


def test_what_paused_places_get_back_is_not_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kube = api([node("a"), node("b")])
    kube.lists[f"{CORE}/pods"] = [its_door("a"), of_place("a", "head")]
    place_of_others("0", "2", monkeypatch, **{PAUSED: "1"})
    # Two nodes of 4 CPU, of which its one worker needs 2.
    assert room(kube, tmp_path, 3, "Never").startswith("3 places")
    with pytest.raises(NoRoom, match=r"4 places of 2 CPU and 1 GiB do not fit: .*room for 3"):
        room(kube, tmp_path, 4, "Never")
    # It has its worker: the pod is there, and is counted as any other.
    place_of_others("0", "2", monkeypatch)
    kube.lists[f"{CORE}/pods"].append(of_place("a", "worker"))
    assert room(kube, tmp_path, 4, "Never").startswith("4 places")


def test_pods_of_places_that_wait_for_a_node_have_their_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
        assert room(kube, tmp_path, 2, "Never").startswith("2 places")
        with pytest.raises(NoRoom, match="room for 2"):
            room(kube, tmp_path, 3, "Never")
    # One that stays on a node which takes no others needs nothing of the rest.
    kube.lists[NODES] = [node("a"), node("b", unschedulable=True), node("c")]
    kube.lists[f"{CORE}/pods"] = [its_door("a"), head, worker]
    assert room(kube, tmp_path, 3, "Never").startswith("3 places")


def test_the_front_door_has_its_room(tmp_path: Path) -> None:
    kube = api([node("a"), node("b")])
    kube.lists.update({"/apis/ray.io/v1/rayclusters": [], f"{CORE}/pods": [its_door("a")]})
    assert room(kube, tmp_path, 4, "Never").startswith("4 places")
    labels = {DOOR: "rayside"}
    others = on("a", namespace="other", labels=labels), on("a", namespace="team", labels={DOOR: "x"})
    for pods in ([], [its_door("")], [its_door("gone")], [*others]):
        kube.lists[f"{CORE}/pods"] = pods
        assert room(kube, tmp_path, 3, "Never").startswith("3 places")
        with pytest.raises(NoRoom, match="room for 3") as told:
            room(kube, tmp_path, 4, "Never")
        assert told.value.hint.startswith("add 1 node of 4 CPU")


def test_one_place_is_not_several(tmp_path: Path) -> None:
    kube = api([node("a")])
    kube.lists.update({"/apis/ray.io/v1/rayclusters": [], f"{CORE}/pods": []})
    assert room(kube, tmp_path, 1, "Never").startswith("1 place of 2 CPU and 1 GiB, in one pod")
    kube.lists[NODES] = [node("a")]
    kube.lists[NODES][0]["status"]["allocatable"]["cpu"] = "1"
    with pytest.raises(NoRoom, match="1 place of 2 CPU and 1 GiB does not fit: the cluster has room for 0"):
        room(kube, tmp_path, 1, "Never")


def its_cpu(its: dict[str, Any]) -> int:
    requests = [each["resources"]["requests"]["cpu"] for each in its["spec"]["containers"]]
    return sum(int(cpu.removesuffix("m")) for cpu in requests)
