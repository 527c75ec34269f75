"""Network policies that let only pods of the same Ray cluster connect to its debuggers, if enforced."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bootstrap.instance import Instance
from bootstrap.kube.api import Kube, path_of
from bootstrap.steps.ray_cluster import DASHBOARD_PORT
from bootstrap.steps.removal import remove_ours
from rayside.steps.step import Report, Status, missing, ready


@dataclass(frozen=True)
class NetworkPolicies:
    """Two policies, for the workers and for the head, as drivers have debuggers there.

    Port forwards come from the node's kubelet, like probes, so policies don't apply to them.
    """

    instance: Instance
    kube: Kube
    needs: tuple[str, ...] = ("namespace",)
    name: str = "network-policies"
    title: str = "network policies of Ray's pods"

    def documents(self) -> tuple[dict[str, Any], ...]:
        """Returns the policies, as they are applied."""
        own = {"podSelector": {"matchLabels": {"ray.io/cluster": self.instance.ray_cluster}}}
        # KubeRay's operator requests jobs' states from the dashboard, from its own namespace, with the token.
        asked = {"ports": [{"protocol": "TCP", "port": DASHBOARD_PORT}]}
        return self._document("worker", [{"from": [own]}]), self._document("head", [{"from": [own]}, asked])

    def check(self) -> Status:
        for document in self.documents():
            there = self.kube.get(path_of(document))
            if there is None:
                return missing("not made yet")
            if there["spec"] != document["spec"]:
                return missing(f"{document['metadata']['name']} is not as it was made")
        return ready("pods of other Ray clusters, and of anything else, reach only the dashboard")

    def apply(self, report: Report) -> None:
        """Applies them. Raises FieldConflict if another manager has changed one."""
        for document in self.documents():
            self.kube.apply(document)

    def undo(self, report: Report) -> None:
        remove_ours(self.kube, self.documents(), report)

    def _document(self, node_type: str, ingress: list[dict[str, Any]]) -> dict[str, Any]:
        labels = {"ray.io/cluster": self.instance.ray_cluster, "ray.io/node-type": node_type}
        return {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": {
                "name": f"{self.instance.name}-{node_type}",
                "namespace": self.instance.namespace,
                "labels": self.instance.labels,
            },
            "spec": {"podSelector": {"matchLabels": labels}, "policyTypes": ["Ingress"], "ingress": ingress},
        }
