"""Tests which image of a node a container runs, in each form in which the kubelet and an engine name it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from bootstrap import docker_engine
from bootstrap.delivery.loaded import Listed
from bootstrap.diagnosis import stale
from bootstrap.errors import CommandFailed

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
