"""Forwards to pods: the program that leads to one, and the rights that it takes."""

from __future__ import annotations

from pathlib import Path

from bootstrap.kube.api import Kube
from rayside.reach.programs import Kubectl

# kubectl is asked for pods, and looks at the one that it leads to. A WebSocket takes `get`, SPDY `create`.
_RIGHTS = (
    ("list", "pods"),
    ("get", "pods"),
    ("get", "pods/portforward"),
    ("create", "pods/portforward"),
)


def require_forwarding(kube: Kube) -> None:
    """Checks that kubectl may find pods and lead to them. Raises Forbidden, and as `Kube`."""
    for verb, resource in _RIGHTS:
        kube.require(verb, resource)


def to_pod(kube: Kube, kubectl: Path, selector: str) -> Kubectl:
    """Returns the program that leads to the pod with the labels `selector`, whichever pod that is."""
    return Kubectl(str(kubectl), str(kube.kubeconfig), kube.context, kube.namespace, selector)
