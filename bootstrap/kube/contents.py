"""Contents of a namespace, of every kind in the API, before the namespace is removed with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bootstrap.kube.api import CORE, Kube
from rayside.errors import RaysideError

# A kind of objects: the path of its API version, and its resource, as in `deployments`.
Kind = tuple[str, str]
# Resources that are transient, or only show other objects.
_PASSING = {"events", "endpoints", "leases"}
_SHOWING = {"metrics.k8s.io"}
# Objects that Kubernetes creates in every namespace.
_OF_EVERY_NAMESPACE = {("configmaps", "kube-root-ca.crt"), ("serviceaccounts", "default")}


def held(kube: Kube, known: Sequence[Kind] = ()) -> list[str]:
    """Returns the namespace's objects that would not go by themselves, as in `deployments/web`.

    Objects with an owner, or being removed, are left out. A resource that can't be listed counts as held.
    `known` is a recent result of `kinds`; without it, the API is asked.
    """
    found = known or kinds(kube)
    return [f"{resource}/{name}" for path, resource in found for name in _names(kube, path, resource)]


def kinds(kube: Kube) -> list[Kind]:
    """Returns the kinds of objects in namespaces, with some twenty requests.

    Each is the path of the API's preferred version of a group, with a namespaced resource.
    """
    groups = (kube.get("/apis") or {}).get("groups", [])
    paths = [
        f"/apis/{group['preferredVersion']['groupVersion']}"
        for group in groups
        if group["name"] not in _SHOWING
    ]
    found: list[Kind] = []
    for path in (CORE, *paths):
        for resource in (kube.get(path) or {}).get("resources", []):
            name = str(resource["name"])
            listable = resource["namespaced"] and "list" in resource["verbs"] and "/" not in name
            if listable and name not in _PASSING:
                found.append((path, name))
    return found


def _names(kube: Kube, path: str, resource: str) -> Iterator[str]:
    try:
        items = kube.items(f"{path}/namespaces/{kube.namespace}/{resource}")
    except RaysideError:
        yield "(they can't be listed)"
        return
    for item in items:
        name = str(item["metadata"]["name"])
        if not _goes(item) and (resource, name) not in _OF_EVERY_NAMESPACE:
            yield name


def _goes(item: Mapping[str, Any]) -> bool:
    return bool({"ownerReferences", "deletionTimestamp"} & item["metadata"].keys())
