"""Tests which Ray of a Kubernetes namespace is meant."""

from __future__ import annotations

from typing import Any, cast

import pytest

from rayside.connection.heads import Namespace, find
from rayside.errors import InvalidSetting, NotRunning


class FakeKube:
    """A namespace with these pods of heads."""

    namespace, context = "rays", "prod"

    def __init__(self, *pods: dict[str, Any]) -> None:
        self._pods = pods

    def require(self, verb: str, resource: str) -> None:
        assert (verb, resource) == ("list", "pods")

    def pods(self, selector: str) -> list[dict[str, Any]]:
        assert selector == "ray.io/node-type=head"
        return list(self._pods)


def head(cluster: str, owner: str = "", phase: str = "Running", **metadata: str) -> dict[str, Any]:
    labels = {"ray.io/cluster": cluster, **({"ray.io/originated-from-cr-name": owner} if owner else {})}
    return {"metadata": {"labels": labels, **metadata}, "status": {"phase": phase}}


def found(name: str, *pods: dict[str, Any]) -> str:
    return find(cast(Namespace, FakeKube(*pods)), name)


def test_the_only_one_is_meant() -> None:
    gone = head("gone", phase="Succeeded"), head("going", deletionTimestamp="2026-01-01T00:00:00Z")
    assert found("", head("one"), *gone) == "one"


def test_one_is_meant_by_its_name_or_its_jobs_or_services() -> None:
    pods = head("one"), head("train-x7k2", "train"), head("other")
    assert found("one", *pods) == "one"
    assert found("train", *pods) == "train-x7k2"
    # A RayCluster's own name comes before that of what made another.
    assert found("one", *pods, head("b", "one")) == "one"


def test_several_are_listed() -> None:
    with pytest.raises(InvalidSetting) as raised:
        found("", head("b"), head("a"))
    assert "2 RayClusters run in the namespace rays: a, b" in raised.value.message
    assert raised.value.hint == "name one: --ray-cluster a"
    with pytest.raises(InvalidSetting, match="2 RayClusters named job run"):
        found("job", head("job-1", "job"), head("job-2", "job"))


def test_where_none_fits_those_that_run_are_told() -> None:
    with pytest.raises(NotRunning, match=r"no RayCluster runs in the namespace rays of prod$"):
        found("")
    with pytest.raises(NotRunning, match="no RayCluster c runs in the namespace rays of prod, but a, b"):
        found("c", head("b"), head("a"))


@pytest.mark.parametrize("name", ["--kubeconfig=/tmp/theirs", "$(id)", "a b", "one,x=y", "", "\x1b[2J"])
def test_what_can_be_no_name_in_kubernetes_is_no_raycluster(name: str) -> None:
    with pytest.raises(NotRunning) as raised:
        found("", head(name))
    assert name == "" or name not in raised.value.message
    assert found("", head(name), head("one")) == "one"
