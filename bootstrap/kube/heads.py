"""Existing Ray clusters of a Kubernetes namespace, found by the pods of their heads, and forwards to pods.

The labels are KubeRay's: ray-operator/controllers/ray/utils/constant.go.
"""

from __future__ import annotations

from pathlib import Path

from bootstrap.kube.api import Kube, head_selector
from rayside.errors import InvalidSetting, NotRunning
from rayside.plain import line
from rayside.reach.programs import Kubectl

_HEADS = "ray.io/node-type=head"
_CLUSTER, _OWNER = "ray.io/cluster", "ray.io/originated-from-cr-name"
# So many names are told.
_TOLD = 10


def find(kube: Kube, name: str) -> str:
    """Returns the RayCluster of that name, or of the RayJob or RayService so named; without, the only one.

    Raises NotRunning where there is none, InvalidSetting where several fit, and as `Kube`.
    """
    kube.require("list", "pods")
    owners = {
        str(pod["metadata"]["labels"].get(_CLUSTER)): pod["metadata"]["labels"].get(_OWNER, "")
        for pod in kube.pods(_HEADS)
        if pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
    }
    fitting = [cluster for cluster, owner in owners.items() if not name or name in (cluster, owner)]
    if name in owners:
        fitting = [name]
    if len(fitting) == 1:
        return fitting[0]
    names = ", ".join(line(cluster) for cluster in sorted(fitting or owners)[:_TOLD])
    if fitting:
        which = f"named {line(name)} " if name else ""
        raise InvalidSetting(
            f"{len(fitting)} RayClusters {which}run in the namespace {kube.namespace}: {names}",
            hint=f"name one: --ray-cluster {sorted(fitting)[0]}",
        )
    named, others = f"{line(name)} " if name else "", f", but {names}" if names else ""
    raise NotRunning(
        f"no RayCluster {named}runs in the namespace {kube.namespace} of {line(kube.context)}{others}",
        hint="name another: --namespace NS, or --ray-cluster NAME",
    )


def takes_kubernetes_tokens(kube: Kube, ray_cluster: str) -> bool:
    """Returns whether the RayCluster's head has `authOptions.enableK8sTokenAuth`. Raises as `Kube`."""
    return any(
        variable["name"] == "RAY_ENABLE_K8S_TOKEN_AUTH" and variable.get("value", "").lower() in ("true", "1")
        for pod in kube.pods(head_selector(ray_cluster))
        for container in pod["spec"]["containers"]
        for variable in container.get("env", [])
    )


# --- forwards ------------------------------------------------------------------------------

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
