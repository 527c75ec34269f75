"""Tests the pod that serves a bundle's images in a Kubernetes without a registry."""

from __future__ import annotations

import base64
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bootstrap.delivery.image_server import ImageServer, NoImageServer, port_of
from bootstrap.delivery.served import ServedImages
from bootstrap.errors import (
    Forbidden,
    ImagesOutOfReach,
    NotOurs,
    NotReady,
    PortTaken,
    RegistryUnreachable,
)
from bootstrap.kube import rights
from bootstrap.kube.api import CORE
from bootstrap.kube.refusal import refusal
from bootstrap.sources.source import Archives
from bootstrap.step import Condition
from tests.instances import instance
from tests.unit.scripted_objects import Objects, applied, objects

NAMESPACED = f"{CORE}/namespaces/team"
POD, SECRET = f"{NAMESPACED}/pods/rayside-images", f"{NAMESPACED}/secrets/rayside-images"
SERVICE = f"{NAMESPACED}/services/rayside-images"
POLICY = "/apis/networking.k8s.io/v1/namespaces/team/networkpolicies/rayside-images"
MAPS, DEPLOYMENTS = f"{NAMESPACED}/configmaps", "/apis/apps/v1/namespaces/team/deployments"
NOTE = f"{MAPS}/rayside-images-contents"
PAUSE = "registry.test/pause:3.10"


def node(
    name: str, *images: str, architecture: str = "amd64", system: str = "linux", **spec: Any
) -> dict[str, Any]:
    status = {
        "conditions": [{"type": "Ready", "status": "True"}],
        "nodeInfo": {"architecture": architecture, "operatingSystem": system},
        "images": [{"names": [image]} for image in images],
    }
    return {"metadata": {"name": name}, "spec": spec, "status": status}


def api(*nodes: dict[str, Any], **more: Any) -> Objects:
    maps = {f"{MAPS}/rayside-images-{name}": None for name in ("loader", "0", "1", "contents")}
    return objects(
        objects={**dict.fromkeys([POD, SECRET, SERVICE, POLICY]), **maps},
        lists={f"{CORE}/nodes": list(nodes), MAPS: [], DEPLOYMENTS: []},
        **more,
    )


def silent(_: str) -> None:
    pass


@pytest.fixture
def program(tmp_path: Path) -> Path:
    file = tmp_path / "serving"
    file.write_bytes(b"p" * 1_500_000)
    return file


def place(kube: Objects, base: str = "rayside") -> NoImageServer:
    return NoImageServer(instance("rayside", namespace="team"), kube, base, needs=("pull-secret",))


def server(kube: Objects, program: Path, image: str = "") -> ImageServer:
    return ImageServer(
        *(place(kube), 30050, image, program),
        version="sha256:0123456789abcdef",
        architecture="amd64",
        size=10**9,
        needs=("pull-secret", "serving"),
    )


def made(kube: Objects, path: str) -> dict[str, Any]:
    document = kube.objects[path]
    assert document is not None
    return document


def test_a_pod_of_an_image_that_nodes_have_runs_our_program(program: Path) -> None:
    kube = api(
        node("one", "registry.test/large:1", PAUSE),
        node("two", "registry.test/large:1", PAUSE, "registry.test/pause@sha256:00"),
        node("other", "registry.test/pause-of-another:1", architecture="arm64"),
        node("windows", "registry.test/a-pause:1", "registry.test/a/pause:1", system="windows"),
        node("strange", "registry.test/pause-me:1", "<none>:<none>"),
        {"metadata": {"name": "new"}},
        node("full", "registry.test/a-pause:1", unschedulable=True),
        node("control", "registry.test/a-pause:2", taints=[{"key": "k", "effect": "NoSchedule"}]),
    )
    step = server(kube, program)
    assert step.check().condition is Condition.MISSING
    step.apply(silent)
    spec = made(kube, POD)["spec"]
    (container,) = spec["containers"]
    assert container["image"] == PAUSE
    terms = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    (names,) = terms["nodeSelectorTerms"][0]["matchFields"]
    assert names["values"] == ["one", "two"]
    assert container["command"] == ["/boot/loader", "/program/serving", "/boot/0", "/boot/1"]
    parts = [made(kube, f"{MAPS}/rayside-images-{number}")["binaryData"] for number in range(2)]
    joined = b"".join(base64.b64decode(part[str(number)]) for number, part in enumerate(parts))
    assert joined == program.read_bytes()
    # Whoever brings images needs the password, and who asks for some reaches nothing else.
    assert made(kube, SECRET)["stringData"]["password"]
    assert "stringData" not in str(spec)
    assert made(kube, POLICY)["spec"]["ingress"] == [{"ports": [{"port": 5000, "protocol": "TCP"}]}]
    assert made(kube, SERVICE)["spec"]["ports"][0]["nodePort"] == 30050


