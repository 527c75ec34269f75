"""Kubernetes permissions that are needed to create a Ray cluster, and checks for missing ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from bootstrap.kube.api import Kube
from bootstrap.settings import KUBERAY_VERSION
from rayside.errors import Forbidden

_OBJECT = ("get", "create", "patch", "delete")


@dataclass(frozen=True)
class Rule:
    """Verbs on one resource, as in a Role; `group` is its API group."""

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
# In the namespace of an existing RayCluster, for a workspace's pod beside it. Also in docs/targets.md.
WORKSPACE_POD = (
    Rule("", "pods", (*_OBJECT, "list")),
    Rule("", "pods/log", ("get",)),
    Rule("", "pods/portforward", ("get", "create")),
    Rule("", "events", ("list",)),
    Rule("", "secrets", _OBJECT),
    Rule("ray.io", "rayclusters", ("get",)),
)
# In the whole cluster, for a workshop: the namespaces of its places don't exist yet. Each gets the objects
# of STACK, with limits, and a workspace in which verbs run. docs/workshop.md has these as a ClusterRole.
PLACES = (
    Rule("", "namespaces", _OBJECT),
    Rule("", "pods", ("get", "delete")),
    Rule("", "pods/log", ("get",)),
    Rule("", "pods/portforward", ("get", "create")),
    # A WebSocket needs `get`: without it, kubectl uses `create` (measured, on 1.34).
    Rule("", "pods/exec", ("create",)),
    Rule("", "secrets", _OBJECT),
    Rule("", "services", _OBJECT),
    Rule("", "resourcequotas", _OBJECT),
    Rule("", "limitranges", _OBJECT),
    Rule("networking.k8s.io", "networkpolicies", _OBJECT),
    Rule("ray.io", "rayclusters", _OBJECT),
    Rule("ray.io", "rayjobs", _OBJECT),
)
# In the whole cluster, to remove a namespace, after a check that no foreign objects are in it.
LOOK = Rule("*", "*", ("list",))
# In the namespace of the cluster, for the front door of a workshop, whose Role gives no more than PLACES has.
# docs/workshop.md has these as a Role.
DOOR = (
    Rule("", "configmaps", _OBJECT),
    Rule("", "serviceaccounts", _OBJECT),
    Rule("apps", "deployments", _OBJECT),
    Rule("rbac.authorization.k8s.io", "roles", _OBJECT),
    Rule("rbac.authorization.k8s.io", "rolebindings", _OBJECT),
)
# In the namespace of a workshop's front door, for its Ingress. Also in docs/workshop.md.
INGRESS = (Rule("networking.k8s.io", "ingresses", _OBJECT),)
# In the whole cluster, to create the namespace.
NAMESPACE = (Rule("", "namespaces", ("create", "patch", "delete")),)
# In the whole cluster, to install an operator: custom resources belong to no namespace.
DEFINITIONS = (
    Rule("apiextensions.k8s.io", "customresourcedefinitions", ("get", "list", "create", "patch", "delete")),
)
# In the namespace, to install an operator. The creator of a Role needs all permissions that it grants.
OPERATOR = (
    Rule("apps", "deployments", (*_OBJECT, "list")),
    Rule("", "services", (*_OBJECT, "list")),
    Rule("", "serviceaccounts", (*_OBJECT, "list")),
    Rule("rbac.authorization.k8s.io", "roles", (*_OBJECT, "list")),
    Rule("rbac.authorization.k8s.io", "rolebindings", (*_OBJECT, "list")),
)


def require_workshop(kube: Kube) -> None:
    """Raises Forbidden if a permission is missing to create or remove a workshop beside a cluster."""
    # One request for an administrator, as on kind, instead of sixty.
    if kube.allowed("*", "*", "*", everywhere=True):
        return
    here = f"in the namespace {kube.namespace}"
    everywhere, door = _lacking(kube, (*PLACES, LOOK), everywhere=True), _lacking(kube, DOOR)
    named, roles = [], []
    if everywhere:
        named.append(f"in the whole cluster: {_named(everywhere)}")
        roles.append("the ClusterRole rayside-workshop")
    if door:
        named.append(f"{here}: {_named(door)}")
        roles.append(f"the Role rayside-workshop-door {here}")
    if named:
        raise Forbidden(
            f"you lack Kubernetes rights that a workshop needs, {', and '.join(named)}",
            hint=f"ask an administrator for {', and for '.join(roles)}, as docs/workshop.md has under Rights",
        )


def require(kube: Kube, rules: Sequence[Rule]) -> None:
    """Raises Forbidden if one of these permissions is missing in the namespace."""
    if lacking := _lacking(kube, rules):
        raise Forbidden(
            f"you lack these Kubernetes rights in the namespace {kube.namespace}: {_named(lacking)}",
            hint=f"ask for a Role in {kube.namespace} with the rules {_listed(lacking)}",
        )


def require_namespace_making(kube: Kube) -> None:
    """Raises Forbidden if a permission is missing to create or remove the namespace."""
    if lacking := _lacking(kube, NAMESPACE, everywhere=True):
        raise Forbidden(
            f"there is no namespace {kube.namespace}, and you lack the Kubernetes rights to make it: "
            f"{_named(lacking)}",
            hint=f"ask an administrator: kubectl create namespace {kube.namespace}; "
            f"or for a ClusterRole with the rules {_listed(lacking)}",
        )


def require_operator_making(kube: Kube) -> None:
    """Raises Forbidden if a permission is missing to install KubeRay's operator."""
    lacking = [*_lacking(kube, DEFINITIONS, everywhere=True), *_lacking(kube, OPERATOR)]
    if lacking:
        raise Forbidden(
            "there is no KubeRay operator, and you lack the Kubernetes rights to install one: "
            f"{_named(lacking)}",
            hint=f"ask an administrator to install KubeRay {KUBERAY_VERSION}: kubectl apply --server-side "
            f"-k 'github.com/ray-project/kuberay/ray-operator/config/default?ref=v{KUBERAY_VERSION}'",
        )


def _lacking(kube: Kube, rules: Sequence[Rule], *, everywhere: bool = False) -> list[Rule]:
    """Returns the rules with missing permissions, each with only its missing verbs."""

    def may(rule: Rule, verb: str) -> bool:
        return kube.allowed(verb, rule.resource, rule.group, everywhere=everywhere)

    left = [replace(rule, verbs=tuple(verb for verb in rule.verbs if not may(rule, verb))) for rule in rules]
    return [rule for rule in left if rule.verbs]


def _named(rules: Sequence[Rule]) -> str:
    kinds_of = {"*": "every kind of object"}
    return "; ".join(
        f"{', '.join(rule.verbs)} {kinds_of.get(rule.resource, rule.resource)}" for rule in rules
    )


def _listed(rules: Sequence[Rule]) -> str:
    return ", ".join(map(str, rules))
