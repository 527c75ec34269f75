"""KubeRay operator: found in any namespace, and checked for its version and watched namespaces."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from bootstrap.kube import trouble
from bootstrap.kube.api import RAY, Kube, made_here
from bootstrap.settings import KUBERAY_VERSION
from rayside.errors import Drifted, Forbidden, RaysideError

# Labels of its Deployment in KubeRay's config/manager, and in its Helm chart; labels of its pods in both.
_DEPLOYMENTS = "app.kubernetes.io/name in (kuberay,kuberay-operator)"
_PODS = "app.kubernetes.io/component=kuberay-operator"
DEPLOYMENTS = "/apis/apps/v1/deployments"


@dataclass(frozen=True)
class Operator:
    """An operator, described by its Deployment in the API."""

    kube: Kube
    deployment: Mapping[str, Any]

    @property
    def name(self) -> str:
        return str(self.deployment["metadata"]["name"])

    @property
    def namespace(self) -> str:
        return str(self.deployment["metadata"]["namespace"])

    @property
    def image(self) -> str:
        return str(self._container["image"])

    @property
    def ours(self) -> bool:
        return made_here(self.deployment)

    @property
    def replicas(self) -> int:
        """Returns the desired number of pods; Kubernetes' default is one."""
        return int(self.deployment["spec"].get("replicas", 1))

    def runs(self) -> bool:
        """Returns whether a pod of its current version is available."""
        status = self.deployment.get("status") or {}
        current = status.get("observedGeneration") == self.deployment["metadata"]["generation"]
        return current and bool(status.get("availableReplicas"))

    def problem(self) -> RaysideError | None:
        """Returns why its pod can't run; None if it runs or is starting."""
        return trouble.first_problem(replace(self.kube, namespace=self.namespace), _PODS)

    def require_fit(self) -> None:
        """Checks that an existing operator fits; it is never changed.

        It needs the major version of ours, and the same or a newer minor version: KubeRay's custom resources
        keep the fields of a minor version. It has to watch our namespace.
        Raises Drifted.
        """
        where = f"the KubeRay operator {self.namespace}/{self.name}, which was there before,"
        ours = _major_and_minor(KUBERAY_VERSION)
        theirs = _major_and_minor(self._version)
        if theirs is None or ours is None or theirs[0] != ours[0] or theirs < ours:
            raise Drifted(
                f"{where} is {self._version or self.image}; Rayside needs {KUBERAY_VERSION} "
                f"or a newer {KUBERAY_VERSION[0]}.x",
                hint=f"ask who installed it to make it {KUBERAY_VERSION}",
            )
        if not self.watches_us:
            raise Drifted(
                f"{where} watches only {', '.join(self._watched)}, and not {self.kube.namespace}",
                hint=f"set namespace to {self._watched[0]} in invoke.yaml",
            )

    @property
    def watches_us(self) -> bool:
        """Returns whether it watches our namespace, or all."""
        return not self._watched or self.kube.namespace in self._watched

    def made_for(self, namespace: str) -> bool:
        """Returns whether we made it for that namespace alone; an empty namespace: for all."""
        return self.ours and self._watched == ([namespace] if namespace else [])

    @property
    def _version(self) -> str:
        """Returns its version from the image's tag, the labels or the Helm chart; else an empty text."""
        labels = self.deployment["metadata"].get("labels") or {}
        tag = self.image.partition("@")[0].rpartition("/")[2].partition(":")[2]
        # Each release of KubeRay has a chart of the same version; with a private registry the tag may be any.
        chart = str(labels.get("helm.sh/chart", "")).removeprefix("kuberay-operator-")
        told = (tag, str(labels.get("app.kubernetes.io/version", "")), chart)
        return next((text for text in told if _major_and_minor(text)), "")

    @property
    def _watched(self) -> list[str]:
        """Returns the namespaces that it watches; an empty list means all."""
        arguments = " ".join(self._container.get("args") or [])
        flag = re.search(r"--?watch-namespace[= ]([-\w,]+)", arguments)
        return flag[1].split(",") if flag else []

    @property
    def _container(self) -> Mapping[str, Any]:
        containers: list[dict[str, Any]] = self.deployment["spec"]["template"]["spec"]["containers"]
        return containers[0]


def installed(kube: Kube) -> Operator | None:
    """Returns the operator for our namespace, preferably ours; None if there is none.

    Without one for our namespace, it is a foreign one for other namespaces: we install none beside it.
    """
    there = operators(kube)
    for_us = [operator for operator in there if operator.watches_us]
    return max(
        for_us or [operator for operator in there if not operator.ours],
        key=lambda operator: operator.ours,
        default=None,
    )


def served(kube: Kube) -> bool:
    """Returns whether Kubernetes knows RayClusters and RayJobs."""
    return all(
        kube.get(f"{RAY}/namespaces/{kube.namespace}/{plural}", limit="1") is not None
        for plural in ("rayclusters", "rayjobs")
    )


def operators(kube: Kube) -> list[Operator]:
    """Returns all operators of the whole cluster."""
    return [Operator(kube, deployment) for deployment in kube.items(DEPLOYMENTS, _DEPLOYMENTS)]


def logins_of_ours(kube: Kube) -> set[str]:
    """Returns the names of the pull Secrets of our operators in the namespace."""
    try:
        deployments = kube.items(f"/apis/apps/v1/namespaces/{kube.namespace}/deployments", _DEPLOYMENTS)
    except Forbidden:
        # A user without this permission has made none.
        return set()
    pods = [each["spec"]["template"]["spec"] for each in deployments if made_here(each)]
    return {str(each.get("name")) for pod in pods for each in pod.get("imagePullSecrets") or []}


def confined(document: Mapping[str, Any], namespace: str) -> dict[str, Any]:
    """Returns one of KubeRay's manifests, with the operator and all its permissions in that namespace alone.

    KubeRay's Helm chart does so with `singleNamespaceInstall`. Custom resources are cluster-wide.
    """
    own = copy.deepcopy(dict(document))
    if own["kind"] == "CustomResourceDefinition":
        return own
    own["metadata"]["namespace"] = namespace
    for part in (own, own.get("roleRef", {})):
        part["kind"] = part.get("kind", "").removeprefix("Cluster")
    for subject in own.get("subjects", []):
        subject["namespace"] = namespace
    if own["kind"] == "Deployment":
        for container in own["spec"]["template"]["spec"]["containers"]:
            container["args"] = [*container.get("args", []), f"--watch-namespace={namespace}"]
    return own


def _major_and_minor(version: str) -> tuple[int, int] | None:
    numbers = re.match(r"v?(\d+)\.(\d+)\b", version)
    return (int(numbers[1]), int(numbers[2])) if numbers else None
