"""Tests KubeRay's stack in a cluster that stays: a second instance beside the first, and its undo."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from bootstrap.errors import FieldConflict
from bootstrap.instance import Instance
from bootstrap.kube import operator
from bootstrap.kube.api import CORE, RAY, Kube
from bootstrap.kube.kubeconfig import entries
from bootstrap.settings import KUBERAY_VERSION
from bootstrap.steps.forwards import Forwards
from bootstrap.steps.kuberay import CustomResources, KubeRay, OperatorManifest
from bootstrap.steps.ray_cluster import KubeRayToken, RayCluster, WorkspacePassword
from rayside.connection.instance import Ports
from rayside.errors import CredentialsRefused, Drifted, Forbidden
from rayside.steps.graph import check, down
from rayside.steps.graph import up as make
from rayside.steps.step import Condition, Step
from rayside.waiting import until
from tests.e2e.conftest import kube as kube_of
from tests.e2e.conftest import make_namespace, target
from tests.integration.bootstrap.test_forwards import Quiet
from tests.integration.conftest import Rayside, free_ports

# The forwards are meant to outlive the object that started them.
pytestmark = pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
RIGHTS = "rbac.authorization.k8s.io"


def steps_of(up: Rayside, instance: Instance) -> list[Step]:
    """Returns that instance's steps in the cluster that is up, which their undo does not remove."""
    first = target(up)
    (manifest,) = (step for step in first.steps() if isinstance(step, OperatorManifest))
    settings = replace(first.settings, ray_workers=1, ray_patience=180.0)
    second = replace(first, settings=settings, instance=instance)
    # Its Kubernetes and its images are those of the first.
    vars(second).update(kube=replace(first.kube, namespace=instance.namespace), origin=first.origin)
    return second.stack(manifest, cluster_goes=False)


def of_kind(steps: Sequence[Step], kind: type) -> Any:
    return next(step for step in steps if isinstance(step, kind))


@pytest.fixture(scope="module")
def second(up: Rayside, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    """Yields another instance's identity, in a namespace of its own."""
    folder = tmp_path_factory.mktemp("second")
    folder.chmod(0o700)
    dashboard, workspace = free_ports()
    client, relay = free_ports()
    namespace = f"second-{secrets.token_hex(3)}"
    make_namespace(kube_of(up), namespace)
    ports = Ports(dashboard, client, relay, workspace)
    yield Instance("second", "kind", namespace, kube_of(up).context, folder, ports)
    kube_of(up).delete(f"{CORE}/namespaces/{namespace}")


def pods(kube: Kube) -> set[str]:
    return {pod["metadata"]["uid"] for pod in kube.pods("")}


def names(kube: Kube, path: str) -> set[str]:
    items = kube.items(
        f"{path}/namespaces/{kube.namespace}/" + ("secrets" if path == CORE else "rayclusters")
    )
    return {item["metadata"]["name"] for item in items}


def test_a_second_instance_is_made_and_removed_beside_the_first(up: Rayside, second: Instance) -> None:
    steps, first = steps_of(up, second), kube_of(up)
    kube = replace(first, namespace=second.namespace)
    before = pods(first)
    make(steps, Quiet())
    statuses = check(steps)
    assert {status.condition for status in statuses.values()} == {Condition.READY}, statuses
    assert names(kube, RAY) == {"second"}
    assert names(kube, CORE) == {"second", "second-workspace"}
    for item in (kube.ray("rayclusters", "second"), *kube.pods("")):
        assert item is not None
        assert second.labels.items() <= item["metadata"]["labels"].items()
    token = of_kind(steps, KubeRayToken)
    assert token.dashboard().version()
    assert second.token_file.read_text() != target(up).instance.token_file.read_text()
    # Made again, nothing changes.
    assert not any(timing.changed for timing in make(steps, Quiet()))

    down(steps, Quiet())
    assert (names(kube, RAY), names(kube, CORE), pods(kube)) == (set(), set(), set())
    assert of_kind(steps, Forwards).leftovers() == []
    assert not second.token_file.exists()
    # The first needs KubeRay: it is all there, and its pods are the same.
    assert pods(first) == before
    status = up.settled_status()
    assert status["ready"], status["steps"]
    down(steps, Quiet())


def test_what_another_manager_has_set_is_named_and_stays(up: Rayside, second: Instance) -> None:
    kube = replace(kube_of(up), namespace=second.namespace)
    document: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "shared", "namespace": second.namespace},
    }
    kube.apply({**document, "data": {"ours": "1"}})
    kube.apply({**document, "data": {"ours": "2"}})  # Our own field, taken over from ourselves.
    apply = ["apply", "--server-side", "--force-conflicts", "--field-manager", "stranger", "-f", "-"]
    kubectl(up, *apply, feed=yaml.safe_dump({**document, "data": {"ours": "theirs"}}))
    with pytest.raises(FieldConflict, match=r'shared: "stranger" owns \.data\.ours'):
        kube.apply({**document, "data": {"ours": "3"}})
    shared = kube.get(f"{CORE}/namespaces/{second.namespace}/configmaps/shared")
    assert shared is not None
    assert shared["data"] == {"ours": "theirs"}


