"""Tests which image of a node a container runs, in each form in which the kubelet and an engine name it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bootstrap import docker_engine
from bootstrap.delivery.loaded import Listed, listed_in
from bootstrap.diagnosis import stale
from bootstrap.errors import CommandFailed
from bootstrap.shell import Outcome
from tests.unit.test_node_images import Containerd, manifest

OLD, NEW = "sha256:" + "a" * 64, "sha256:" + "b" * 64
OLD_MANIFEST, NEW_MANIFEST = "sha256:" + "1" * 64, "sha256:" + "2" * 64
ON_NODE = Listed(
    {"docker.io/team/app:latest": OLD_MANIFEST, OLD: OLD_MANIFEST, NEW: NEW_MANIFEST}, frozenset()
)
POD: dict[str, Any] = {
    "metadata": {"name": "p"},
    "spec": {"nodeName": "n", "containers": [{"name": "main", "image": "team/app"}]},
}


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Provides the ids of the engine's images; what is in it at the time counts."""
    ids: dict[str, str] = {}

    @contextmanager
    def connected(patience: float = 0) -> Iterator[Any]:
        yield SimpleNamespace()

    monkeypatch.setattr(docker_engine, "connected", connected)
    monkeypatch.setattr(docker_engine, "image", lambda _, name: {"Id": ids[name]} if name in ids else None)
    monkeypatch.setattr(stale, "nodes_behind", lambda _: ("c", ("n", "other")))
    monkeypatch.setattr(stale, "listed_in", lambda _, node: ON_NODE)
    return ids


def rows(identity: str, state: str = "running") -> list[dict[str, str]]:
    status = {"name": "main", "imageID": identity, "state": {state: {}}}
    return stale.stale_images([{**POD, "status": {"containerStatuses": [status]}}], "https://x")


@pytest.mark.parametrize("identity", [OLD, f"docker.io/library/import-2026-01-01@{OLD_MANIFEST}"])
def test_another_image_than_the_engines_is_told_with_all_ids(identity: str, engine: dict[str, str]) -> None:
    engine["team/app"] = NEW
    assert rows(identity) == [
        {
            "pod": "p",
            "container": "main",
            "image": "team/app",
            "cluster": "c",
            "runs": OLD,
            "node": OLD,
            "engine": NEW,
        }
    ]


@pytest.mark.parametrize("identity", [OLD, f"docker.io/team/app@{OLD_MANIFEST}"])
@pytest.mark.parametrize("has", [OLD, OLD_MANIFEST])
def test_the_engines_own_is_none_whatever_the_engine_names_it_by(
    identity: str, has: str, engine: dict[str, str]
) -> None:
    engine["team/app"] = has
    assert rows(identity) == []


def test_what_the_engine_lacks_or_never_ran_is_not_asked(engine: dict[str, str]) -> None:
    assert rows(OLD) == []
    engine["team/app"] = NEW
    assert rows("") == []
    assert rows(OLD, "terminated") == []
    assert rows("sha256:" + "f" * 64) == []


def test_where_the_engine_has_no_node_nothing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stale, "nodes_behind", lambda _: None)
    assert rows(OLD) == []


def test_an_engine_that_names_images_by_their_manifests_knows_which_the_node_has(
    engine: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine["team/app"] = NEW_MANIFEST
    new_on_node = Listed({**ON_NODE.digests, "docker.io/team/app:latest": NEW_MANIFEST}, frozenset())
    monkeypatch.setattr(stale, "listed_in", lambda _, node: new_on_node)
    (row,) = rows(OLD)
    assert row["node"] == row["engine"] == NEW_MANIFEST


@pytest.fixture
def twice(monkeypatch: pytest.MonkeyPatch) -> Containerd:
    """Has the new image in the node by two manifests, of which its configuration leads to the pulled one."""
    loaded, pulled = NEW_MANIFEST, "sha256:" + "3" * 64
    names = {
        "docker.io/team/app:latest": loaded,
        f"r.test/app@{pulled}": pulled,
        NEW: pulled,
        OLD: OLD_MANIFEST,
    }
    node = Containerd(names, {loaded: manifest(NEW), pulled: manifest(NEW), OLD_MANIFEST: manifest(OLD)})
    monkeypatch.setattr(stale, "Shell", lambda: node)
    monkeypatch.setattr(stale, "listed_in", listed_in)
    return node


def test_a_node_that_has_the_engines_image_by_two_manifests_has_the_same(
    engine: dict[str, str], twice: Containerd
) -> None:
    engine["team/app"] = NEW
    (row,) = rows(OLD)
    assert row["node"] == row["engine"] == NEW


@pytest.mark.parametrize("identity", [NEW, f"r.test/app@{NEW_MANIFEST}"])
def test_what_a_container_runs_is_known_by_each_of_two_manifests(
    identity: str, engine: dict[str, str], twice: Containerd
) -> None:
    engine["team/app"] = OLD
    (row,) = rows(identity)
    assert (row["runs"], row["node"]) == (NEW, NEW)


def test_an_engine_that_names_an_image_by_the_first_of_two_manifests_has_the_same(
    engine: dict[str, str], twice: Containerd
) -> None:
    engine["team/app"] = NEW_MANIFEST
    assert rows(NEW) == []
    (row,) = rows(OLD)
    assert row["node"] == row["engine"] == NEW_MANIFEST


def test_a_node_is_asked_for_a_manifest_once_and_only_for_one_that_it_lists(
    engine: dict[str, str], twice: Containerd, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who may write a pod's status could put any word there."""
    asked: list[str] = []
    run = twice.run

    def noted(args: Sequence[str | Path], **how: Any) -> Outcome:
        asked.append(str(args[-1]))
        return run(args, **how)

    monkeypatch.setattr(twice, "run", noted)
    engine["team/app"] = OLD
    statuses = [
        {"name": "main", "imageID": identity, "state": {"running": {}}}
        for identity in (NEW, f"r.test/app@{NEW_MANIFEST}", "r.test/app@--help", "")
    ]
    assert len(stale.stale_images([{**POD, "status": {"containerStatuses": statuses}}], "https://x")) == 2
    assert asked == ["list", NEW_MANIFEST]


def test_a_node_that_is_stopped_hides_no_other(
    engine: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine["team/app"] = NEW

    def listed(_: Any, node: str) -> Listed:
        if node == "other":
            raise CommandFailed("the container is not running", hint="")
        return ON_NODE

    monkeypatch.setattr(stale, "listed_in", listed)
    status = {"name": "main", "imageID": OLD, "state": {"running": {}}}
    there = {**POD, "status": {"containerStatuses": [status]}}
    elsewhere = {**there, "spec": {**POD["spec"], "nodeName": "other"}}
    assert len(stale.stale_images([elsewhere, there], "https://x")) == 1
