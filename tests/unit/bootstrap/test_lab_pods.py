"""Tests that a lab makes and removes its own pods, and nobody else's."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bootstrap.errors import NotSolved
from bootstrap.labs.exercise import Exercise
from bootstrap.labs.pods import Pods, kubectl
from bootstrap.targets.target import Target
from rayside.errors import InvalidArgument

FOLDER = "/api/v1/namespaces/rays/pods/"
POD = "kind: Pod\napiVersion: v1\nmetadata: {name: mine, labels: {rayside.dev/lab: 12-last-words}}\n"


@dataclass
class FakeKube:
    """A namespace of pods, with their labels as a selector has them."""

    labels: dict[str, str]
    namespace: str = "rays"
    calls: list[tuple[str, str]] = field(default_factory=list)

    def pods(self, selector: str) -> list[dict[str, Any]]:
        return [{"metadata": {"name": name}} for name, label in self.labels.items() if label == selector]

    def get(self, path: str) -> dict[str, Any] | None:
        name = path.removeprefix(FOLDER)
        statuses = [{"name": "other"}, {"name": "main", "state": {"running": {}}}]
        return {"status": {"containerStatuses": statuses}} if name in self.labels else None

    def delete(self, path: str, gracePeriodSeconds: str) -> None:  # noqa: N803
        assert gracePeriodSeconds == "0"
        self.calls.append(("delete", path.removeprefix(FOLDER)))
        del self.labels[path.removeprefix(FOLDER)]

    def apply(self, document: dict[str, Any]) -> None:
        self.calls.append((document["metadata"]["namespace"], document["metadata"]["name"]))


@pytest.fixture
def kube() -> FakeKube:
    own = "rayside.dev/lab=12-last-words"
    return FakeKube({"mine": own, "left": own, "head": "", "other": "rayside.dev/lab=11-exit-codes"})


@pytest.fixture
def pods(kube: FakeKube, tmp_path: Path) -> Pods:
    folder = tmp_path / "12-last-words"
    folder.mkdir()
    target = cast(Target, SimpleNamespace(kubernetes=SimpleNamespace(kube=kube)))
    return Pods(Exercise(folder, target, lambda text: None))


def test_an_earlier_pod_of_that_name_makes_room(pods: Pods, kube: FakeKube) -> None:
    (pods.exercise.folder / "pod.yaml").write_text(POD)
    assert pods.make("pod.yaml") == "mine"
    assert kube.calls == [("delete", "mine"), ("rays", "mine")]


def test_all_that_are_left_of_the_lab_are_removed_and_no_others(pods: Pods, kube: FakeKube) -> None:
    pods.remove()
    assert set(kube.labels) == {"head", "other"}


@pytest.mark.parametrize(
    "text",
    [
        "- no mapping\n",
        "metadata: none\n",
        POD.replace("kind: Pod", "kind: Job"),
        POD.replace("12-last-words", "11-exit-codes"),
        "kind: Pod\nmetadata: {name: head}\n",
        "kind: Pod\nmetadata: {name: head, labels: [rayside.dev/lab]}\n",
        POD.replace("name: mine", "title: mine"),
    ],
)
def test_a_file_without_a_pod_of_the_lab_is_refused(pods: Pods, kube: FakeKube, text: str) -> None:
    (pods.exercise.folder / "pod.yaml").write_text(text)
    with pytest.raises(NotSolved) as raised:
        pods.make("pod.yaml")
    assert "--reset" in raised.value.hint
    assert kube.calls == []


def test_the_container_that_is_meant_is_looked_at(pods: Pods) -> None:
    assert pods.wait("mine", "main", lambda status: "running" in status.get("state", {}), "started")
    assert pods.wait("gone", "main", lambda status: status == {}, "ended") == {}


def test_without_pods_there_is_no_kubectl() -> None:
    instance = SimpleNamespace(name="mine", target="local")
    with pytest.raises(InvalidArgument, match="cluster mine is on the target local"):
        kubectl(cast(Target, SimpleNamespace(instance=instance, kubernetes=None)), "get", "pods")
