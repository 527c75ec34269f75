"""Tests `up --context --create`: a RayCluster of ours in a Kubernetes of others, and nothing left of it."""

from __future__ import annotations

import secrets
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bootstrap.errors import Forbidden
from bootstrap.kube import operator, rights
from bootstrap.kube.api import CORE, RAY, Kube
from bootstrap.kube.rights import Rule
from bootstrap.step import until
from tests.e2e.conftest import kube as kube_of
from tests.e2e.test_kind_stack import DEFINITIONS, RIGHTS, allow, kubectl
from tests.e2e.test_kind_stack import user as client
from tests.integration.conftest import Rayside, apart
from tests.integration.test_their_ray import both_stop

POLICIES = "/apis/networking.k8s.io/v1"
# To see that a namespace is empty takes a look at all that can be in it.
LOOK = Rule("*", "*", ("list",))


def grant(kube: Kube, name: str, rules: Sequence[Rule]) -> None:
    """Gives the account `few` of the namespace `default` a ClusterRole with these rules, and no other."""
    version = f"{RIGHTS}/v1"
    listed = [
        {"apiGroups": [rule.group], "resources": [rule.resource], "verbs": list(rule.verbs)} for rule in rules
    ]
    role = {"apiVersion": version, "kind": "ClusterRole", "metadata": {"name": name}, "rules": listed}
    bound = {
        "apiVersion": version,
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": RIGHTS, "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": "few", "namespace": "default"}],
    }
    for document in (role, bound):
        kube.apply(document)


@pytest.fixture
def few(up: Rayside, tmp_path: Path) -> Iterator[Kube]:
    """Yields the API for an account that has no right yet, whose ClusterRole is called as the account."""
    allow(up, "default")
    yield client(up, tmp_path, kubectl(up, "create", "token", "few", "-n", "default"), "default")
    for kind in ("clusterrolebindings", "clusterroles"):
        kube_of(up).delete(f"/apis/{RIGHTS}/v1/{kind}/few")


def standing(kube: Kube) -> dict[str, Any]:
    """Returns what others have: namespaces, custom resources and the operator with their revisions, pods."""
    present = operator.installed(kube)
    assert present is not None
    metadata = present.deployment["metadata"]
    definitions = [item["metadata"] for item in kube.items(DEFINITIONS)]
    return {
        "namespaces": sorted(item["metadata"]["name"] for item in kube.items(f"{CORE}/namespaces")),
        "custom resources": sorted((each["name"], each["resourceVersion"]) for each in definitions),
        "operator": (metadata["uid"], metadata["generation"], present.deployment["spec"]),
        "ray clusters": sorted(item["metadata"]["uid"] for item in kube.items(f"{RAY}/rayclusters")),
        "pods": sorted(item["metadata"]["uid"] for item in kube.items(f"{CORE}/pods")),
        "policies": kube.items(f"{POLICIES}/networkpolicies"),
        "roles": sorted(item["metadata"]["name"] for item in kube.items(f"/apis/{RIGHTS}/v1/clusterroles")),
    }


def refused_pod(kube: Kube) -> str:
    """Returns why the namespace does not take a pod that says nothing of its rights."""
    containers = [{"name": "one", "image": "rayside/ray:current"}]
    metadata = {"name": "any", "namespace": kube.namespace}
    with pytest.raises(Forbidden) as raised:
        kube.apply(
            {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": containers}}
        )
    return raised.value.message


@pytest.mark.timeout(900)
def test_one_with_the_documented_rights_makes_a_ray_cluster_debugs_in_it_and_leaves_nothing(
    up: Rayside, few: Kube, tmp_path: Path
) -> None:
    folder = Path(tempfile.mkdtemp(prefix="rs-", dir="/tmp"))
    folder.rmdir()
    theirs = kube_of(up)
    demo = replace(theirs, namespace=f"demo-{secrets.token_hex(3)}")
    user = Rayside(apart(folder, source="packages", ray_workers=1))
    user.environment_too["KUBECONFIG"] = str(few.kubeconfig)
    bring = ["up", "--context", "few", "--create", "--namespace", demo.namespace, "--no-example"]

    # The lack of a right is said with what cures it, before anything is made.
    grant(theirs, "few", (*rights.NAMESPACE, LOOK))
    done = user.run(*bring)
    assert (done.returncode, "create, patch, delete secrets" in done.stderr) == (4, True), done.stderr
    assert not folder.exists()
    grant(theirs, "few", (*rights.STACK, *rights.NAMESPACE, LOOK))
    before = standing(theirs)
    try:
        assert until(lambda: user.run(*bring, timeout=600).returncode == 0, bool, 20), user.run(*bring).stderr
        assert "Nothing to change" in user.run(*bring).stdout
        assert user.is_ready()

        namespace = theirs.get(f"{CORE}/namespaces/{demo.namespace}")
        assert namespace is not None
        assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
        assert 'violates PodSecurity "restricted' in refused_pod(demo)
        own = {"from": [{"podSelector": {"matchLabels": {"ray.io/cluster": "rayside"}}}]}
        dashboard = {"ports": [{"protocol": "TCP", "port": 8265}]}
        assert {item["metadata"]["name"]: item["spec"] for item in demo.items(policies_of(demo))} == {
            f"rayside-{kind}": {
                "podSelector": {"matchLabels": {"ray.io/cluster": "rayside", "ray.io/node-type": kind}},
                "policyTypes": ["Ingress"],
                "ingress": ingress,
            }
            for kind, ingress in (("worker", [own]), ("head", [own, dashboard]))
        }
        labels = [pod["metadata"]["labels"] for pod in demo.pods("ray.io/cluster=rayside")]
        assert sorted(label["ray.io/node-type"] for label in labels) == ["head", "worker"]

        both_stop(user, tmp_path)
    finally:
        done = user.run("down", timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not folder.exists()
    assert standing(theirs) == before
    shutil.rmtree(folder, ignore_errors=True)


def policies_of(kube: Kube) -> str:
    return f"{POLICIES}/namespaces/{kube.namespace}/networkpolicies"
