"""Limits of an attendee's place: its resources, and its network connections in the cluster."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

from bootstrap.instance import Instance
from bootstrap.kube.api import Kube, path_of
from bootstrap.kube.sizes import Size, quantity
from bootstrap.steps.ray_cluster import DASHBOARD_PORT, WORKSPACE_PORT
from bootstrap.steps.removal import remove_ours
from rayside.steps.step import Report, Status, missing, ready

# Label of a front door's pods; the value names the cluster beside which they are.
DOOR = "rayside.dev/door"
# Pods besides the place's own: its jobs can't create pods, but a RayJob of the teacher does.
_SPARE_PODS = 2
_WORKSPACE = "workspace"
# Default limit of a container's writes to its node's disk: Ray's spilled objects and logs. A pod's volumes
# count against the sum of its containers' limits, of which a head has three (the kubelet's
# eviction_manager.go).
_DISK = "8Gi"
# Addresses of clouds' metadata services, which give a node's credentials to any client on it
# (https://cloud.google.com/compute/docs/metadata/overview; other clouds use the same address), and Azure's
# service with a node's configuration, by HTTP at a public address ("What is IP address 168.63.129.16?",
# https://learn.microsoft.com/azure/virtual-network/what-is-ip-address-168-63-129-16). Azure's DNS has that
# address, too: pods use the cluster's DNS, and the rule for DNS leaves port 53 open everywhere.
_CLOUD = ("169.254.0.0/16", "fd00:ec2::254/128", "168.63.129.16/32")
_PRIVATE = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7")


@dataclass(frozen=True)
class PlaceBounds:
    """A quota, default limits of containers, and a network policy that separates the place from others.

    The policy only works if a network plugin enforces it.

    Attributes:
        size: sum of the requests of the place's pods.
        base: the cluster beside which it is, whose front door connects attendees to the place.
        operator: namespace of KubeRay's operator, which requests jobs' states from the dashboard; empty if
            unknown.
        reach: further networks that the place may reach, as in 10.1.0.0/16.
    """

    instance: Instance
    kube: Kube
    size: Size
    base: Instance
    operator: str = ""
    reach: tuple[str, ...] = ()
    needs: tuple[str, ...] = ("namespace",)
    name: str = "place-bounds"
    title: str = "bounds of the place"

    def documents(self) -> tuple[dict[str, Any], ...]:
        """Returns the objects, as they are applied."""
        return self._quota(), self._limits(), self._policy(), self._service()

    @property
    def workspace(self) -> str:
        """Returns the URL of the place's workspace in the cluster."""
        return f"http://{_WORKSPACE}.{self.instance.namespace}.svc:{WORKSPACE_PORT}"

    def check(self) -> Status:
        for document in self.documents():
            there = self.kube.get(path_of(document))
            if there is None:
                return missing("not made yet")
            if not _has(there["spec"], document["spec"]):
                return missing(f"{document['metadata']['name']} is not as it was made")
        # Whether a network plugin enforces the policy can't be checked.
        asks = "a policy asks that it reach no other place"
        return ready(f"{self.size}, {self.size.pods + _SPARE_PODS} pods; {asks}")

    def apply(self, report: Report) -> None:
        """Applies them. Raises FieldConflict if another manager has changed one."""
        for document in self.documents():
            self.kube.apply(document)

    def undo(self, report: Report) -> None:
        remove_ours(self.kube, self.documents(), report)

    def _quota(self) -> dict[str, Any]:
        spare = self.size.pods + _SPARE_PODS
        # One and a half times the pods' requests: a replaced pod exists twice for a moment.
        return self._document(
            "v1",
            "ResourceQuota",
            {
                "hard": {
                    "requests.cpu": f"{self.size.cpu * 3 // 2}m",
                    "requests.memory": str(self.size.memory * 3 // 2),
                    "pods": str(spare),
                    "services.nodeports": "0",
                    "services.loadbalancers": "0",
                    "persistentvolumeclaims": "0",
                }
            },
        )

    def _limits(self) -> dict[str, Any]:
        limit = {
            "type": "Container",
            "default": {"ephemeral-storage": _DISK, "memory": "1Gi"},
            # Without a default, a request would be as large as the limit.
            "defaultRequest": {"cpu": "10m", "memory": "64Mi", "ephemeral-storage": "64Mi"},
        }
        return self._document("v1", "LimitRange", {"limits": [limit]})

    def _policy(self) -> dict[str, Any]:
        """Returns the policy for all pods of the namespace.

        The rest of the cluster has private addresses: of these a place reaches only its own pods and DNS; of
        public addresses, all but the clouds' own services.
        """
        own: dict[str, Any] = {"podSelector": {}}
        door = {**_in(self.base.namespace), "podSelector": {"matchLabels": {DOOR: self.base.name}}}
        asks = _in(self.operator) if self.operator else {"namespaceSelector": {}}
        ingress = [
            {"from": [own]},
            {"from": [door], "ports": [{"protocol": "TCP", "port": WORKSPACE_PORT}]},
            {"from": [asks], "ports": [{"protocol": "TCP", "port": DASHBOARD_PORT}]},
        ]
        names = [{"protocol": protocol, "port": 53} for protocol in ("UDP", "TCP")]
        everywhere = [
            {
                "ipBlock": {
                    "cidr": "0.0.0.0/0",
                    "except": [each for each in (*_PRIVATE, *_CLOUD) if "." in each],
                }
            },
            {"ipBlock": {"cidr": "::/0", "except": [each for each in (*_PRIVATE, *_CLOUD) if ":" in each]}},
        ]
        opened = [{"to": [{"ipBlock": {"cidr": network}} for network in self.reach]}] if self.reach else []
        return self._document(
            "networking.k8s.io/v1",
            "NetworkPolicy",
            {
                "podSelector": {},
                "policyTypes": ["Ingress", "Egress"],
                "ingress": ingress,
                "egress": [{"to": [own]}, {"ports": names}, {"to": everywhere}, *opened],
            },
        )

    def _service(self) -> dict[str, Any]:
        """Returns the Service for the front door: KubeRay's own service of the head has only Ray's ports."""
        head = {"ray.io/cluster": self.instance.ray_cluster, "ray.io/node-type": "head"}
        ports = [
            {"name": "workspace", "port": WORKSPACE_PORT, "targetPort": WORKSPACE_PORT, "protocol": "TCP"}
        ]
        document = self._document("v1", "Service", {"selector": head, "ports": ports})
        document["metadata"]["name"] = _WORKSPACE
        return document

    def _document(self, version: str, kind: str, spec: dict[str, Any]) -> dict[str, Any]:
        metadata = {
            "name": f"{self.instance.name}-place",
            "namespace": self.instance.namespace,
            "labels": self.instance.labels,
        }
        return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


def _in(namespace: str) -> dict[str, Any]:
    """Returns the policy peer that selects that namespace."""
    # Kubernetes itself sets this label of namespaces.
    return {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}


def _has(there: Any, made: Any) -> bool:
    """Returns whether an object has all the values that we applied; the API adds defaults."""
    if isinstance(made, dict):
        return isinstance(there, dict) and all(_has(there.get(key), value) for key, value in made.items())
    if isinstance(made, list):
        return isinstance(there, list) and len(there) == len(made) and all(map(_has, there, made))
    if there != made and isinstance(made, str):
        # The API normalizes quantities.
        with contextlib.suppress(ValueError):
            return quantity(there) == quantity(made)
    return bool(there == made)
