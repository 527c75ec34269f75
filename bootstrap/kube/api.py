"""Kubernetes API calls, in JSON: reads, server-side applies, patches and removals."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

from bootstrap.errors import FieldConflict, NamespaceTerminating
from bootstrap.kube.kubeconfig import server
from bootstrap.kube.refusal import refusal, without_user, words
from rayside.connection.heads import forbidden
from rayside.errors import ClusterUnreachable, CredentialsRefused, NotReady, NotRunning

CORE = "/api/v1"
RAY = "/apis/ray.io/v1"
# Field manager of all that Rayside applies. It takes over its own fields again, and no other manager's
# (https://kubernetes.io/docs/reference/using-api/server-side-apply/#conflicts).
FIELD_MANAGER = "rayside"


@dataclass(frozen=True)
class Kube:
    """One context of one kubeconfig, and the namespace that Ray is in.

    Each call raises ClusterUnreachable; CredentialsRefused, also if they have expired and can't be renewed;
    Forbidden for permission denied.
    """

    kubeconfig: Path
    context: str
    namespace: str = "default"

    @property
    def options(self) -> list[str]:
        """Returns the options of kubectl and its plugins for this context."""
        return ["--kubeconfig", str(self.kubeconfig), "--context", self.context]

    def get(self, path: str, **query: str) -> dict[str, Any] | None:
        """Returns the object, or the list, at `path`, as in `/api/v1/nodes`; None if there is none."""
        return self._call("GET", path, query)

    def items(self, path: str, selector: str = "", fields: str = "") -> list[dict[str, Any]]:
        """Returns the items of the list at `path`; `selector` selects by label, `fields` by field."""
        query = {"labelSelector": selector, "fieldSelector": fields}
        document = self._call("GET", path, {key: value for key, value in query.items() if value})
        return list(document["items"]) if document else []

    def pods(self, selector: str) -> list[dict[str, Any]]:
        """Returns the namespace's pods with these labels, as in `ray.io/cluster=rayside`."""
        return self.items(f"{self._core}/pods", selector)

    def events(self, kind: str, metadata: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Returns the events of the object with this metadata, not of an earlier namesake, oldest first."""
        fields = f"involvedObject.kind={kind},involvedObject.name={metadata['name']}"
        events = self.items(f"{self._core}/events", fields=fields)
        own = [event for event in events if event["involvedObject"].get("uid") == metadata.get("uid")]
        return sorted(own, key=lambda event: event.get("lastTimestamp") or event.get("eventTime") or "")

    def ray(self, plural: str, name: str) -> dict[str, Any] | None:
        """Returns a RayCluster or RayJob: `plural` is rayclusters or rayjobs. None if there is none."""
        return self.get(f"{RAY}/namespaces/{self.namespace}/{plural}/{name}")

    def log(self, selector: str, container: str) -> str:
        """Returns the log of a container of the first pod with these labels. Raises NotRunning."""
        pods = self.pods(selector)
        if not pods:
            raise NotRunning(f"there is no pod {selector}", hint="./invokew up makes it")
        return self.pod_log(pods[0]["metadata"]["name"], container)

    def pod_log(self, pod: str, container: str, **query: str) -> str:
        """Returns the log of a pod's container. Raises NotRunning if it has no log yet."""
        path = f"{self._core}/pods/{pod}/log"
        answer = self._send("GET", path, {"container": container, **query})
        if answer.status in (400, 404):
            raise NotRunning(
                f"{container} has no log: {words(answer.data)}", hint="./invokew status says why"
            )
        self._require_success(answer, "GET", path)
        return str(answer.data, errors="replace")

    def apply(self, document: Mapping[str, Any]) -> None:
        """Creates the object, or sets its fields, without taking over fields of other managers.

        Raises FieldConflict if another manager has set a field to another value.
        """
        path = path_of(document)
        query = {"fieldManager": FIELD_MANAGER}
        try:
            made = self._call("PATCH", path, query, document)
        except FieldConflict as conflict:
            # For Kubernetes, fields patched in our name belong to another manager than applied ones.
            if conflict.managers != {FIELD_MANAGER}:
                raise
            made = self._call("PATCH", path, {**query, "force": "true"}, document)
        if made is None:
            require_namespace(self)
            raise ClusterUnreachable(
                f"the Kubernetes API at {self.url} does not know {path}", hint="./invokew up"
            )

    def replace(self, path: str, version: str, data: Mapping[str, str]) -> bool:
        """Sets these values of a Secret's `data`, in Base64, if it still has that version.

        Returns whether it had: another client may have changed it meanwhile.
        """
        body = {"metadata": {"resourceVersion": version}, "data": dict(data)}
        answer = self._send("PATCH", path, {}, body, "application/merge-patch+json")
        if answer.status == 409:
            return False
        self._require_success(answer, "PATCH", path)
        return True

    def patch(self, path: str, operations: Sequence[Mapping[str, Any]]) -> None:
        """Changes the object at `path` with a JSON Patch (RFC 6902), in our name.

        Raises NotReady if a `test` among the operations fails: another client has changed it meanwhile.
        """
        query = {"fieldManager": FIELD_MANAGER}
        answer = self._send("PATCH", path, query, list(operations), "application/json-patch+json")
        if answer.status == 422:
            # An admission controller's refusal has the same status.
            why = words(answer.data)
            raise NotReady(
                f"{path} was changed meanwhile, or must not be: {why}", hint="run the command again"
            )
        self._require_success(answer, "PATCH", path)

    def delete(self, path: str, **query: str) -> None:
        """Requests the removal of the object at `path`; does nothing if there is none.

        `query` as in gracePeriodSeconds="1": how long a pod's programs have to end.
        """
        self._call("DELETE", path, query)

    def require(self, verb: str, resource: str) -> None:
        """Checks a permission in the namespace, as in `get`, `pods/portforward`. Raises Forbidden."""
        if not self.allowed(verb, resource):
            raise forbidden(verb, resource, "", self.namespace)

    def allowed(self, verb: str, resource: str, group: str = "", *, everywhere: bool = False) -> bool:
        """Returns whether a permission is granted, as in `get`, `pods/portforward`: here, or `everywhere`."""
        kind, _, sub = resource.partition("/")
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {
                "resourceAttributes": {
                    "namespace": "" if everywhere else self.namespace,
                    "verb": verb,
                    "group": group,
                    "resource": kind,
                    "subresource": sub,
                }
            },
        }
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        answer = self._call("POST", path, {}, review) or {}
        return bool(answer["status"]["allowed"])

    def secret(self, name: str, key: str) -> str | None:
        """Returns one value of a Secret of the namespace; None if there is none."""
        document = self.get(f"{CORE}/namespaces/{self.namespace}/secrets/{name}")
        value = (document or {}).get("data", {}).get(key)
        return base64.b64decode(value).decode() if value else None

    def is_ready(self) -> bool:
        """Returns whether the API is ready: before, it may not know any permissions yet."""
        return bool(self._send("GET", "/readyz", {}).status == 200)

    def now(self) -> datetime:
        """Returns the time of the API's clock, to the second; this machine's time if the API sends none."""
        try:
            return parsedate_to_datetime(self._send("GET", "/version", {}).headers.get("Date", ""))
        except ValueError:
            return datetime.now(timezone.utc)

    @property
    def _core(self) -> str:
        return f"{CORE}/namespaces/{self.namespace}"

    @property
    def url(self) -> str:
        """Returns the API server's address."""
        return without_user(server(self.kubeconfig, self.context))

    def within(self, namespace: str) -> Kube:
        """Returns the same API, in another namespace."""
        return replace(self, namespace=namespace)

    def _call(
        self, method: str, path: str, query: Mapping[str, str], body: Mapping[str, Any] | None = None
    ) -> dict[str, Any] | None:
        kind = "application/apply-patch+yaml" if method == "PATCH" else ""
        answer = self._send(method, path, query, body, kind)
        if answer.status == 404:
            return None
        self._require_success(answer, method, path)
        return dict(json.loads(answer.data))

    def _send(
        self, method: str, path: str, query: Mapping[str, str], body: object = None, kind: str = ""
    ) -> Any:
        """Returns the response, whatever its status; retries once if the credentials may be old."""
        # Not at the top: it imports a large package, which only verbs for Kubernetes need.
        from bootstrap.kube.api_client import client

        known = client(self.kubeconfig, self.context)
        try:
            return known.send(method, path, query, body, kind)
        except CredentialsRefused:
            return client(self.kubeconfig, self.context).send(method, path, query, body, kind)

    def _require_success(self, answer: Any, method: str, path: str) -> None:
        """Raises the error that `refusal` returns for a failed request."""
        if 200 <= answer.status < 300:
            return
        raise refusal(self.url, method, path, answer.status, answer.data)


