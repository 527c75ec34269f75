"""Plays a Kubernetes API that holds objects, knows which rights one lacks, and fails on anything else."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bootstrap.kube.api import FIELD_MANAGER, Kube
from bootstrap.kube.refusal import refusal

_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_OPERATORS = "/apis/apps/v1/deployments"


@dataclass(frozen=True)
class Objects(Kube):
    """Holds objects by their path, None where there is none, and lists by theirs; any other path fails.

    `lacking` are rights as in `create namespaces in all`, `get secrets in team`.
    """

    objects: dict[str, dict[str, Any] | None] = field(default_factory=dict)
    lists: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    lacking: set[str] = field(default_factory=set)
    unlistable: set[str] = field(default_factory=set)
    deleted: list[str] = field(default_factory=list)
    # With how many seconds of grace an object was deleted last, where that was said.
    graces: dict[str, str] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return "https://api.test:6443"

    def made(self, path: str) -> dict[str, Any]:
        """Returns an object that has to be there."""
        document = self.objects[path]
        assert document is not None
        return document

    def _call(
        self, method: str, path: str, query: Mapping[str, str], body: Mapping[str, Any] | None = None
    ) -> dict[str, Any] | None:
        if path == _REVIEWS:
            assert body
            asked = body["spec"]["resourceAttributes"]
            resource = "/".join(filter(None, (asked["resource"], asked["subresource"])))
            right = f"{asked['verb']} {resource} in {asked['namespace'] or 'all'}"
            return {"status": {"allowed": right not in self.lacking}}
        if path in self.unlistable:
            raise refusal(self.url, method, path, 403, b"")
        if path == _OPERATORS and "list deployments in all" in self.lacking:
            raise refusal(self.url, method, path, 403, b"")
        if method == "PATCH":
            self.objects[path] = applied(json.loads(json.dumps(body)))
        if method == "DELETE":
            self.deleted.append(path)
            if "gracePeriodSeconds" in query:
                self.graces[path] = query["gracePeriodSeconds"]
            self.objects[path] = None
            plural, name = path.rsplit("/", 2)[1:]
            for listed, items in self.lists.items():
                if listed.endswith(f"/{plural}"):
                    items[:] = [each for each in items if not _is_at(each, name, path)]
        if path in self.lists:
            return {"items": self.lists[path]}
        return self.objects[path]


def _is_at(item: dict[str, Any], name: str, path: str) -> bool:
    namespace = item["metadata"].get("namespace")
    in_it = f"/namespaces/{namespace}/" in path if namespace else "/namespaces/" not in path
    return bool(item["metadata"]["name"] == name) and in_it


def objects(namespace: str = "team", **more: Any) -> Objects:
    return Objects(Path("/k/config"), "prod", namespace, **more)


def applied(document: dict[str, Any], manager: str = FIELD_MANAGER) -> dict[str, Any]:
    """Returns the object as the API keeps it when that manager has applied it."""
    parts = [{"manager": manager, "fieldsV1": {"f:spec": {}}}]
    metadata = {**document["metadata"], "managedFields": parts}
    status = {"status": {"phase": "Active"}} if document["kind"] == "Namespace" else {}
    return {**document, **status, "metadata": metadata}
