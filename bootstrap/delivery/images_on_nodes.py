"""A DaemonSet by which nodes pull the images of a workshop before its first place starts, and keep them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bootstrap import cache
from bootstrap.errors import Forbidden, NotOurs
from bootstrap.instance import Instance
from bootstrap.kube import trouble
from bootstrap.kube.api import CORE, Kube, made_here, path_of
from bootstrap.kube.sizes import Size, of_pod, takes_pods
from bootstrap.settings import ROOT
from bootstrap.sources.source import Images
from bootstrap.step import Report, Status, missing, pending, ready
from bootstrap.steps.differences import SPEC, made_of
from bootstrap.steps.removal import removed
from rayside import yaml_file
from rayside.plain import line, some_of

MANIFEST = ROOT / "k8s" / "images-on-nodes.yaml"
# What does not pass by itself, as that a ServiceAccount is not there yet does.
_FORBIDS = re.compile(r"exceeded quota|violates PodSecurity|failed quota")
_LABEL = "rayside.dev/images-on-nodes"


@dataclass(frozen=True)
class ImagesOnNodes:
    """Each node to which a place may come has the images of places.

    A DaemonSet has a pod on each node, of which each container runs one of the images: so the kubelet pulls
    them, and removes none while the workshop is there. Nodes that take no pods are not waited for, and
    neither are those that have no room for this small one: no place comes to them.

    Attributes:
        instance: the cluster beside which the places are; `kube` is its namespace.
        images: those of the cluster, which the places' pods have.
    """

    instance: Instance
    kube: Kube
    images: Images
    needs: tuple[str, ...] = ()
    name: str = "images-on-nodes"
    title: str = "copy of the places' images on each node"
    # Some gigabytes go to each node, by the network of a room at worst.
    patience: float = 1800.0

    @property
    def label(self) -> str:
        """Returns the name of the DaemonSet."""
        return f"{self.instance.name}-{self.name}"

    @property
    def selector(self) -> str:
        return f"{_LABEL}={self.instance.name}"

    def check(self) -> Status:
        """Looks at the nodes and the pods.

        Raises NotOurs, and Forbidden, also where a policy or a quota forbids the pods.
        """
        daemon_set = self.kube.get(self._path)
        if daemon_set is None:
            return missing("the nodes were not asked to pull them yet")
        self._require_ours(daemon_set)
        if "deletionTimestamp" in daemon_set["metadata"]:
            return pending("the earlier one is being removed")
        if made_of(daemon_set) != self._made_of:
            return missing("the nodes were asked to pull others")
        # The DaemonSet's own numbers are of a moment ago, and they count nodes that are not ready.
        pods = {_node_of(pod): pod for pod in sorted(self.kube.pods(self.selector), key=_since)}
        pods = {name: pod for name, pod in pods.items() if self._is_current(pod)}
        nodes = {node["metadata"]["name"] for node in self.kube.items(f"{CORE}/nodes") if takes_pods(node)}
        full = sorted(name for name in nodes & pods.keys() if trouble.is_unschedulable(pods[name]))
        waiting = {
            name: pods.get(name)
            for name in sorted(nodes - {*full})
            if name not in pods or trouble.waiting(pods[name])
        }
        count = len(nodes) - len(full)
        if waiting:
            return pending(
                f"{count - len(waiting)} of {count} nodes have the images; {self._first(daemon_set, waiting)}"
            )
        left_out = f"; without room for a pod: {some_of(full)}" if full else ""
        have = {0: "no node takes pods", 1: "the node has them"}.get(count, f"all {count} nodes have them")
        return ready(f"{have}{left_out}")

    def apply(self, report: Report) -> None:
        """Makes the DaemonSet, or has it pull these images. Raises NotOurs, Forbidden, FieldConflict."""
        present = self.kube.get(self._path)
        if present is not None:
            self._require_ours(present)
        self.kube.apply(self.manifest())

    def undo(self, report: Report) -> str | None:
        """Removes it; returns what is left, where the API can't be asked."""
        try:
            if self.kube.get(self._path) is None:
                return None
        except Forbidden:  # Who may not look has not made it.
            return None
        return removed(self.kube, self._path, f"the DaemonSet {self.label}", report)

    @property
    def size(self) -> Size:
        """Returns what its pod requests of each node."""
        return of_pod(yaml_file.read(MANIFEST)["spec"]["template"]["spec"])

    def has_pod(self, pod: Mapping[str, Any]) -> bool:
        """Returns whether a pod, of whatever namespace, is one of its own."""
        metadata = pod["metadata"]
        is_labelled = (metadata.get("labels") or {}).get(_LABEL) == self.instance.name
        return is_labelled and metadata.get("namespace") == self.kube.namespace

    def manifest(self) -> dict[str, Any]:
        """Returns k8s/images-on-nodes.yaml with names, labels, images, and what it is made of."""
        document = dict(yaml_file.read(MANIFEST))
        marks = {
            "labels": {**self.instance.labels, _LABEL: self.instance.name},
            "annotations": {SPEC: json.dumps(self._made_of, sort_keys=True)},
        }
        names = {"name": self.label, "namespace": self.kube.namespace}
        document["metadata"] = {**names, **marks, **self._owner()}
        spec = document["spec"]
        spec["selector"] = {"matchLabels": {_LABEL: self.instance.name}}
        spec["template"]["metadata"] = marks
        pod = spec["template"]["spec"]
        if self.images.pull_secret:
            pod["imagePullSecrets"] = self.images.pull_secrets
        for container in pod["containers"]:
            container["image"] = getattr(self.images, container["name"])
            container["imagePullPolicy"] = self.images.pull_policy
        return document

    def _owner(self) -> dict[str, Any]:
        """Returns that it goes with the cluster, which `down` removes where no place was begun yet."""
        cluster = self.kube.ray("rayclusters", self.instance.ray_cluster)
        if cluster is None:
            return {}
        metadata = cluster["metadata"]
        owner = {"apiVersion": "ray.io/v1", "kind": "RayCluster"}
        return {"ownerReferences": [{**owner, "name": metadata["name"], "uid": metadata["uid"]}]}

    def _is_current(self, pod: Mapping[str, Any]) -> bool:
        """Returns whether a pod is of these images: one of earlier images says nothing of them."""
        # A cluster may rewrite the names of images as pods are made.
        return made_of(pod) == self._made_of

    def _first(self, daemon_set: Mapping[str, Any], waiting: Mapping[str, dict[str, Any] | None]) -> str:
        """Returns what a node waits for, for people: the first that has trouble, else the first."""
        troubled = [name for name, pod in waiting.items() if pod and trouble.explain(pod, ())]
        name = next(iter([*troubled, *waiting]))
        pod = waiting[name]
        if pod is None:
            refusal = next(iter(self._refusals(daemon_set)), "")
            if _FORBIDS.search(refusal):
                raise Forbidden(
                    f"Kubernetes takes no pod of {self.label} on the node {name}: {line(refusal, 300)}",
                    hint=f"ask who runs it for room in {self.kube.namespace}, for a small pod on each node",
                )
            return f"{name}: {refusal or 'there is no pod yet'}"
        error = trouble.problem(self.kube, pod)
        return f"{name}: {f'{error.message}; {error.hint}' if error else trouble.waiting(pod)}"

    def _refusals(self, daemon_set: Mapping[str, Any]) -> list[str]:
        """Returns why Kubernetes did not take pods of it, and not of an earlier one; the latest first."""
        return [
            str(event.get("message", ""))
            for event in reversed(self.kube.events("DaemonSet", daemon_set["metadata"]))
            if event.get("reason") == "FailedCreate"
        ]

    @property
    def _path(self) -> str:
        metadata = {"name": self.label, "namespace": self.kube.namespace}
        return path_of({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata})

    @property
    def _made_of(self) -> dict[str, Any]:
        return {
            "ray": self.images.ray,
            "workspace": self.images.workspace,
            "manifest": cache.key(MANIFEST.read_text()),
            **({"pull secret": self.images.pull_secret} if self.images.pull_secret else {}),
        }

    def _require_ours(self, document: Mapping[str, Any]) -> None:
        if not made_here(document):
            raise NotOurs(
                f"there is a DaemonSet {self.label} in namespace {self.kube.namespace} that Rayside "
                "did not make",
                hint="make the workshop beside a cluster of another name: --name NAME",
            )


def _since(pod: Mapping[str, Any]) -> str:
    """Returns when a pod was made: one that has failed may be there beside the next one of its node."""
    return str(pod["metadata"].get("creationTimestamp") or "")


def _node_of(pod: Mapping[str, Any]) -> str:
    """Returns the node that a DaemonSet's pod is for, which it names before the scheduler puts it there."""
    spec = pod["spec"]
    if "nodeName" in spec:
        return str(spec["nodeName"])
    affinity = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return str(affinity["nodeSelectorTerms"][0]["matchFields"][0]["values"][0])
