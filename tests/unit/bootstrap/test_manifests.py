"""Tests that the containers of our manifests may do nothing that they do not need."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import yaml

from bootstrap.kube.rayjob.document import for_standing_cluster, with_own_cluster
from bootstrap.settings import ROOT, Settings
from rayside.relay.config import Config, Masking
from tests.instances import instance
from tests.targets import kind_target

# The head of this lab's own RayCluster has an autoscaler beside it, which may change that RayCluster's pods.
AUTOSCALING = "example/labs/20-autoscaling/"
# The images of this lab's pods come from a registry of its own, which is a pod beside them.
AIR_GAP = "example/labs/21-air-gap/"
FILES = sorted([*(ROOT / "k8s").rglob("*.y*ml"), *(ROOT / "example").rglob("*.y*ml")])


@cache
def manifests() -> dict[str, dict[str, Any]]:
    """Returns the manifests by file, and as they are sent where something is put in."""
    documents = {str(file.relative_to(ROOT)): yaml.safe_load(file.read_text()) for file in FILES}
    target = kind_target(Settings(target="kind", source="upstream"))
    step = next(step for step in target.steps() if step.name == "ray-cluster")
    documents["the RayCluster"] = step.manifest()  # type: ignore[attr-defined]
    documents["the example's RayJob"] = with_own_cluster(documents["example/ray-job.interactive-mode.yaml"])
    documents["a job on the RayCluster"] = for_standing_cluster("mine", instance())
    return documents


def pods(document: Any) -> Iterator[dict[str, Any]]:
    """Yields every pod's spec, wherever it is."""
    if isinstance(document, dict):
        if "containers" in document:
            yield document
        for value in document.values():
            yield from pods(value)
    if isinstance(document, list):
        for value in document:
            yield from pods(value)


POD_SPECS = [
    pytest.param(pod, id=f"{name}: {pod['containers'][0]['name']}")
    for name, document in manifests().items()
    for pod in pods(document)
]
CONTAINERS = [
    pytest.param(pod, container, id=f"{name}: {container['name']}")
    for name, document in manifests().items()
    for pod in pods(document)
    for kind in ("initContainers", "containers", "ephemeralContainers")
    for container in pod.get(kind, [])
]


def test_the_pods_relay_gets_what_is_to_be_masked() -> None:
    masked = {"masked_names": "*iban*", "masked_values": "x+", "mask_by_value": True}
    settings = Settings(target="kind", source="upstream", **masked)  # type: ignore[arg-type]
    step = next(step for step in kind_target(settings).steps() if step.name == "ray-cluster")
    (relay,) = [
        container
        for pod in pods(step.manifest())  # type: ignore[attr-defined]
        for container in pod["containers"]
        if container["name"] == "relay"
    ]
    environment = {variable["name"]: variable["value"] for variable in relay["env"]}
    assert Config.read(ROOT / "image" / "workspace" / "relay.json", environment).masking == Masking(
        "*iban*", "x+", by_value=True
    )


def test_the_containers_of_every_manifest_are_looked_at() -> None:
    container_names = [parameters.values[1]["name"] for parameters in CONTAINERS]  # type: ignore[index]
    of_labs = {"greedy", "loader", "reporter", "native", "registry", "batch", "spilling"}
    of_ray = [name for name in container_names if name not in of_labs]
    labs = [*["ray-head", "relay"] * 2, *["ray-head", "ray-worker"] * 2]  # each with its solution
    whole = ["ray-head", "workspace", "relay", "ray-worker"]
    beside_theirs = ["workspace", "relay"]
    assert sorted(of_ray) == sorted([*labs, *whole * 4, *beside_theirs, "door"])
    assert of_labs <= set(container_names)


@pytest.mark.parametrize(
    "pod",
    [
        spec
        for spec in POD_SPECS
        if not (str(spec.id).startswith(AUTOSCALING) and str(spec.id).endswith(": ray-head"))
        # A workshop's front door keeps whose each place is, in one Secret: test_front_door.py.
        and not str(spec.id).startswith("k8s/front-door.yaml")
    ],
)
def test_no_pod_has_a_right_in_kubernetes(pod: dict[str, Any]) -> None:
    assert pod.get("automountServiceAccountToken") is False
    assert "serviceAccountName" not in pod


