"""Tests `up --context --create`: a RayCluster of ours in a Kubernetes of others, and nothing left of it."""

from __future__ import annotations

import json
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from bootstrap import docker_engine
from bootstrap.kube import operator, rights
from bootstrap.kube.api import CORE, RAY, Kube
from bootstrap.kube.rights import Rule
from bootstrap.settings import ROOT
from bootstrap.steps import kind_cluster
from bootstrap.steps.package_index import FOLDER
from rayside.connection.heads import head_selector
from rayside.errors import Forbidden
from rayside.waiting import until
from tests.e2e.conftest import NAME
from tests.e2e.conftest import kube as kube_of
from tests.e2e.test_kind_stack import DEFINITIONS, RIGHTS, allow, kubectl
from tests.e2e.test_kind_stack import user as client
from tests.integration.bootstrap.test_their_ray import both_stop
from tests.integration.conftest import Rayside, apart
from tests.integration.connect_proxy import ConnectProxy, connect_proxy
from tests.package_index import PASSWORD, USER, Served, served, wheel
from tests.patience import PATIENCE

POLICIES = "/apis/networking.k8s.io/v1"


def grant(kube: Kube, name: str, rules: Sequence[Rule], *, namespace: str = "") -> None:
    """Gives the account `few` of the namespace `default` a ClusterRole with these rules, and no other.

    With a namespace, it gives a Role of that namespace.
    """
    version, kind = f"{RIGHTS}/v1", "Role" if namespace else "ClusterRole"
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    listed = [
        {"apiGroups": [rule.group], "resources": [rule.resource], "verbs": list(rule.verbs)} for rule in rules
    ]
    role = {"apiVersion": version, "kind": kind, "metadata": metadata, "rules": listed}
    bound = {
        "apiVersion": version,
        "kind": f"{kind}Binding",
        "metadata": metadata,
        "roleRef": {"apiGroup": RIGHTS, "kind": kind, "name": name},
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
    # Those that other tests have deleted may still be going.
    namespaces = {
        item["metadata"]["name"]
        for item in kube.items(f"{CORE}/namespaces")
        if "deletionTimestamp" not in item["metadata"]
    }
    pods = [item["metadata"] for item in kube.items(f"{CORE}/pods")]
    return {
        "namespaces": sorted(namespaces),
        "custom resources": sorted((each["name"], each["resourceVersion"]) for each in definitions),
        "operator": (metadata["uid"], metadata["generation"], present.deployment["spec"]),
        "ray clusters": sorted(item["metadata"]["uid"] for item in kube.items(f"{RAY}/rayclusters")),
        "pods": sorted(each["uid"] for each in pods if each["namespace"] in namespaces),
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


def gateway(name: str) -> str:
    """Returns the address by which the containers of a kind cluster reach this machine."""
    with docker_engine.connected() as client:
        (node,) = kind_cluster.containers(client, name)
        (network,) = node.attrs["NetworkSettings"]["Networks"].values()
        return str(network["Gateway"])


@pytest.fixture
def company(up: Rayside, tmp_path: Path) -> Iterator[Served]:
    """Provides an index that pods reach, with a package of the test's own and with uv, which Ray installs."""
    version = re.search(r"^uv==(\S+)", (ROOT / "requirements" / "uv.txt").read_text(), re.MULTILINE)
    assert version
    wheels = tmp_path / "wheels"
    download = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    subprocess.run([*download, "--dest", str(wheels), f"uv=={version[1]}"], check=True)
    files = [wheel(tmp_path, "company_thing", "1.5"), *wheels.iterdir()]
    with served(tmp_path / "index", gateway(NAME), files) as index:
        yield index


@pytest.fixture
def proxy(up: Rayside) -> Iterator[ConnectProxy]:
    with connect_proxy(gateway(NAME), f"{USER}:{PASSWORD}") as proxy:
        yield proxy


def packages_are_the_companys(
    user: Rayside, kube: Kube, index: Served, proxy: ConnectProxy, folder: Path
) -> None:
    """Has jobs install a package by pip and by uv, for the driver and a worker; no login is to be seen."""
    folder.mkdir()
    (folder / "main.py").write_text(
        "import company_thing, ray\n"
        "@ray.remote\n"
        "def version():\n"
        "    import company_thing\n"
        "    return company_thing.VERSION\n"
        "ray.init()\n"
        "print(f'versions {company_thing.VERSION} {ray.get(version.remote())}')\n"
    )
    for tool in ("pip", "uv"):
        index.asked.clear()
        proxy.targets.clear()
        done = with_packages(user, folder, tool, "company-thing")
        assert "versions 1.5 1.5" in done.stdout, done.stdout + done.stderr
        assert "/files/company_thing-1.5-py3-none-any.whl" in index.asked
        assert any("/files/uv-" in path for path in index.asked) == (tool == "uv")
        # What Ray asks of other pods goes by no proxy.
        assert set(proxy.targets) == {index.host}
    told = [
        json.dumps(each) for each in (user.json("status"), kube.pods(""), kube.ray("rayclusters", "rayside"))
    ]
    archive = folder / "archive.zip"
    assert user.run("diagnose", "--archive", str(archive)).returncode == 0
    with zipfile.ZipFile(archive) as opened:
        told += [opened.read(name).decode() for name in opened.namelist()]
    assert index.host in told[0]
    assert not any(form in text for text in told for form in (PASSWORD, quote(PASSWORD, safe="")))


def a_login_that_is_refused_is_told(
    up: Rayside, user: Rayside, kube: Kube, index: Served, folder: Path
) -> None:
    """Has a job fail for the login that `up` has told the pods of, in the pods that are there."""
    head = kube.pods(head_selector("rayside"))[0]["metadata"]["name"]
    read = ["-n", kube.namespace, "exec", head, "-c", "ray-head", "--", "cat", f"{FOLDER}/pip.conf"]
    assert until(lambda: "not%20it" in kubectl(up, *read), bool, 180)
    done = with_packages(user, folder, "pip", "company-thing==1.5")
    assert "error[job-failed]" in done.stderr, done.stdout + done.stderr
    finding = user.json("diagnose")["findings"][0]
    assert finding["why"].startswith("the package index, or the proxy to it, can't be used: 401 Error")
    assert "package_index" in finding["hint"]


def with_packages(
    user: Rayside, folder: Path, tool: str, requirement: str
) -> subprocess.CompletedProcess[str]:
    """Submits main.py with a package that pip or uv installs, and returns how it ended."""
    environment = folder.with_suffix(".yaml")
    environment.write_text(f"{tool}: ['{requirement}']\n")
    submit = ["submit", "--working-dir", str(folder), "--runtime-env", str(environment), "--wait"]
    return user.run(*submit, "--entrypoint", "python main.py", timeout=300)


@pytest.mark.timeout(1200)
def test_one_with_the_documented_rights_makes_a_ray_cluster_debugs_in_it_and_leaves_nothing(
    up: Rayside, few: Kube, tmp_path: Path, company: Served, proxy: ConnectProxy
) -> None:
    folder = Path(tempfile.mkdtemp(prefix="rs-", dir="/tmp"))
    folder.rmdir()
    theirs = kube_of(up)
    demo = replace(theirs, namespace=f"demo-{secrets.token_hex(3)}")
    index = {"package_index": company.url(), "package_index_ca": str(company.authority)}
    user = Rayside(apart(folder, source="packages", ray_workers=1, package_proxy=proxy.url(), **index))
    user.environment_too["KUBECONFIG"] = str(few.kubeconfig)
    bring = ["up", "--context", "few", "--create", "--namespace", demo.namespace, "--no-example"]

    # The lack of a right is said with what cures it, before anything is made.
    grant(theirs, "few", (*rights.NAMESPACE, rights.LOOK))
    done = user.run(*bring)
    assert (done.returncode, "create, patch, delete secrets" in done.stderr) == (4, True), done.stderr
    assert not folder.exists()
    grant(theirs, "few", (*rights.STACK, *rights.NAMESPACE, rights.LOOK))
    before = standing(theirs)
    try:
        assert until(lambda: user.run(*bring, timeout=600).returncode == 0, bool, PATIENCE), user.run(
            *bring
        ).stderr
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

        packages_are_the_companys(user, demo, company, proxy, tmp_path / "packages")
        refused = {"INVOKE_RAYSIDE_PACKAGE_INDEX": company.url("not it")}
        assert user.run(*bring, env=refused).returncode == 0
        both_stop(user, tmp_path)
        a_login_that_is_refused_is_told(up, user, demo, company, tmp_path / "packages")
        other = user.run(*bring, env={"INVOKE_RAYSIDE_PACKAGE_INDEX": ""})
        assert "package_index is set, the settings say not set" in other.stderr
    finally:
        done = user.run("down", timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not folder.exists()
    assert standing(theirs) == before
    shutil.rmtree(folder, ignore_errors=True)


def policies_of(kube: Kube) -> str:
    return f"{POLICIES}/namespaces/{kube.namespace}/networkpolicies"
