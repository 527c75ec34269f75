"""RayJob documents: validation of a user's own file, and the documents that Rayside submits.

KubeRay's own validation is in its ray-operator/controllers/ray/utils/validation.go (1.6.2).
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bootstrap.errors import NotARayJob, NotInteractive
from bootstrap.instance import Instance
from bootstrap.settings import ROOT
from rayside import yaml_file
from rayside.errors import InvalidYaml, JobFailed, RaysideError, SubmissionFailed
from rayside.ray.records import ENDED, Job, read_job
from rayside.ray.runtime_env import checked

TEMPLATE = ROOT / "k8s" / "ray-job.yaml"
API_VERSION = "ray.io/v1"
# KubeRay's label of the pods and Secrets of a RayCluster, also for a clusterSelector.
CLUSTER_LABEL = "ray.io/cluster"
# Ray sends usage reports to its makers, unless this is 0
# (https://docs.ray.io/en/latest/cluster/usage-stats.html).
USAGE_REPORT = "RAY_USAGE_STATS_ENABLED"
# Kueue admits objects with this label through the queue of that name (https://kueue.sigs.k8s.io/docs/tasks/run/rayjobs/).
_QUEUE_LABEL = "kueue.x-k8s.io/queue-name"

# KubeRay's label of the RayCluster that a RayJob makes, but not of that cluster's pods (constant.go).
_ORIGIN_LABEL = "ray.io/originated-from-cr-name"
# An RFC 1035 label that leaves room for KubeRay's suffixes (validation.go, constant.go).
_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_LONGEST_NAME = 47
# Secret of the workspace's password in the example; it belongs to the instance `rayside`.
_EXAMPLES_SECRET = "rayside-workspace"
_EXAMPLE = "example/ray-job.interactive-mode.yaml shows one"
# Types of the fields that Rayside reads; KubeRay checks the others. A mapping lists some of the fields.
_ENV: dict[str, Any] = {"valueFrom": {"secretKeyRef": {}}}
_POD = {"containers": [{"env": [_ENV], "volumeMounts": [{}]}], "volumes": [{}]}
_GROUP = {"template": {"metadata": {"labels": {}}, "spec": _POD}}
_CLUSTER = {"authOptions": {}, "headGroupSpec": _GROUP, "workerGroupSpecs": [_GROUP]}
_FIELDS: dict[str, Any] = {
    "metadata": {"labels": {}},
    "spec": {
        "entrypoint": str,
        "entrypointNumCpus": (int, float),
        "entrypointNumGpus": (int, float),
        "entrypointResources": str,
        "metadata": {},
        "clusterSelector": {},
        "rayClusterSpec": _CLUSTER,
    },
}


def load(file: Path, namespace: str) -> dict[str, Any]:
    """Reads the RayJob in a user's YAML file, and checks that it can be submitted in `namespace`.

    The file may hold other objects, too: `beside` returns them.
    Raises InvalidYaml, NotARayJob, NotInteractive.
    """
    document = _the_rayjob(file)
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
    document = dict(_checked(document, _FIELDS, file))
    if not asks_for_token(document):
        raise NotARayJob(
            f"the RayJob in {file} makes a Ray cluster that asks for no token: whoever reaches it can run "
            "programs there",
            hint="set authOptions: {mode: token} in its rayClusterSpec (Ray 2.52 or later)",
        )
    runtime_env(document)
    reserved(document)
    return document


def beside(file: Path) -> list[dict[str, Any]]:
    """Returns the objects beside the RayJob in its file."""
    return [each for each in yaml_file.read_all(file) if each.get("kind") != "RayJob"]


def for_standing_cluster(submission_id: str, instance: Instance) -> dict[str, Any]:
    """Returns the RayJob for a job on the instance's existing RayCluster."""
    document = dict(yaml_file.read(TEMPLATE))
    document["metadata"] = {"name": object_name(submission_id), "labels": instance.labels}
    document["spec"] = {**document["spec"], "clusterSelector": {CLUSTER_LABEL: instance.ray_cluster}}
    return document


def object_name(submission_id: str) -> str:
    """Returns the RayJob's name for a submission id, which can be any text: its end, made valid."""
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