def test_most_nodes_decide_where_none_has_an_image_of_sandboxes(program: Path) -> None:
    kube = api(node("one", "registry.test/a:1", "registry.test/b:1"), node("two", "registry.test/b:1"))
    server(kube, program).apply(silent)
    assert made(kube, POD)["spec"]["containers"][0]["image"] == "registry.test/b:1"


def test_a_named_image_is_taken_and_nobody_asks_for_nodes(program: Path) -> None:
    kube = api(unlistable={f"{CORE}/nodes"})
    server(kube, program, image="their.test/anything:1").apply(silent)
    spec = made(kube, POD)["spec"]
    assert spec["containers"][0]["image"] == "their.test/anything:1"
    assert "affinity" not in spec


def test_without_an_image_that_is_known_one_is_asked_for(program: Path) -> None:
    kube = api(node("other", PAUSE, architecture="arm64"))
    with pytest.raises(ImagesOutOfReach, match="no node for amd64") as told:
        server(kube, program).apply(silent)
    assert "INVOKE_RAYSIDE_SERVING_IMAGE=IMAGE" in told.value.hint


def test_what_is_anothers_stays(program: Path) -> None:
    theirs = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "rayside-images", "namespace": "team"}}
    kube = api(node("one", PAUSE))
    kube.objects[POD] = applied(theirs, manager="kubectl")
    with pytest.raises(NotOurs, match="a pod rayside-images in team"):
        server(kube, program).check()
    assert server(kube, program).undo(silent) is None
    assert kube.deleted == []
    kube.objects[POD] = None
    secret = {**theirs, "kind": "Secret", "data": {"password": "eA=="}}
    kube.objects[SECRET] = applied(secret, manager="kubectl")
    with pytest.raises(NotOurs, match="a Secret rayside-images"):
        server(kube, program).apply(silent)
    kube.objects[SECRET] = None
    kube.objects[SERVICE] = applied({**theirs, "kind": "Service"}, manager="kubectl")
    with pytest.raises(NotOurs, match="a Service rayside-images"):
        server(kube, program).apply(silent)


