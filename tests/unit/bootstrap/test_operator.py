"""Tests which operator serves us as it is, and whose an object is, by what the API keeps of its managers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bootstrap.kube.api import Kube, made_here
from bootstrap.kube.operator import Operator
from bootstrap.settings import KUBERAY_VERSION
from rayside.errors import Drifted

KUBE = Kube(Path("/x/kubeconfig"), "kind-x", "team")


def operator(image: str, *args: str, **labels: str) -> Operator:
    container = {"image": image, "args": list(args)}
    named = {key.replace("_", "/"): value for key, value in labels.items()}
    metadata = {"name": "kuberay-operator", "namespace": "system", "labels": named}
    return Operator(KUBE, {"metadata": metadata, "spec": {"template": {"spec": {"containers": [container]}}}})


@pytest.mark.parametrize(
    "fitting",
    [
        operator("quay.io/kuberay/operator:v1.6.0"),
        operator("quay.io/kuberay/operator:v1.6.2@sha256:00ff"),
        operator("mirror.test:5000/kuberay/operator:1.10.0-rc.1"),
        operator("mirror.test:5000/operator@sha256:00ff", **{"app.kubernetes.io_version": "1.6.9"}),
        # By Helm, from a private registry with tags of its own.
        operator("mirror.test/operator:0a1b2c", **{"helm.sh_chart": "kuberay-operator-1.6.2"}),
        operator("operator:v1.6.2", "--watch-namespace", "other,team"),
        operator("operator:v1.6.2", "--watch-namespace=team"),
        operator("operator:v1.6.2", "--enable-leader-election=true"),
    ],
    ids=lambda fitting: fitting.image,
)
def test_an_operator_of_the_same_minor_version_or_a_newer_one_serves_us(fitting: Operator) -> None:
    fitting.require_fit()


@pytest.mark.parametrize(
    ("unfitting", "message_part"),
    [
        (operator("operator:v1.5.1"), r"is v1\.5\.1; Rayside needs 1\.6\.2 or a newer 1\.x"),
        (operator("operator:v2.0.0"), r"is v2\.0\.0"),
        (operator("operator:nightly"), "is operator:nightly"),
        (operator("operator:1", **{"helm.sh_chart": "kuberay-operator-1.5.0"}), r"is 1\.5\.0"),
        (operator("host:5000/operator"), "is host:5000/operator"),
        (operator("operator@sha256:00ff"), "is operator@sha256:00ff"),
        (operator("operator:v1.6.2", "--watch-namespace", "a,b"), "watches only a, b, and not team"),
    ],
    ids=lambda value: value.image if isinstance(value, Operator) else "",
)
def test_any_other_is_drift_with_one_thing_to_do(unfitting: Operator, message_part: str) -> None:
    with pytest.raises(Drifted, match=message_part) as caught:
        unfitting.require_fit()
    assert caught.value.message.startswith("the KubeRay operator system/kuberay-operator")
    assert "namespace to a" in caught.value.hint or KUBERAY_VERSION in caught.value.hint


def managed(**fields: dict[str, Any]) -> dict[str, Any]:
    """Returns an object with these managers of its fields."""
    parts = [{"manager": manager, "fieldsV1": owned} for manager, owned in fields.items()]
    return {"metadata": {"managedFields": parts}}


SPEC: dict[str, Any] = {"f:spec": {".": {}, "f:replicas": {}, "f:image": {}}}


def test_an_object_is_ours_where_nobody_holds_a_field_with_us() -> None:
    status: dict[str, Any] = {"f:status": {"f:ready": {}}, "f:spec": {".": {}, "f:paused": {}}}
    assert made_here(managed(rayside=SPEC))
    assert made_here(managed(rayside=SPEC, controller=status))
    assert not made_here(managed(controller=status))
    assert not made_here({"metadata": {}})
    # They had made it, and we applied the same values.
    assert not made_here(managed(helm={"f:spec": {"f:image": {}}}, rayside=SPEC))
    assert not made_here(managed(helm={"f:spec": {}}, rayside=SPEC))