def kubectl(up: Rayside, *words: str, feed: str = "") -> str:
    command = [str(target(up).kubectl), *kube_of(up).options, *words]
    done = subprocess.run(command, input=feed, capture_output=True, text=True, check=False)
    sys.stderr.write(done.stderr)  # pytest shows it where the test fails
    done.check_returncode()
    return done.stdout


# --- rights ------------------------------------------------------------------------------


def user(up: Rayside, folder: Path, token: str, namespace: str) -> Kube:
    """Returns a client of the same API for whoever has that token."""
    first = kube_of(up)
    by_kind = entries(first.kubeconfig, first.context)
    assert by_kind is not None
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": by_kind["cluster"]}],
        "users": [{"name": "u", "user": {"token": token}}],
        "contexts": [{"name": "few", "context": {"cluster": "c", "user": "u"}}],
    }
    (folder / "kubeconfig").write_text(yaml.safe_dump(document))
    return Kube(folder / "kubeconfig", "few", namespace)


def allow(up: Rayside, namespace: str, *rules: tuple[str, str, str]) -> None:
    """Gives the account `few` a Role with these: API group, resource, verb; no other."""
    listed = [{"apiGroups": [group], "resources": [kind], "verbs": [verb]} for group, kind, verb in rules]
    metadata = {"name": "few", "namespace": namespace}
    version = f"{RIGHTS}/v1"
    role = {"apiVersion": version, "kind": "Role", "metadata": metadata, "rules": listed}
    bound = {
        "apiVersion": version,
        "kind": "RoleBinding",
        "metadata": metadata,
        "roleRef": {"apiGroup": RIGHTS, "kind": "Role", "name": "few"},
        "subjects": [{"kind": "ServiceAccount", "name": "few", "namespace": namespace}],
    }
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}
    for document in (account, role, bound):
        kube_of(up).apply(document)


def lacking(call: Callable[[], Any]) -> Forbidden | None:
    """Returns what right the call lacks, or None if it succeeds."""
    try:
        call()
    except Forbidden as error:
        return error
    return None


def lacks_another(call: Callable[[], Any], right: str) -> bool:
    return not str(lacking(call)).endswith(right)


def test_each_right_that_is_lacking_is_named_with_the_rule_that_gives_it(
    up: Rayside, second: Instance, tmp_path: Path
) -> None:
    namespace = second.namespace
    rights = [("", "namespaces", "get")]
    allow(up, namespace, *rights)
    few = user(up, tmp_path, kubectl(up, "create", "token", "few", "-n", namespace), namespace)
    password = WorkspacePassword(second, few)
    (cluster,) = (step for step in steps_of(up, second) if isinstance(step, RayCluster))
    cluster = replace(cluster, kube=few)
    work: list[tuple[Any, tuple[str, str, str]]] = [
        (password.check, ("", "secrets", "get")),
        (lambda: password.apply(lambda _: None), ("", "secrets", "patch")),
        (lambda: password.apply(lambda _: None), ("", "secrets", "create")),
        (cluster.check, ("ray.io", "rayclusters", "get")),
        (lambda: cluster.apply(lambda _: None), ("ray.io", "rayclusters", "patch")),
        (lambda: cluster.apply(lambda _: None), ("ray.io", "rayclusters", "create")),
        (lambda: few.pods(""), ("", "pods", "list")),
        (lambda: few.require("get", "pods/portforward"), ("", "pods/portforward", "get")),
    ]
    for call, (group, resource, verb) in work:
        error = lacking(call)
        assert error is not None, (verb, resource)
        right = f": {verb} {resource} in namespace {namespace}"
        assert error.message.endswith(right)
        rule = f'{{apiGroups: ["{group}"], resources: ["{resource}"], verbs: ["{verb}"]}}'
        assert error.hint == f"ask for a Role in {namespace} with the rule {rule}"
        rights.append((group, resource, verb))
        allow(up, namespace, *rights)
        # Kubernetes knows of it a moment later.
        assert until(partial(lacks_another, call, right), bool, 60)
    with pytest.raises(Forbidden, match="list deployments in the whole cluster") as caught:
        operator.installed(few)
    assert "a ClusterRole with the rule" in caught.value.hint
    down([replace(cluster, kube=replace(kube_of(up), namespace=namespace))], Quiet())