def test_a_port_that_is_taken_is_named_with_the_setting(
    program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kube = api(node("one", PAUSE))
    call = Objects._call

    def refused(self: Objects, method: str, path: str, query: Any, body: str | None = None) -> Any:
        if (method, path) == ("PATCH", SERVICE):
            words = b'{"message": "spec.ports[0].nodePort: 30050: provided port is already allocated"}'
            raise refusal(self.url, method, path, 422, words)
        return call(self, method, path, query, body)

    monkeypatch.setattr(Objects, "_call", refused)
    with pytest.raises(PortTaken, match="can't have port 30050") as told:
        server(kube, program).apply(silent)
    assert "INVOKE_RAYSIDE_SERVING_NODEPORT=PORT" in told.value.hint


def test_down_removes_all_of_it_unless_an_operator_needs_it(program: Path) -> None:
    kube = api(node("one", PAUSE))
    step = server(kube, program)
    step.apply(silent)
    step.note({"images": "x"})
    kube.lists[MAPS] = [made(kube, path) for path in kube.objects if path.startswith(f"{MAPS}/")]
    container = {"image": "127.0.0.1:30050/rayside/bundled-operator@sha256:00"}
    spec = {"template": {"spec": {"containers": [container]}}}
    deployment = {"kind": "Deployment", "metadata": {"name": "kuberay"}, "spec": spec}
    kube.lists[DEPLOYMENTS] = [applied(deployment)]
    assert "KubeRay's operator has its image from it" in (step.undo(silent) or "")
    assert kube.deleted == []
    kube.lists[DEPLOYMENTS] = []
    # What it was made from need not be there any more.
    program.unlink()
    assert place(kube).undo(silent) is None
    assert [path for path, document in kube.objects.items() if document] == []


def running(kube: Objects, step: ImageServer) -> dict[str, Any]:
    """Plays the API: the Secret's values are in base64, and the pod is ready."""
    step.apply(silent)
    secret = made(kube, SECRET)
    if texts := secret.pop("stringData", None):
        secret["data"] = {key: base64.b64encode(value.encode()).decode() for key, value in texts.items()}
    pod = made(kube, POD)
    pod["metadata"]["uid"] = "1"
    pod["status"] = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    return pod


def test_a_pod_that_runs_stays_when_something_beside_it_has_gone(program: Path) -> None:
    kube = api(node("one", PAUSE))
    step = server(kube, program)
    pod = running(kube, step)
    assert step.check().condition is Condition.READY
    kube.objects[SERVICE] = None
    assert step.check().condition is Condition.MISSING
    step.apply(silent)
    assert step.check().condition is Condition.READY
    made(kube, SERVICE)["spec"]["ports"][0]["nodePort"] = 31999
    assert "31999" in step.check().detail
    step.apply(silent)
    # Gigabytes went into it.
    assert kube.objects[POD] is pod
    # But who has lost the password can't fill it any more.
    kube.objects[SECRET] = None
    step.apply(silent)
    assert kube.deleted == [POD]


@pytest.mark.parametrize(
    ("fate", "grace"),
    [
        ({"status": {"phase": "Failed", "reason": "Evicted"}}, "1"),
        # Without that, the API waits for the word of a node that never comes.
        ({"metadata": {"deletionTimestamp": "2020-01-01T00:00:00Z"}}, "0"),
    ],
)
def test_a_pod_that_was_evicted_or_whose_node_is_dead_is_made_anew(
    program: Path, fate: dict[str, Any], grace: str
) -> None:
    kube = api(node("one", PAUSE))
    step = server(kube, program)
    pod = running(kube, step)
    pod["metadata"] |= fate.get("metadata", {})
    pod["status"] |= fate.get("status", {})
    assert step.check().condition is Condition.MISSING
    step.apply(silent)
    assert (kube.deleted, kube.graces) == ([POD], {POD: grace})
    assert made(kube, POD)["metadata"].get("deletionTimestamp") is None


def test_a_pod_that_is_only_just_going_is_waited_for(program: Path) -> None:
    kube = api(node("one", PAUSE))
    step = server(kube, program)
    running(kube, step)["metadata"]["deletionTimestamp"] = "2999-01-01T00:00:00Z"
    assert step.check().condition is Condition.PENDING


def test_another_image_helps_a_pod_that_does_not_come_up(program: Path) -> None:
    kube = api(node("one", PAUSE))
    waits = {"name": "images", "image": "x", "state": {"waiting": {"reason": "ImagePullBackOff"}}}
    step = server(kube, program)
    pod = running(kube, step)
    pod["status"] = {
        "conditions": [{"type": "PodScheduled", "status": "True"}],
        "containerStatuses": [waits],
    }
    kube.lists[f"{NAMESPACED}/pods"], kube.lists[f"{NAMESPACED}/events"] = [pod], []
    told = step.check()
    assert told.condition is Condition.PENDING
    assert "INVOKE_RAYSIDE_SERVING_IMAGE=IMAGE" in told.detail
    named = replace(step, image="their.test/other:1")
    assert named.check().condition is Condition.MISSING
    named.apply(silent)
    assert made(kube, POD)["spec"]["containers"][0]["image"] == "their.test/other:1"


def test_a_pod_that_takes_no_images_is_told_as_such(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kube = api(node("one", PAUSE))
    step = server(kube, program)
    kube.lists[f"{NAMESPACED}/pods"] = [running(kube, step)]
    monkeypatch.setattr("bootstrap.delivery.served.forwarded", lambda *_: nullcontext(1))

    def broken(*_: Any) -> None:
        raise RegistryUnreachable("the registry 127.0.0.1:1 can't be reached", hint="correct its name")

    with pytest.raises(NotReady, match="the pod rayside-images did not take the images") as told:
        ServedImages(step, Archives({}, lambda _: [], broken, len), ("a",)).apply(silent)
    assert told.value.hint == "./invokew up goes on from there"


def test_images_are_there_as_long_as_the_pod_that_got_them(program: Path) -> None:
    kube = api(node("one", PAUSE))
    step = server(kube, program)
    step.apply(silent)
    images = ServedImages(step, Archives({}, lambda _: [], lambda *_: None, len), ("a", "b"))
    assert images.check().condition is Condition.MISSING
    made(kube, POD)["metadata"]["uid"] = "1"
    step.note({"images": "a b", "pod": "1"})
    assert images.check().condition is Condition.READY
    # One that was evicted has lost them, and so has one that was given others.
    made(kube, POD)["metadata"]["uid"] = "2"
    assert images.check().condition is Condition.MISSING
    assert replace(images, references=("a",)).check().condition is Condition.MISSING


def test_who_may_not_list_nodes_names_an_image() -> None:
    kube = api(lacking={"list nodes in all"})
    rights.require_serving(kube, image=PAUSE)
    with pytest.raises(Forbidden, match="list nodes") as told:
        rights.require_serving(kube, image="")
    assert "INVOKE_RAYSIDE_SERVING_IMAGE=" in told.value.hint
    with pytest.raises(Forbidden, match="create configmaps"):
        rights.require_serving(api(lacking={"create configmaps in team"}), image=PAUSE)


def test_the_port_follows_from_where_the_pod_is_unless_it_is_given() -> None:
    places = [place(objects(namespace)) for namespace in ("team", "other")] + [place(objects(), "x")]
    ports = [port_of(each, 0) for each in places]
    assert ports == [port_of(each, 0) for each in places]
    assert len(set(ports)) == 3
    assert all(30000 <= port <= 30085 for port in ports)
    assert port_of(places[0], 31111) == 31111
