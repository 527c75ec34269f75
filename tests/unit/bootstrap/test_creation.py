"""Tests what `--create` makes in a Kubernetes of others, and refuses, and what of that `down` removes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bootstrap.errors import ImagesOutOfReach, NamespaceTerminating, NotOurs
from bootstrap.instance import Instance
from bootstrap.kube import rights
from bootstrap.kube.api import CORE, RAY
from bootstrap.kube.contents import held, kinds
from bootstrap.kube.operator import confined
from bootstrap.kube.rights import Rule
from bootstrap.settings import KUBERAY_VERSION
from bootstrap.sources.source import Images
from bootstrap.steps.creation_preflight import CreationPreflight
from bootstrap.steps.kuberay import CustomResources, OperatorManifest
from bootstrap.steps.namespace import Namespace
from bootstrap.steps.network_policies import NetworkPolicies
from bootstrap.steps.ray_cluster import WorkspacePassword
from rayside.connection import heads
from rayside.errors import Drifted, Forbidden, RaysideError
from rayside.steps.step import Condition
from rayside.system.shell import Shell
from tests.documented_rights import documented, each
from tests.instances import instance
from tests.unit.scripted_objects import Objects, applied, objects

TEAM = f"{CORE}/namespaces/team"
CLUSTER, TOKEN = f"{RAY}/namespaces/team/rayclusters/mine", f"{TEAM}/secrets/mine"
OPERATORS = "/apis/apps/v1/deployments"
SERVED = {f"{RAY}/namespaces/team/{plural}": list[dict[str, Any]]() for plural in ("rayclusters", "rayjobs")}
MINE = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "mine", "namespace": "team"}}


def namespace(phase: str = "Active") -> dict[str, Any]:
    return {"metadata": {"name": "team"}, "status": {"phase": phase}}


def operator(image: str = f"quay.io/kuberay/operator:v{KUBERAY_VERSION}", *args: str) -> dict[str, Any]:
    container = {"image": image, "args": list(args)}
    metadata = {"name": "kuberay-operator", "namespace": "system"}
    return {"metadata": metadata, "spec": {"template": {"spec": {"containers": [container]}}}}


def cluster(folder: Path) -> Instance:
    return instance("mine", "team", folder)


def api(there: Mapping[str, Any] | None = None, *, lacking: Collection[str] = ()) -> Objects:
    """Returns an API with a namespace, an operator, and nothing of ours; `there` are other objects."""
    found = {TEAM: namespace(), CLUSTER: None, TOKEN: None, **(there or {})}
    lists = {OPERATORS: [operator()], **SERVED}
    return objects(objects=found, lists=lists, lacking=set(lacking))


def looked(kube: Objects, folder: Path, refusal: ImagesOutOfReach | None = None) -> str:
    return CreationPreflight(cluster(folder), kube, refusal).check().detail


def refused(kube: Objects, folder: Path) -> RaysideError:
    with pytest.raises(RaysideError) as raised:
        looked(kube, folder)
    return raised.value


# --- before anything is made -------------------------------------------------------------


def test_what_can_be_made_is_said_before_it_is_made(tmp_path: Path) -> None:
    there = "the namespace team is there; KubeRay's operator is system/kuberay-operator"
    assert there in looked(api(), tmp_path)
    bare = replace(api({TEAM: None}), lists={OPERATORS: [], **SERVED})
    assert "the namespace team can be made; KubeRay can be installed" in looked(bare, tmp_path)


def test_images_that_get_nowhere_are_said_before_kubernetes_is_asked(tmp_path: Path) -> None:
    with pytest.raises(ImagesOutOfReach):
        looked(objects(), tmp_path, ImagesOutOfReach("no way", hint="push them"))


def test_a_namespace_that_is_being_deleted_is_refused(tmp_path: Path) -> None:
    assert isinstance(refused(api({TEAM: namespace("Terminating")}), tmp_path), NamespaceTerminating)


def test_a_ray_cluster_of_that_name_that_is_not_this_instances_is_refused(tmp_path: Path) -> None:
    theirs = refused(api({CLUSTER: applied(MINE, "kubectl")}), tmp_path)
    assert isinstance(theirs, NotOurs)
    assert "that Rayside did not make" in theirs.message
    assert "--name NAME" in theirs.hint
    # Another's Rayside has made it: there is no record of it here.
    others = refused(api({CLUSTER: applied(MINE)}), tmp_path)
    assert isinstance(others, NotOurs)
    assert "another's Rayside" in others.message
    cluster(tmp_path).record.write_text("{}")
    assert "KubeRay's operator" in looked(api({CLUSTER: applied(MINE)}), tmp_path)


def test_a_token_that_a_stranger_laid_out_for_kuberay_is_refused(tmp_path: Path) -> None:
    planted: dict[str, Any] = {"metadata": {"name": "mine"}}
    assert "where KubeRay would put Ray's token" in refused(api({TOKEN: planted}), tmp_path).message
    # That of an earlier cluster goes with it, a moment later.
    going = {"metadata": {"name": "mine", "ownerReferences": [{"kind": "RayCluster"}]}}
    assert looked(api({TOKEN: going}), tmp_path)


def test_a_password_that_a_stranger_laid_out_is_refused() -> None:
    path = f"{TEAM}/secrets/mine-workspace"
    metadata = {"name": "mine-workspace", "namespace": "team"}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {"password": "eA=="}}
    kube = objects(objects={TEAM: namespace(), path: applied(secret, "kubectl")})
    step = WorkspacePassword(cluster(Path("/x")), kube)
    with pytest.raises(NotOurs, match="another knows that password"):
        step.check()
    kube.objects[path] = applied(secret)
    assert step.check().condition is Condition.READY


def test_every_right_that_is_lacking_is_named_with_the_rule_that_gives_it(tmp_path: Path) -> None:
    error = refused(api(lacking={"create secrets in team", "get pods/portforward in team"}), tmp_path)
    assert isinstance(error, Forbidden)
    assert error.message.endswith("get pods/portforward; create secrets")
    assert '{apiGroups: [""], resources: [secrets], verbs: [create]}' in error.hint


def test_without_the_right_to_make_a_namespace_an_administrator_is_named(tmp_path: Path) -> None:
    error = refused(api({TEAM: None}, lacking={"create namespaces in all"}), tmp_path)
    assert "there is no namespace team" in error.message
    assert "kubectl create namespace team" in error.hint
    # One that is there needs no such right.
    assert looked(api(lacking={"create namespaces in all"}), tmp_path)


def test_without_the_right_to_install_kuberay_what_to_hand_over_is_named(tmp_path: Path) -> None:
    kube = api(lacking={"create customresourcedefinitions in all"})
    assert looked(kube, tmp_path)
    error = refused(replace(kube, lists={OPERATORS: [], **SERVED}), tmp_path)
    assert "create customresourcedefinitions" in error.message
    assert "kubectl apply --server-side" in error.hint
    assert KUBERAY_VERSION in error.hint


def test_an_operator_that_may_not_be_seen_serves_where_its_resources_are(tmp_path: Path) -> None:
    assert "can't be seen" in looked(api(lacking={"list deployments in all"}), tmp_path)
    unserved = {path: None for path in SERVED}
    error = refused(replace(api(unserved, lacking={"list deployments in all"}), lists={}), tmp_path)
    assert "list deployments in the whole cluster" in error.message


def test_an_operator_that_does_not_serve_is_refused(tmp_path: Path) -> None:
    for other in (operator("operator:v1.5.0"), operator("operator:v1.6.2", "--watch-namespace=a")):
        assert isinstance(refused(replace(api(), lists={OPERATORS: [other], **SERVED}), tmp_path), Drifted)


@pytest.mark.parametrize(
    ("name", "rules"),
    [("rayside-create", rights.STACK), ("rayside-workspace", rights.WORKSPACE_POD)],
    ids=["create", "workspace"],
)
def test_the_documented_role_has_every_right_that_is_asked_for(name: str, rules: Sequence[Rule]) -> None:
    assert each(documented("targets.md", name)) == each(rules)


def test_the_documented_role_to_debug_has_what_forwards_ask_for_and_the_tokens_secret() -> None:
    asked = {("", resource, verb) for verb, resource in heads._RIGHTS}
    assert each(documented("quickstart.md", "rayside-debug")) == {*asked, ("", "secrets", "get")}


# --- the namespace -----------------------------------------------------------------------


def step(kube: Objects) -> Namespace:
    return Namespace(cluster(Path("/x")), kube)


EMPTY: dict[str, Any] = {"/apis": {"groups": []}, CORE: {"resources": []}}


def test_a_namespace_that_we_made_is_restricted_and_goes() -> None:
    kube = objects(objects={TEAM: None, **EMPTY})
    assert step(kube).check().condition is Condition.MISSING
    step(kube).apply(lambda _: None)
    made = kube.made(TEAM)
    assert made["metadata"]["labels"] == {
        "app.kubernetes.io/managed-by": "rayside",
        "rayside.dev/instance": "mine",
        "pod-security.kubernetes.io/enforce": "restricted",
    }
    assert step(kube).check().detail == "made for this cluster"
    step(kube).undo(lambda _: None)
    assert kube.deleted == [TEAM]


def test_a_namespace_that_was_there_or_is_another_instances_stays() -> None:
    named = {"name": "team", "labels": instance("other", "team").labels}
    there = {"apiVersion": "v1", "kind": "Namespace", "metadata": named}
    for document in (namespace(), applied(there), applied(there, "kubectl")):
        kube = objects(objects={TEAM: document})
        assert step(kube).check().detail == "it was there, and stays"
        step(kube).undo(lambda _: None)
        assert kube.deleted == []


def test_what_others_put_into_our_namespace_keeps_it() -> None:
    kube = objects(objects={TEAM: None, **EMPTY})
    step(kube).apply(lambda _: None)
    kube.objects[CORE] = {"resources": [resource("configmaps")]}
    kube.lists[f"{TEAM}/configmaps"] = [item("kube-root-ca.crt"), item("theirs")]
    left = step(kube).undo(lambda _: None)
    assert (left, kube.deleted) == ("it stays: others have configmaps/theirs in it", [])


def resource(name: str, *, namespaced: bool = True, verbs: tuple[str, ...] = ("list",)) -> dict[str, Any]:
    return {"name": name, "namespaced": namespaced, "verbs": list(verbs)}


def item(name: str, **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, **metadata}}


def test_of_a_namespace_all_kinds_are_looked_at_and_what_goes_by_itself_is_left_out() -> None:
    groups = [
        {"name": name, "preferredVersion": {"groupVersion": f"{name}/v1"}}
        for name in ("apps", "theirs.test", "metrics.k8s.io")
    ]
    nodes, bindings = resource("nodes", namespaced=False), resource("bindings", verbs=("create",))
    names = ("pods", "pods/log", "events", "serviceaccounts")
    core = [nodes, bindings, *(resource(name) for name in names)]
    kube = objects(
        objects={
            "/apis": {"groups": groups},
            CORE: {"resources": [nodes, bindings, *core]},
            "/apis/apps/v1": {"resources": [resource("deployments")]},
            "/apis/theirs.test/v1": {"resources": [resource("widgets"), resource("secretive")]},
        },
        lists={
            f"{TEAM}/pods": [item("owned", ownerReferences=[{}]), item("ending", deletionTimestamp="2026")],
            f"{TEAM}/serviceaccounts": [item("default")],
            "/apis/apps/v1/namespaces/team/deployments": [item("web")],
            "/apis/theirs.test/v1/namespaces/team/widgets": [item("one")],
        },
        unlistable={"/apis/theirs.test/v1/namespaces/team/secretive"},
    )
    expected = ["deployments/web", "widgets/one", "secretive/(they can't be listed)"]
    assert held(kube) == expected
    # Kinds that are known are not asked for again, as where a thousand namespaces are looked at.
    known = kinds(kube)
    for path in ("/apis", CORE, "/apis/apps/v1", "/apis/theirs.test/v1"):
        del kube.objects[path]
    assert held(kube, known) == expected


def test_a_namespace_that_goes_is_looked_at_by_the_kinds_that_are_known() -> None:
    kube = api({TEAM: None})
    step(kube).apply(lambda _: None)
    kube.lists[f"{TEAM}/configmaps"] = [item("theirs")]
    known = replace(step(kube), kinds=lambda: [(CORE, "configmaps")])
    assert known.undo(lambda _: None) == "it stays: others have configmaps/theirs in it"
    kube.lists[f"{TEAM}/configmaps"] = []
    assert (known.undo(lambda _: None), kube.deleted) == (None, [TEAM])


# --- network policies --------------------------------------------------------------------


def test_only_the_ray_clusters_own_pods_reach_its_workers_and_others_only_the_dashboard() -> None:
    folder = "/apis/networking.k8s.io/v1/namespaces/team/networkpolicies"
    paths = [f"{folder}/mine-worker", f"{folder}/mine-head"]
    kube = objects(objects=dict.fromkeys(paths))
    policies = NetworkPolicies(cluster(Path("/x")), kube)
    assert policies.check().condition is Condition.MISSING
    policies.apply(lambda _: None)
    assert policies.check().condition is Condition.READY
    own = {"from": [{"podSelector": {"matchLabels": {"ray.io/cluster": "mine"}}}]}
    dashboard = {"ports": [{"protocol": "TCP", "port": 8265}]}
    for path, kind, ingress in zip(paths, ("worker", "head"), ([own], [own, dashboard]), strict=True):
        there = kube.made(path)
        labels = {"ray.io/cluster": "mine", "ray.io/node-type": kind}
        assert there["spec"] == {
            "podSelector": {"matchLabels": labels},
            "policyTypes": ["Ingress"],
            "ingress": ingress,
        }
    kube.made(paths[0])["spec"]["ingress"] = [{}]
    assert policies.check().condition is Condition.MISSING
    kube.objects[paths[1]] = {"metadata": {"name": "mine-head", "managedFields": []}}
    policies.undo(lambda _: None)
    assert kube.deleted == paths[:1]


# --- KubeRay's operator ----------------------------------------------------------------------

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