def test_credentials_that_are_refused_are_said_so(up: Rayside, tmp_path: Path) -> None:
    with pytest.raises(CredentialsRefused, match="refuses the credentials of few"):
        user(up, tmp_path, "nobody's", "default").pods("")


# --- KubeRay, ours and another's ---------------------------------------------------------


def test_what_we_installed_goes_and_what_another_installed_is_used_and_stays(
    up: Rayside, second: Instance
) -> None:
    first, steps = target(up).instance, steps_of(up, second)
    kube = kube_of(up)
    down(steps_of(up, first), Quiet())
    assert operator.installed(kube) is None
    assert kube.items(DEFINITIONS) == []
    assert pods(kube) == set()
    assert names(kube, CORE) == set()
    roles = kube.items(f"/apis/{RIGHTS}/v1/clusterroles", "app.kubernetes.io/name=kuberay")
    assert roles == []

    # One that is made for a namespace has rights in no other; it goes with the custom resources.
    there = replace(kube, namespace=second.namespace)
    own = replace(of_kind(steps, OperatorManifest), confined_to=second.namespace)
    confined: list[Step] = [CustomResources(there, own), KubeRay(there)]
    make(confined, Quiet())
    present = operator.installed(there)
    assert present is not None
    assert (present.namespace, present.made_for(second.namespace)) == (second.namespace, True)
    assert kube.items(f"/apis/{RIGHTS}/v1/clusterroles", "app.kubernetes.io/name=kuberay") == []
    assert operator.installed(kube) is None
    down(confined, Quiet())
    assert operator.installed(there) is None
    assert kube.items(DEFINITIONS) == []

    # Somebody else installs it, by their own means and in their own namespace.
    documents = of_kind(steps, OperatorManifest).documents()
    manifest = json.dumps({"apiVersion": "v1", "kind": "List", "items": documents})
    manifest = manifest.replace('"namespace": "default"', '"namespace": "kuberay-system"')
    manifest = manifest.replace(
        '"app.kubernetes.io/managed-by": "rayside"', '"app.kubernetes.io/managed-by": "them"'
    )
    version = '"app.kubernetes.io/version": "{}"'
    manifest = manifest.replace(version.format(KUBERAY_VERSION), version.format("nightly"))
    make_namespace(kube, "kuberay-system")
    kubectl(up, "apply", "--server-side", "-f", "-", feed=manifest)
    label = ["label", "deployment", "-n", "kuberay-system", "kuberay-operator", "--overwrite"]
    try:
        # Its image tells no version; then it tells one that is too old.
        with pytest.raises(Drifted, match=r"kuberay-system/kuberay-operator, .*Rayside needs 1\.6\.2"):
            make(steps, Quiet())
        kubectl(up, *label, "app.kubernetes.io/version=1.5.1")
        with pytest.raises(Drifted, match=r"is 1\.5\.1; .* newer 1\.x"):
            make(steps, Quiet())
        kubectl(up, *label, "app.kubernetes.io/version=1.7.0")
        make(steps, Quiet())
        assert "not installed by us" in check(steps)["custom-resources"].detail
        down(steps, Quiet())
        present = operator.installed(kube)
        assert present is not None
        assert (present.namespace, present.ours) == ("kuberay-system", False)
        assert len(kube.items(DEFINITIONS)) == 4
    finally:
        kubectl(up, "delete", "--wait", "-f", "-", feed=manifest)
        kube.delete(f"{CORE}/namespaces/kuberay-system")
    assert up.run("up", timeout=600).returncode == 0
    assert up.is_ready()