def path_of(document: Mapping[str, Any], plural: str = "") -> str:
    """Returns the path of an object, with its namespace if it has one."""
    version, metadata = document["apiVersion"], document["metadata"]
    namespace = f"/namespaces/{metadata['namespace']}" if "namespace" in metadata else ""
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    return f"{root}{namespace}/{plural or _plural(document['kind'])}/{metadata['name']}"


def _plural(kind: str) -> str:
    """Returns the resource of a kind, as in `networkpolicies`: the English plural, as Kubernetes has it."""
    name = kind.lower()
    if name.endswith("s"):
        return f"{name}es"
    return f"{name[:-1]}ies" if name.endswith("y") else f"{name}s"


def made_here(document: Mapping[str, Any]) -> bool:
    """Returns whether the object is ours: we applied it, and no other manager owns a field with us.

    The creator of an object owns its fields; a client that applies the same values owns them, too.
    """
    parts = document["metadata"].get("managedFields", [])
    own = [part["fieldsV1"] for part in parts if part["manager"] == FIELD_MANAGER]
    others = [part["fieldsV1"] for part in parts if part["manager"] != FIELD_MANAGER]
    return bool(own) and not any(_overlap(fields, more) for fields in own for more in others)


def _overlap(fields: Mapping[str, Any], more: Mapping[str, Any]) -> bool:
    both = (fields.keys() & more.keys()) - {"."}
    return any(not (fields[key] and more[key]) or _overlap(fields[key], more[key]) for key in both)


def require_namespace(kube: Kube) -> None:
    """Raises NamespaceTerminating if the namespace is being deleted, NotRunning if it does not exist."""
    namespace = kube.get(f"{CORE}/namespaces/{kube.namespace}")
    if namespace is None:
        raise NotRunning(
            f"there is no namespace {kube.namespace}",
            hint=f"kubectl --context {kube.context} create namespace {kube.namespace}",
        )
    if namespace["status"]["phase"] == "Terminating":
        raise NamespaceTerminating(
            f"the namespace {kube.namespace} is being deleted",
            hint="wait until it is gone and run ./invokew up, or set another namespace",
        )
