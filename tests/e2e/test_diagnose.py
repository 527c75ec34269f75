"""Tests what `diagnose` says, on the real cluster, of pods and RayJobs that fail on purpose, side by side."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from bootstrap.kube.api import CORE, RAY, Kube, path_of
from rayside.waiting import until
from tests.e2e.conftest import target
from tests.failures.failure import missed
from tests.failures.pods import FAILURES, LABEL, documents
from tests.integration.conftest import Rayside
from tests.patience import PATIENCE

# Seconds for all of them to have failed; 40 were measured on a busy machine.


@pytest.fixture(scope="module")
def kube(up: Rayside) -> Iterator[Kube]:
    """Provides the cluster's namespace with all of them in it, and removes them."""
    kube = target(up).kube
    image = next(
        name
        for node in kube.items(f"{CORE}/nodes")
        for entry in node["status"].get("images", [])
        for name in entry.get("names") or []
        if "rayside/ray:" in name
    )
    for document in documents(image, up.settings.name, target(up).cluster.node):
        kube.apply({**document, "metadata": {**document["metadata"], "namespace": kube.namespace}})
    yield kube
    for pod in kube.pods(LABEL):
        kube.delete(path_of({**pod, "apiVersion": "v1", "kind": "Pod"}), gracePeriodSeconds="0")
    for name in ("fails-late", "fails-refused"):
        kube.delete(f"{RAY}/namespaces/{kube.namespace}/rayjobs/{name}")
    assert until(lambda: kube.pods(LABEL), lambda left: not left, PATIENCE) == []


def test_each_failure_of_kubernetes_is_told_with_its_cause(up: Rayside, kube: Kube) -> None:
    deadline, untold = time.monotonic() + PATIENCE, "nothing was asked"
    while untold and time.monotonic() < deadline:
        told = up.json("diagnose", timeout=60)
        untold = missed(FAILURES, told["findings"])
    assert not untold, untold
    assert told["unread"] == []


def test_of_one_pod_only_its_own_is_told(up: Rayside, kube: Kube) -> None:
    (found,) = up.json("diagnose", "--pod", "fails-last", timeout=60)["findings"]
    assert "no such shard" in found["why"]


def test_a_pod_that_never_was_is_an_error_with_those_that_are(up: Rayside, kube: Kube) -> None:
    error = up.json("diagnose", "--pod", "fails-never", code=4, timeout=60)["error"]
    assert error["id"] == "pod-not-found"
    assert "fails-last" in error["hint"]
