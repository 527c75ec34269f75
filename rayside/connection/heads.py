"""Head pods of the Ray clusters in a Kubernetes namespace, and port forwards to them.

The labels are KubeRay's: ray-operator/controllers/ray/utils/constant.go.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from rayside.errors import Forbidden, InvalidSetting, NotRunning
from rayside.options import is_kubernetes_name
from rayside.plain import line
from rayside.reach.programs import Kubectl

_HEADS = "ray.io/node-type=head"
_CLUSTER, _OWNER = "ray.io/cluster", "ray.io/originated-from-cr-name"
# Limit: names that an error lists.
_TOLD = 10


class Namespace(Protocol):
    """One Kubernetes namespace, read with its user's permissions."""

    @property
    def kubeconfig(self) -> Path: ...

    @property
    def context(self) -> str: ...

    @property
    def namespace(self) -> str: ...

    def require(self, verb: str, resource: str) -> None:
        """Checks a permission of the user, as in `get`, `pods/portforward`. Raises Forbidden."""

    def pods(self, selector: str) -> list[dict[str, Any]]:
        """Returns the manifests of the selected pods. Raises Forbidden, ClusterUnreachable."""

    def secret(self, name: str, key: str) -> str | None:
        """Returns one value of a Secret; None if missing. Raises as `pods`."""


def forbidden(verb: str, resource: str, group: str, namespace: str) -> Forbidden:
    """Returns the error that names the missing permission, and the smallest RBAC rule that grants it."""
    where = f"in namespace {namespace}" if namespace else "in the whole cluster"
    role = f"a Role in {namespace}" if namespace else "a ClusterRole"
    return Forbidden(
        f"permission denied by Kubernetes: {verb} {resource} {where}",
        hint=f"ask for {role} with the rule "
        f'{{apiGroups: ["{group}"], resources: ["{resource}"], verbs: ["{verb}"]}}',
    )


def head_selector(ray_cluster: str) -> str:
    """Returns the label selector of a head pod."""
    return f"{_CLUSTER}={ray_cluster},{_HEADS}"


def find(kube: Namespace, name: str) -> str:
    """Returns the RayCluster called `name`, or of the RayJob or RayService `name`; if empty, the only one.

    Raises NotRunning without a match, InvalidSetting with several, and as `Namespace`.
    """
    kube.require("list", "pods")
    owners = {
        str(pod["metadata"]["labels"].get(_CLUSTER)): pod["metadata"]["labels"].get(_OWNER, "")
        for pod in kube.pods(_HEADS)
        if pod["status"].get("phase") == "Running"
        and "deletionTimestamp" not in pod["metadata"]
        # The name becomes an argument of kubectl, and of a command that people paste.
        and is_kubernetes_name(str(pod["metadata"]["labels"].get(_CLUSTER)))
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


def takes_kubernetes_tokens(kube: Namespace, ray_cluster: str) -> bool:
    """Returns whether the RayCluster's head has `authOptions.enableK8sTokenAuth`. Raises as `Namespace`."""
    return any(
        variable["name"] == "RAY_ENABLE_K8S_TOKEN_AUTH" and variable.get("value", "").lower() in ("true", "1")
        for pod in kube.pods(head_selector(ray_cluster))
        for container in pod["spec"]["containers"]
        for variable in container.get("env", [])
    )


# --- forwards ------------------------------------------------------------------------------

# kubectl lists pods, and gets the pod that it forwards to. A WebSocket requires `get`, SPDY `create`.
_RIGHTS = (
    ("list", "pods"),
    ("get", "pods"),
    ("get", "pods/portforward"),
    ("create", "pods/portforward"),
)


def require_forwarding(kube: Namespace) -> None:
    """Checks the permissions to find pods and to forward ports. Raises Forbidden, and as `Namespace`."""
    for verb, resource in _RIGHTS:
        kube.require(verb, resource)


def to_pod(kube: Namespace, kubectl: Path, selector: str) -> Kubectl:
    """Returns the port forward to the pod that the label selector matches when it connects."""
    return Kubectl(str(kubectl), str(kube.kubeconfig), kube.context, kube.namespace, selector)
