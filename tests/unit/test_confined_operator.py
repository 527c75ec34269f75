"""Tests which KubeRay operator `--create` uses, which it installs, and what of that `down` removes."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

from bootstrap.kube.api import RAY
from bootstrap.kube.operator import confined
from bootstrap.settings import KUBERAY_VERSION
from bootstrap.shell import Shell
from bootstrap.sources.source import Images
from bootstrap.step import Condition
from bootstrap.steps.kuberay import CustomResources, OperatorManifest
from tests.unit.scripted_objects import Objects, applied, objects
from tests.unit.test_creation import OPERATORS, SERVED, TEAM, api, item, looked, operator

RBAC = "/apis/rbac.authorization.k8s.io/v1"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
KINDS = ("rayclusters", "rayjobs", "rayservices", "raycronjobs")
ALL, OURS = f"{RAY}/rayclusters", f"{RAY}/namespaces/team/rayclusters"


def ours(namespace: str, *args: str) -> dict[str, Any]:
    """Returns the Deployment of an operator that Rayside has made."""
    deployment = operator("rayside/operator:1", *args)
    deployment["metadata"]["namespace"] = namespace
    return applied({**deployment, "kind": "Deployment"})


def installed(*operators: dict[str, Any], in_use: Collection[str] = ()) -> Objects:
    """Returns an API with these operators, and with a Role and a definition of KubeRay that are ours."""
    role = applied({"kind": "Role", **item("kuberay-operator", namespace="team")})
    definition = applied({"kind": "CustomResourceDefinition", **item("rayclusters.ray.io")})
    in_team = [each for each in operators if each["metadata"]["namespace"] == "team"]
    empty = (f"{TEAM}/services", f"{TEAM}/serviceaccounts", f"{RBAC}/namespaces/team/rolebindings")
    lists: dict[str, list[dict[str, Any]]] = {path: [] for path in empty}
    for place in ("", "/namespaces/team"):
        lists |= {f"{RAY}{place}/{kind}": [] for kind in KINDS}
    lists |= {path: [item("theirs")] for path in in_use}
    return objects(
        lists={
            **lists,
            OPERATORS: [*operators],
            "/apis/apps/v1/namespaces/team/deployments": in_team,
            f"{RBAC}/namespaces/team/roles": [role],
            DEFINITIONS: [definition],
        }
    )


def manifest(image: str) -> OperatorManifest:
    images = Images("rayside/ray:1", "rayside/workspace:1", image)
    return OperatorManifest(Shell(), Path("/c"), Path("/k"), Path("/c/k"), images, "team")


def removed(kube: Objects) -> set[str]:
    CustomResources(kube, manifest("rayside/operator:1")).undo(lambda _: None)
    return {path.split("/")[-2] for path in kube.deleted}


def test_down_removes_an_operator_of_ours_and_its_definitions_only_where_nobody_else_needs_them() -> None:
    own = ours("team", "--watch-namespace=team")
    assert removed(installed(own)) == {"deployments", "roles", "customresourcedefinitions"}
    assert removed(installed(own, in_use={ALL})) == {"deployments", "roles"}
    assert removed(installed(own, ours("b", "--watch-namespace=b"))) == {"deployments", "roles"}
    assert removed(installed(own, operator())) == {"deployments", "roles"}
    assert removed(installed(own, in_use={ALL, OURS})) == set()
    # That of a kind cluster of Rayside's own looks after all; it is in this namespace, and not this one's.
    assert removed(installed(ours("team"))) == set()
    refused_to_look = installed(own)
    refused_to_look.lacking.add("list deployments in all")
    assert removed(refused_to_look) == set()


def test_an_operator_of_another_instance_is_used_if_it_looks_after_our_namespace(tmp_path: Path) -> None:
    def looking(*operators: dict[str, Any]) -> Objects:
        return replace(api(), lists={OPERATORS: [*operators], **SERVED})

    of_all = ours("default")
    of_all["metadata"]["labels"] = {"app.kubernetes.io/version": KUBERAY_VERSION}
    assert "default/kuberay-operator" in looked(looking(of_all), tmp_path)
    # One that looks after another namespace alone is no reason not to install ours.
    other = ours("b", "--watch-namespace=b")
    assert "can be installed" in looked(looking(other), tmp_path)
    own = ours("team", "--watch-namespace=team")
    assert "team/kuberay-operator" in looked(looking(other, own), tmp_path)


def test_an_operator_of_ours_has_rights_in_its_namespace_alone() -> None:
    def of(kind: str, **more: Any) -> dict[str, Any]:
        return {"kind": kind, "metadata": {"name": "kuberay-operator", "namespace": "default"}, **more}

    account = {"kind": "ServiceAccount", "name": "kuberay-operator", "namespace": "default"}
    binding = of("ClusterRoleBinding", roleRef={"kind": "ClusterRole", "name": "x"}, subjects=[account])
    pod = {"spec": {"containers": [{"name": "kuberay-operator", "args": ["--a"]}]}}
    own = [confined(document, "team") for document in (binding, of("ClusterRole"))]
    assert [document["kind"] for document in own] == ["RoleBinding", "Role"]
    assert own[0]["roleRef"]["kind"] == "Role"
    assert own[0]["subjects"][0]["namespace"] == "team"
    deployment = confined(of("Deployment", spec={"template": pod}), "team")
    (args,) = [each["args"] for each in deployment["spec"]["template"]["spec"]["containers"]]
    assert args == ["--a", "--watch-namespace=team"]
    assert {document["metadata"]["namespace"] for document in (*own, deployment)} == {"team"}
    definition = {"kind": "CustomResourceDefinition", "metadata": {"name": "rayclusters.ray.io"}}
    assert confined(definition, "team") == definition


def test_an_operator_that_is_not_this_instances_is_never_changed_whatever_its_image() -> None:
    def condition(*operators: dict[str, Any]) -> Condition:
        kube = replace(api(), lists={OPERATORS: [*operators], **SERVED})
        return CustomResources(kube, manifest("rayside/operator:2")).check().condition

    of_all = ours("team")
    of_all["metadata"]["labels"] = {"app.kubernetes.io/version": KUBERAY_VERSION}
    assert condition(of_all) is Condition.READY
    assert condition(ours("team", "--watch-namespace=team")) is Condition.MISSING
    assert condition(ours("b", "--watch-namespace=b")) is Condition.MISSING