@pytest.mark.parametrize("name", [name for name in manifests() if not name.startswith(AUTOSCALING)])
def test_no_autoscaler_is_asked_for_which_would_need_such_rights(name: str) -> None:
    text = yaml.safe_dump(manifests()[name])
    assert "enableInTreeAutoscaling" not in text
    assert "autoscalerOptions" not in text


@pytest.mark.parametrize("pod", POD_SPECS)
def test_no_pod_has_a_part_of_its_node(pod: dict[str, Any]) -> None:
    assert not {"hostNetwork", "hostPID", "hostIPC", "hostUsers"} & pod.keys()
    # Pod Security's `restricted` takes these kinds, and some more.
    kinds = {kind for volume in pod.get("volumes", []) for kind in volume.keys() - {"name"}}
    assert kinds <= {"configMap", "emptyDir", "projected", "secret"}


@pytest.mark.parametrize(("pod", "container"), CONTAINERS)
def test_no_container_has_a_capability_or_can_get_one(pod: dict[str, Any], container: dict[str, Any]) -> None:
    # A container's setting wins over its pod's, key by key
    # (https://kubernetes.io/docs/tasks/configure-pod-container/security-context/).
    security = {**pod.get("securityContext", {}), **container.get("securityContext", {})}
    assert security["runAsNonRoot"] is True
    assert security["runAsUser"] > 0
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    assert security["allowPrivilegeEscalation"] is False
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert not security.get("privileged")


@pytest.mark.parametrize(
    ("container", "name"), [pytest.param(each.values[1], each.id, id=each.id) for each in CONTAINERS]
)
def test_no_image_is_pulled_from_a_registry_beyond_the_node(container: Any, name: str) -> None:
    if name.startswith(AIR_GAP) and name.endswith(": batch"):
        # Nobody can have a name below `invalid` (RFC 6761, section 6.4).
        assert container["image"].partition("/")[0] in ("127.0.0.1:30500", "registry.invalid")
    else:
        assert container["image"].startswith("rayside/")
        assert container["imagePullPolicy"] == "Never"


def test_rays_usage_report_is_off_in_a_cluster_that_a_rayjob_makes_unless_it_says_otherwise() -> None:
    def container(*variables: dict[str, str]) -> dict[str, Any]:
        containers = [{"name": "ray", "env": list(variables)}, {"name": "x"}]
        return {"template": {"spec": {"containers": containers}}}

    theirs, other = {"name": "RAY_USAGE_STATS_ENABLED", "value": "1"}, {"name": "A", "value": "b"}
    own = {"headGroupSpec": container(other), "workerGroupSpecs": [container(), container(theirs)]}
    document = {"metadata": {"name": "mine"}, "spec": {"rayClusterSpec": own}}
    cluster = with_own_cluster(document)["spec"]["rayClusterSpec"]
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    off = {"name": "RAY_USAGE_STATS_ENABLED", "value": "0"}
    assert [group["template"]["spec"]["containers"][0]["env"] for group in groups] == [
        [other, off],
        [off],
        [theirs],
    ]
    assert [group["template"]["spec"]["containers"][1] for group in groups] == [{"name": "x"}] * 3
    assert own["headGroupSpec"] == container(other)


@pytest.mark.parametrize("name", ["Dockerfile", "upstream.Dockerfile"])
def test_rays_usage_report_is_off_in_every_image_of_ours_that_has_ray(name: str) -> None:
    final = (ROOT / "image" / "ray" / name).read_text().rpartition("FROM")[2]
    assert "ENV RAY_USAGE_STATS_ENABLED=0 RAY_USAGE_STATS_REPORT_URL=http://localhost:9\n" in final
    # It leads to itself.
    assert final.count("ray_bootstrap_config.yaml") == 2
