"""Preflight checks for a Ray cluster in an existing Kubernetes cluster, before anything is created."""

from __future__ import annotations

from dataclasses import dataclass

from bootstrap.errors import NotOurs
from bootstrap.instance import Instance
from bootstrap.kube import operator, rights
from bootstrap.kube.api import CORE, Kube, made_here, require_namespace
from rayside.errors import Forbidden, RaysideError
from rayside.steps.step import Status, ready


@dataclass(frozen=True)
class CreationPreflight:
    """The API responds, grants the needed permissions, and has no foreign objects of our names.

    `refusal`: why the images can't get to the nodes; None if they can.
    """

    instance: Instance
    kube: Kube
    refusal: RaysideError | None
    needs: tuple[str, ...] = ()
    name: str = "preflight"
    title: str = "Kubernetes of others, seen from here"

    def check(self) -> Status:
        """Checks. Raises the refusal, NamespaceTerminating, NotOurs, Forbidden, Drifted, and as Kube."""
        if self.refusal:
            raise self.refusal
        # First, as without these permissions each of the other checks would fail with Forbidden.
        rights.require(self.kube, rights.STACK)
        namespace = self._namespace()
        self._require_free_names()
        return ready(f"{self.kube.url}; {namespace}; {self._operator()}")

    def _namespace(self) -> str:
        if self.kube.get(f"{CORE}/namespaces/{self.kube.namespace}") is not None:
            require_namespace(self.kube)
            return f"the namespace {self.kube.namespace} is there"
        rights.require_namespace_making(self.kube)
        return f"the namespace {self.kube.namespace} can be made"

    def _require_free_names(self) -> None:
        """Raises NotOurs if a foreign RayCluster, or a Secret with its token's name, exists."""
        other = f"give this one another name: --name NAME; or another namespace than {self.kube.namespace}"
        name, namespace = self.instance.ray_cluster, self.kube.namespace
        cluster = self.kube.ray("rayclusters", name)
        if cluster is not None:
            if not made_here(cluster):
                raise NotOurs(
                    f"there is a RayCluster {name} in the namespace {namespace} that Rayside did not make",
                    hint=other,
                )
            if not self.instance.record.exists():
                raise NotOurs(
                    f"the RayCluster {name} in the namespace {namespace} was made by another's Rayside, "
                    "or another machine's",
                    hint=other,
                )
            return
        # KubeRay would use the token in an existing Secret, which the Secret's creator knows.
        token = self.kube.get(f"{CORE}/namespaces/{namespace}/secrets/{name}")
        if token and not {"ownerReferences", "deletionTimestamp"} & token["metadata"].keys():
            raise NotOurs(
                f"there is a Secret {name} in the namespace {namespace}, where KubeRay would put Ray's token",
                hint=other,
            )

    def _operator(self) -> str:
        """Returns a description of the operator. Raises Drifted if the existing one does not fit."""
        try:
            present = operator.installed(self.kube)
        except Forbidden:
            if operator.served(self.kube):
                return "KubeRay is there, and its operator can't be seen from here"
            raise
        if present is None:
            rights.require_operator_making(self.kube)
            return "KubeRay can be installed"
        if not present.made_for(self.kube.namespace):
            present.require_fit()
        return f"KubeRay's operator is {present.namespace}/{present.name}"
