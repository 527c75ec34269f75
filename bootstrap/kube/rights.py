"""Kubernetes permissions that making a Ray cluster takes, and those that are missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bootstrap.errors import Forbidden
from bootstrap.kube.api import CORE, Kube
from bootstrap.kube.contents import Kind, kinds
from bootstrap.settings import KUBERAY_VERSION

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
# In the whole cluster, for a workshop: its places have namespaces that are not there yet. In each is what
# STACK is for, with bounds, and a workspace in which verbs run. docs/workshop.md has these as a ClusterRole.
PLACES = (
    Rule("", "namespaces", _OBJECT),
    Rule("", "pods", ("get", "delete")),
    Rule("", "pods/log", ("get",)),
    Rule("", "pods/portforward", ("get", "create")),
    # A WebSocket takes `get`: without it, kubectl goes by `create` (measured, on 1.34).
    Rule("", "pods/exec", ("create",)),
    Rule("", "secrets", _OBJECT),
    Rule("", "services", _OBJECT),
    Rule("", "resourcequotas", _OBJECT),
    Rule("", "limitranges", _OBJECT),
    Rule("networking.k8s.io", "networkpolicies", _OBJECT),
    Rule("ray.io", "rayclusters", _OBJECT),
    Rule("ray.io", "rayjobs", _OBJECT),
)
# In the whole cluster, to remove a namespace: it goes once nobody else is seen to have something in it.
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
# What a workshop lists in the whole cluster besides the kinds that a namespace is searched for.
_LISTED_TOO: tuple[Kind, ...] = ((CORE, "namespaces"), (CORE, "nodes"), (CORE, "events"))
# Where so many rights to list are lacking, LOOK is named in their place.
_SEVERAL = 5
# In the namespace of a workshop's front door, where a host leads to it. docs/workshop.md has this, too.
INGRESS = (Rule("networking.k8s.io", "ingresses", _OBJECT),)
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


def require_workshop(kube: Kube) -> None:
    """Raises Forbidden where a right is lacking to make a workshop beside a cluster, or to remove it."""
    # An administrator, as on kind, is asked about once, and not sixty times.
    if kube.allowed("*", "*", "*", everywhere=True):
        return
    here = f"in the namespace {kube.namespace}"
    parts = (
        (
            "in the whole cluster",
            "the ClusterRole rayside-workshop",
            [*_lacking(kube, PLACES, everywhere=True), *_not_listed(kube)],
        ),
        (here, f"the Role rayside-workshop-door {here}", _lacking(kube, DOOR)),
    )
    lacking = [part for part in parts if part[2]]
    if lacking:
        named = ", and ".join(f"{where}: {_named(rules)}" for where, _, rules in lacking)
        roles = ", and for ".join(role for _, role, _ in lacking)
        raise Forbidden(
            f"you lack rights in Kubernetes that a workshop needs, {named}",
            hint=f"ask an administrator for {roles}, as docs/workshop.md has under Rights",
        )


def _not_listed(kube: Kube) -> list[Rule]:
    """Returns what we may not list of all that there is; LOOK where that is much."""

    def may_list(group: str, resource: str) -> bool:
        return kube.allowed("list", resource, group, everywhere=True)

    # Each kind is asked about only where there is no one rule for all: they are some sixty.
    if may_list("*", "*"):
        return []
    there = (*_LISTED_TOO, *kinds(kube))
    rules = [Rule("" if path == CORE else path.split("/")[2], name, ("list",)) for path, name in there]
    lacking = [rule for rule in rules if not may_list(rule.group, rule.resource)]
    return lacking if len(lacking) < _SEVERAL else [LOOK]


def require(kube: Kube, rules: Sequence[Rule]) -> None:
    """Raises Forbidden where a right of these is lacking in the namespace."""
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
            tuple(
                verb
                for verb in rule.verbs
                if not kube.allowed(verb, rule.resource, rule.group, everywhere=everywhere)
            ),
        )
        for rule in rules
    ]
    return [rule for rule in left if rule.verbs]


def _named(rules: Sequence[Rule]) -> str:
    kinds_of = {"*": "every kind of object"}
    return "; ".join(
        f"{', '.join(rule.verbs)} {kinds_of.get(rule.resource, rule.resource)}" for rule in rules
    )


def _listed(rules: Sequence[Rule]) -> str:
    return ", ".join(map(str, rules))
