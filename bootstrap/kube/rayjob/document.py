"""The documents of RayJobs: a user's own file checked, and those that Rayside submits.

What KubeRay accepts is in its ray-operator/controllers/ray/utils/validation.go (1.6.2).
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bootstrap import yaml_file
from bootstrap.errors import (
    InvalidYaml,
    JobFailed,
    NotARayJob,
    NotInteractive,
    RaysideError,
    SubmissionFailed,
)
from bootstrap.instance import Instance
from bootstrap.ray.runtime_env import checked
from bootstrap.settings import ROOT

TEMPLATE = ROOT / "k8s" / "ray-job.yaml"
API_VERSION = "ray.io/v1"
# KubeRay gives it to the pods and Secrets of a RayCluster, and takes it in a clusterSelector.
CLUSTER_LABEL = "ray.io/cluster"
# Ray sends what it is used for to its makers, unless this is 0
# (https://docs.ray.io/en/latest/cluster/usage-stats.html).
USAGE_REPORT = "RAY_USAGE_STATS_ENABLED"

# KubeRay gives it to the RayCluster that a RayJob makes, and not to that cluster's pods (constant.go).
_ORIGIN_LABEL = "ray.io/originated-from-cr-name"
# An RFC 1035 label that leaves room for what KubeRay adds to it (validation.go, constant.go).
_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_LONGEST_NAME = 47
# The example has the workspace's password from this Secret, which is that of the instance `rayside`.
_EXAMPLES_SECRET = "rayside-workspace"
_EXAMPLE = "example/ray-job.interactive-mode.yaml shows one"


def load(file: Path, namespace: str) -> dict[str, Any]:
    """Reads the RayJob in a user's YAML file, and checks that it can be submitted in `namespace`.

    Raises InvalidYaml, NotARayJob, NotInteractive.
    """
    document = yaml_file.read(file)
    if document is None:
        raise InvalidYaml(f"{file} is empty", hint="write a RayJob into it")
    if not isinstance(document, dict):
        raise NotARayJob(f"{file} is not a RayJob but a {type(document).__name__}", hint=_EXAMPLE)
    kind, version = document.get("kind"), document.get("apiVersion")
    if (kind, version) != ("RayJob", API_VERSION):
        raise NotARayJob(
            f"{file} is a {kind or 'document without a kind'} of {version or 'no apiVersion'}, "
            f"not a RayJob of {API_VERSION}",
            hint=_EXAMPLE,
        )
    metadata, spec = _mapping(document, "metadata", file), _mapping(document, "spec", file)
    _check_name(metadata, file)
    if metadata.get("namespace") not in (None, namespace):
        raise NotARayJob(
            f"{file} is for the namespace {metadata['namespace']}, and Rayside works in {namespace}",
            hint="remove metadata.namespace, or set the namespace in invoke.yaml",
        )
    mode = spec.get("submissionMode", "K8sJobMode")
    if mode != "InteractiveMode":
        raise NotInteractive(
            f"the RayJob in {file} has the submissionMode {mode}, which does not wait for a submission",
            hint="set submissionMode: InteractiveMode in its spec",
        )
    if spec.get("backoffLimit") not in (None, 0):
        raise NotInteractive(
            f"the RayJob in {file} has backoffLimit {spec['backoffLimit']}, which needs another mode",
            hint="set backoffLimit: 0 in its spec",
        )
    _check_cluster(spec, file)
    runtime_env(document)
    return document


def for_standing_cluster(submission_id: str, instance: Instance) -> dict[str, Any]:
    """Returns the RayJob for a job on the instance's RayCluster, which is there already."""
    document = dict(yaml_file.read(TEMPLATE))
    document["metadata"] = {"name": object_name(submission_id), "labels": instance.labels}
    document["spec"] = {**document["spec"], "clusterSelector": {CLUSTER_LABEL: instance.ray_cluster}}
    return document


def object_name(submission_id: str) -> str:
    """Returns the RayJob's name for a submission id, which Ray lets be anything: its end, made valid."""
    name = re.sub("[^a-z0-9]+", "-", submission_id.lower())[-_LONGEST_NAME:].strip("-")
    return name if _NAME.fullmatch(name) else f"job-{name}"[:_LONGEST_NAME].rstrip("-")