def reserved(rayjob: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the resources that a RayJob reserves for its entrypoint, by Ray's names. Raises InvalidYaml."""
    spec = rayjob["spec"]
    text = spec.get("entrypointResources")
    try:
        resources = json.loads(text) if text else None
    except ValueError:
        resources = text
    if not isinstance(resources, dict | None):
        raise InvalidYaml(
            f"entrypointResources of the RayJob {rayjob['metadata']['name']} is no JSON object: {text}",
            hint="""write it as in entrypointResources: '{"TPU": 4}'""",
        )
    found = {
        "entrypoint_num_cpus": spec.get("entrypointNumCpus"),
        "entrypoint_num_gpus": spec.get("entrypointNumGpus"),
        "entrypoint_resources": resources,
    }
    return {name: value for name, value in found.items() if value}


def queue(rayjob: Mapping[str, Any]) -> str:
    """Returns the name of the RayJob's queue; empty without one."""
    return str((rayjob["metadata"].get("labels") or {}).get(_QUEUE_LABEL) or "")


def suspended(rayjob: Mapping[str, Any]) -> bool:
    """Returns whether KubeRay waits with the RayJob's cluster until `suspend` is false."""
    return bool(rayjob["spec"].get("suspend"))


def has_relay(rayjob: Mapping[str, Any]) -> bool:
    """Returns whether the job's cluster has a relay beside its head; the standing cluster always does."""
    if not rayjob["spec"].get("rayClusterSpec"):
        return True
    return any(each.get("name") == "relay" for each in own_pods(rayjob)[0].get("containers") or [])


def own_head_selector(name: str) -> str:
    """Returns the label selector of the head pod of a RayJob of that name, once submitted here."""
    return f"{_ORIGIN_LABEL}={name},ray.io/node-type=head"


def problem(rayjob: Mapping[str, Any]) -> RaysideError | None:
    """Returns why KubeRay gave up the RayJob; None if it did not."""
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


def ended(rayjob: Mapping[str, Any]) -> Job | None:
    """Returns the ended job from the RayJob's status, as its cluster may be gone; None before its end."""
    status = rayjob.get("status") or {}
    if status.get("jobStatus") not in ENDED:
        return None
    row = {"submission_id": status.get("jobId"), "status": status["jobStatus"]}
    return read_job({**row, "entrypoint": "", "message": status.get("message")})


def with_own_cluster(rayjob: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a RayJob that makes its own cluster, ready to be submitted.

    It gets a label with which a port forward finds the head pod before its cluster has a name; Ray's usage
    reports are off, unless the RayJob itself sets them.
    """
    changed = copy.deepcopy(dict(rayjob))
    cluster = changed["spec"]["rayClusterSpec"]
    template = cluster.setdefault("headGroupSpec", {}).setdefault("template", {})
    labels = template.setdefault("metadata", {}).setdefault("labels", {})
    labels[_ORIGIN_LABEL] = rayjob["metadata"]["name"]
    for pod in own_pods(changed):
        for container in (pod.get("containers") or [])[:1]:  # KubeRay runs Ray in the first
            variables = container.get("env") or []
            if not any(variable.get("name") == USAGE_REPORT for variable in variables):
                container["env"] = [*variables, {"name": USAGE_REPORT, "value": "0"}]
    return changed


def own_pods(rayjob: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the pod specifications of a RayJob's own cluster: head, then workers."""
    cluster = rayjob["spec"]["rayClusterSpec"]
    groups = (cluster.get("headGroupSpec") or {}, *(cluster.get("workerGroupSpecs") or []))
    return [(group.get("template") or {}).get("spec") or {} for group in groups]


def with_workspace_secret(rayjob: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Returns a RayJob with this Secret, of the running cluster, in place of the example's Secret."""
    changed = copy.deepcopy(dict(rayjob))
    head = changed["spec"]["rayClusterSpec"].get("headGroupSpec") or {}
    for container in ((head.get("template") or {}).get("spec") or {}).get("containers") or []:
        for variable in container.get("env") or []:
            reference = (variable.get("valueFrom") or {}).get("secretKeyRef") or {}
            if reference.get("name") == _EXAMPLES_SECRET:
                reference["name"] = name
    return changed


def asks_for_token(rayjob: Mapping[str, Any]) -> bool:
    """Returns whether the job's cluster requires a token; the standing cluster always does."""
    own_cluster = rayjob["spec"].get("rayClusterSpec")
    return own_cluster is None or (own_cluster.get("authOptions") or {}).get("mode") == "token"


def _the_rayjob(file: Path) -> dict[str, Any]:
    documents = yaml_file.read_all(file)
    if not documents:
        raise InvalidYaml(f"{file} is empty", hint="write a RayJob into it")
    for document in documents:
        if not isinstance(document, dict):
            raise NotARayJob(f"{file} is not a RayJob but a {type(document).__name__}", hint=_EXAMPLE)
    rayjobs = [each for each in documents if each.get("kind") == "RayJob"]
    if len(documents) > 1 and len(rayjobs) != 1:
        raise NotARayJob(
            f"{len(rayjobs)} of the {len(documents)} objects in {file} are RayJobs",
            hint="have one in the file",
        )
    return dict(*(rayjobs or documents))


def _checked(value: Any, fields: Any, file: Path, path: str = "") -> Any:
    """Returns `value` without nulls, which count as absent, in these fields. Raises NotARayJob for a type."""
    if isinstance(fields, list) and isinstance(value, list):
        return [_checked(each, fields[0], file, f"{path}[{place}]") for place, each in enumerate(value)]
    if isinstance(fields, dict) and isinstance(value, dict):
        return {
            name: _checked(each, fields[name], file, f"{path}.{name}".lstrip(".")) if name in fields else each
            for name, each in value.items()
            if each is not None or name not in fields
        }
    if isinstance(fields, list | dict) or not isinstance(value, fields):
        forms = (("a list", isinstance(fields, list)), ("a mapping", isinstance(fields, dict)))
        form = next((form for form, fits in forms if fits), "a text" if fields is str else "a number")
        raise NotARayJob(
            f"{path} of the RayJob in {file} is not {form} but a {type(value).__name__}",
            hint=f"make it {form}",
        )
    return value


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
