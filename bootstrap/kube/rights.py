"""Says which rights in Kubernetes making a Ray cluster takes, and which of them are lacking."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bootstrap.errors import Forbidden
from bootstrap.kube.api import Kube
from bootstrap.settings import KUBERAY_VERSION, environment_name

_OBJECT = ("get", "create", "patch", "delete")


@dataclass(frozen=True)
class Rule:
    """Verbs on one resource, as a Role has them; `group` is its API group."""

    group: str
    resource: str
    verbs: tuple[str, ...]

    def __str__(self) -> str:
        verbs = ", ".join(self.verbs)
        return f'{{apiGroups: ["{self.group}"], resources: [{self.resource}], verbs: [{verbs}]}}'


# In the namespace of the Ray cluster. docs/targets.md has them as a Role to hand to an administrator.
STACK = (
    Rule("", "namespaces", ("get",)),
    Rule("", "pods", ("get", "list", "delete")),
    Rule("", "pods/log", ("get",)),
    Rule("", "pods/portforward", ("get", "create")),
    Rule("", "events", ("list",)),
    Rule("", "secrets", _OBJECT),
    Rule("networking.k8s.io", "networkpolicies", _OBJECT),
    Rule("ray.io", "rayclusters", (*_OBJECT, "list")),
    Rule("ray.io", "rayjobs", (*_OBJECT, "list")),
)
# In the namespace of a RayCluster of others, for a workspace's pod beside it. docs/targets.md has these, too.
WORKSPACE_POD = (
    Rule("", "pods", (*_OBJECT, "list")),
    Rule("", "pods/log", ("get",)),
    Rule("", "pods/portforward", ("get", "create")),
    Rule("", "events", ("list",)),
    Rule("", "secrets", _OBJECT),
    Rule("ray.io", "rayclusters", ("get",)),
)
# Besides either, where a pod of ours serves a bundle's images, as no registry does.
SERVING = (
    Rule("", "pods", ("create", "patch")),
    Rule("", "configmaps", (*_OBJECT, "list")),
    Rule("", "services", _OBJECT),
    Rule("networking.k8s.io", "networkpolicies", _OBJECT),
)
# In the whole cluster, then, where nobody names an image that the nodes have.
NODES = (Rule("", "nodes", ("list",)),)
# In the whole cluster, where the namespace has to be made.
NAMESPACE = (Rule("", "namespaces", ("create", "patch", "delete")),)
# In the whole cluster, where no operator is there: custom resources belong to no namespace.
DEFINITIONS = (
    Rule("apiextensions.k8s.io", "customresourcedefinitions", ("get", "list", "create", "patch", "delete")),
)
# And in the namespace, then. Whoever makes a Role has to have the rights that it gives.
OPERATOR = (
    Rule("apps", "deployments", (*_OBJECT, "list")),
    Rule("", "services", (*_OBJECT, "list")),
    Rule("", "serviceaccounts", (*_OBJECT, "list")),
    Rule("rbac.authorization.k8s.io", "roles", (*_OBJECT, "list")),
    Rule("rbac.authorization.k8s.io", "rolebindings", (*_OBJECT, "list")),
)


def require_stack(kube: Kube) -> None:
    """Raises Forbidden where a right is lacking to make a Ray cluster in the namespace."""
    _require(kube, STACK)


def require_workspace_pod(kube: Kube) -> None:
    """Raises Forbidden where a right is lacking to make, and to reach, a workspace's pod in the namespace."""
    _require(kube, WORKSPACE_POD)


def require_serving(kube: Kube, *, image: str) -> None:
    """Raises Forbidden where a right is lacking to serve images in the namespace; `image` is as it is set."""
    _require(kube, SERVING)
    if not image and _lacking(kube, NODES, everywhere=True):
        raise Forbidden(
            "you may not see which images the nodes of this Kubernetes have: list nodes",
            hint="name one that they have, whatever is in it, as in "
            f"{environment_name('serving_image')}=registry.k8s.io/pause:3.10; or ask for a ClusterRole with "
            f"the rules {_listed(NODES)}",
        )


def _require(kube: Kube, rules: Sequence[Rule]) -> None:
    if lacking := _lacking(kube, rules):
        raise Forbidden(
            f"you lack rights in Kubernetes, in the namespace {kube.namespace}: {_named(lacking)}",
            hint=f"ask for a Role in {kube.namespace} with the rules {_listed(lacking)}",
        )


def require_namespace_making(kube: Kube) -> None:
    """Raises Forbidden where a right is lacking to make the namespace, and to remove it."""
    if lacking := _lacking(kube, NAMESPACE, everywhere=True):
        raise Forbidden(
            f"there is no namespace {kube.namespace}, and you lack the right to make it: {_named(lacking)}",
            hint=f"ask an administrator: kubectl create namespace {kube.namespace}; "
            f"or for a ClusterRole with the rules {_listed(lacking)}",
        )


def require_operator_making(kube: Kube) -> None:
    """Raises Forbidden where a right is lacking to install KubeRay's operator."""
    lacking = [*_lacking(kube, DEFINITIONS, everywhere=True), *_lacking(kube, OPERATOR)]
    if lacking:
        raise Forbidden(
            f"there is no KubeRay operator, and you lack rights to install one: {_named(lacking)}",
            hint=f"ask an administrator to install KubeRay {KUBERAY_VERSION}: kubectl apply --server-side "
            f"-k 'github.com/ray-project/kuberay/ray-operator/config/default?ref=v{KUBERAY_VERSION}'",
        )


def _lacking(kube: Kube, rules: Sequence[Rule], *, everywhere: bool = False) -> list[Rule]:
    """Returns the rules, each with the verbs alone that we may not."""
    left = [
        Rule(
            rule.group,
            rule.resource,
            tuple(verb for verb in rule.verbs if not _may(kube, rule, verb, everywhere)),
        )
        for rule in rules
    ]
    return [rule for rule in left if rule.verbs]


def _may(kube: Kube, rule: Rule, verb: str, everywhere: bool) -> bool:
    return kube.allowed(verb, rule.resource, rule.group, everywhere=everywhere)


def _named(rules: Sequence[Rule]) -> str:
    return "; ".join(f"{', '.join(rule.verbs)} {rule.resource}" for rule in rules)


def _listed(rules: Sequence[Rule]) -> str:
    return ", ".join(map(str, rules))