def runtime_env(rayjob: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the runtime_env in a RayJob's runtimeEnvYAML. Raises InvalidYaml."""
    text = rayjob["spec"].get("runtimeEnvYAML")
    where = f"runtimeEnvYAML of the RayJob {rayjob['metadata']['name']}"
    if not isinstance(text, str | None):
        raise InvalidYaml(
            f"{where} is not a text", hint="write `runtimeEnvYAML: |`, and its fields below that"
        )
    return checked(yaml_file.parse(text or "", where), where)


def own_head_selector(name: str) -> str:
    """Returns the labels of the head pod that the RayJob of that name makes, once submitted here."""
    return f"{_ORIGIN_LABEL}={name},ray.io/node-type=head"


def problem(rayjob: Mapping[str, Any]) -> RaysideError | None:
    """Returns why KubeRay gave the RayJob up; None where it did not."""
    name, status = rayjob["metadata"]["name"], rayjob.get("status") or {}
    if status.get("jobDeploymentStatus") not in ("Failed", "ValidationFailed"):
        return None
    reason = ": ".join(status[key] for key in ("reason", "message") if status.get(key)) or "it gave no reason"
    if status.get("reason") == "AppFailed":
        job = status.get("jobId") or "ID"
        return JobFailed(
            f"RayJob {name} failed: {reason}", hint=f"./invokew logs --job {job} shows its output"
        )
    return SubmissionFailed(f"KubeRay gave RayJob {name} up: {reason}", hint="correct what it names")


def with_own_cluster(rayjob: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a RayJob that makes its own cluster, as it is submitted.

    It gets a label by which a forward finds the head pod before its cluster has a name, and no
    usage report of Ray, unless the RayJob itself says anything of it.
    """
    changed = copy.deepcopy(dict(rayjob))
    cluster = changed["spec"]["rayClusterSpec"]
    template = cluster.setdefault("headGroupSpec", {}).setdefault("template", {})
    labels = template.setdefault("metadata", {}).setdefault("labels", {})
    labels[_ORIGIN_LABEL] = rayjob["metadata"]["name"]
    for pod in own_pods(changed):
        for container in (pod.get("containers") or [])[:1]:  # KubeRay takes the first for Ray's
            variables = container.get("env") or []
            if not any(variable.get("name") == USAGE_REPORT for variable in variables):
                container["env"] = [*variables, {"name": USAGE_REPORT, "value": "0"}]
    return changed


def own_pods(rayjob: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the specifications of the pods of a RayJob's own cluster: of the head, then of the workers."""
    cluster = rayjob["spec"]["rayClusterSpec"]
    groups = (cluster.get("headGroupSpec") or {}, *(cluster.get("workerGroupSpecs") or []))
    return [(group.get("template") or {}).get("spec") or {} for group in groups]


def with_workspace_secret(rayjob: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Returns a RayJob in which the Secret that the example names is this one, of the cluster that is up."""
    changed = copy.deepcopy(dict(rayjob))
    head = changed["spec"]["rayClusterSpec"].get("headGroupSpec") or {}
    for container in ((head.get("template") or {}).get("spec") or {}).get("containers") or []:
        for variable in container.get("env") or []:
            reference = (variable.get("valueFrom") or {}).get("secretKeyRef") or {}
            if reference.get("name") == _EXAMPLES_SECRET:
                reference["name"] = name
    return changed


def asks_for_token(rayjob: Mapping[str, Any]) -> bool:
    """Returns whether the job's cluster asks for a token; the standing cluster always does."""
    own_cluster = rayjob["spec"].get("rayClusterSpec")
    return own_cluster is None or (own_cluster.get("authOptions") or {}).get("mode") == "token"


def _mapping(document: Mapping[str, Any], key: str, file: Path) -> Mapping[str, Any]:
    value = document.get(key)
    if not isinstance(value, dict):
        raise NotARayJob(f"the RayJob in {file} has no {key}", hint=_EXAMPLE)
    return value


def _check_name(metadata: Mapping[str, Any], file: Path) -> None:
    name = metadata.get("name")
    if not name:
        generated = ", only a generateName" if "generateName" in metadata else ""
        raise NotARayJob(
            f"the RayJob in {file} has no name{generated}",
            hint="set metadata.name: without it the RayJob can't be found again",
        )
    if not isinstance(name, str) or len(name) > _LONGEST_NAME or not _NAME.fullmatch(name):
        raise NotARayJob(
            f"the RayJob in {file} has the name {name!r}, which KubeRay refuses",
            hint=f"use at most {_LONGEST_NAME} lower-case letters, digits and hyphens, a letter first",
        )


def _check_cluster(spec: Mapping[str, Any], file: Path) -> None:
    selector, own_cluster = spec.get("clusterSelector"), spec.get("rayClusterSpec")
    if not selector and not own_cluster:
        raise NotARayJob(
            f"the RayJob in {file} has neither a rayClusterSpec nor a clusterSelector",
            hint=f"name a cluster (clusterSelector: {{{CLUSTER_LABEL}: NAME}}), or describe one",
        )
    if selector and own_cluster:
        raise NotARayJob(
            f"the RayJob in {file} has both a rayClusterSpec and a clusterSelector",
            hint="remove one of them",
        )
    if selector and not (isinstance(selector, dict) and selector.get(CLUSTER_LABEL)):
        raise NotARayJob(
            f"the clusterSelector of the RayJob in {file} names no cluster",
            hint=f"write clusterSelector: {{{CLUSTER_LABEL}: NAME}}",
        )
    if own_cluster and not isinstance(own_cluster, dict):
        raise NotARayJob(f"the rayClusterSpec of the RayJob in {file} is not a mapping", hint=_EXAMPLE)
