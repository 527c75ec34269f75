"""Calls the Kubernetes API, in JSON: reads, server-side applies, and removes."""

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
# All that is applied is applied in this name. It takes its own fields over again, and nobody else's
# (https://kubernetes.io/docs/reference/using-api/server-side-apply/#conflicts).
FIELD_MANAGER = "rayside"


@dataclass(frozen=True)
class Kube:
    """One context of one kubeconfig, and the namespace that Ray is in.

    Each call raises ClusterUnreachable; CredentialsRefused, also where they have expired and can't be
    renewed; Forbidden where a right is lacking.
    """

    kubeconfig: Path
    context: str
    namespace: str = "default"

    @property
    def options(self) -> list[str]:
        """Returns the options by which kubectl and its plugins reach this context."""
        return ["--kubeconfig", str(self.kubeconfig), "--context", self.context]

    def get(self, path: str, **query: str) -> dict[str, Any] | None:
        """Returns the object, or the list, at `path`, as in `/api/v1/nodes`; None where there is none."""
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
        """Returns a RayCluster or RayJob: `plural` is rayclusters or rayjobs. None where there is none."""
        return self.get(f"{RAY}/namespaces/{self.namespace}/{plural}/{name}")

    def log(self, selector: str, container: str) -> str:
        """Returns what a container of the first pod with these labels has printed. Raises NotRunning."""
        pods = self.pods(selector)
        if not pods:
            raise NotRunning(f"there is no pod {selector}", hint="./invokew up makes it")
        return self.pod_log(pods[0]["metadata"]["name"], container)

    def pod_log(self, pod: str, container: str, **query: str) -> str:
        """Returns what a pod's container has printed. Raises NotRunning where it has no log yet."""
        path = f"{self._core}/pods/{pod}/log"
        answer = self._send("GET", path, {"container": container, **query})
        if answer.status in (400, 404):
            raise NotRunning(
                f"{container} has no log: {words(answer.data)}", hint="./invokew status says why"
            )
        self._require_success(answer, "GET", path)
        return str(answer.data, errors="replace")

    def apply(self, document: Mapping[str, Any]) -> None:
        """Makes the object, or makes its fields so, and takes no field from anybody else.

        Raises FieldConflict where another manager has set one of them otherwise.
        """
        path = path_of(document)
        query = {"fieldManager": FIELD_MANAGER}
        try:
            made = self._call("PATCH", path, query, document)
        except FieldConflict as conflict:
            # For Kubernetes, what was patched in our name was set by another manager than what was applied.
            if conflict.managers != {FIELD_MANAGER}:
                raise
            made = self._call("PATCH", path, {**query, "force": "true"}, document)
        if made is None:
            require_namespace(self)
            raise ClusterUnreachable(
                f"the Kubernetes API at {self.url} does not know {path}", hint="./invokew up"
            )

    def replace(self, path: str, version: str, data: Mapping[str, str]) -> bool:
        """Makes these values of a Secret's `data` so, in Base64, where it is still of that version.

        Returns whether it was: somebody else may have changed it meanwhile.
        """
        body = {"metadata": {"resourceVersion": version}, "data": dict(data)}
        answer = self._send("PATCH", path, {}, body, "application/merge-patch+json")
        if answer.status == 409:
            return False
        self._require_success(answer, "PATCH", path)
        return True

    def patch(self, path: str, operations: Sequence[Mapping[str, Any]]) -> None:
        """Changes the object at `path` by a JSON Patch (RFC 6902), in our name.

        Raises NotReady where a `test` among the operations fails: somebody else has changed it meanwhile.
        """
        query = {"fieldManager": FIELD_MANAGER}
        answer = self._send("PATCH", path, query, list(operations), "application/json-patch+json")
        if answer.status == 422:
            # So is a change that an admission controller refuses.
            why = words(answer.data)
            raise NotReady(
                f"{path} was changed meanwhile, or must not be: {why}", hint="run the command again"
            )
        self._require_success(answer, "PATCH", path)

    def delete(self, path: str, **query: str) -> None:
        """Asks for the removal of the object at `path`; does nothing where there is none.

        `query` is as in gracePeriodSeconds="1": how long a pod's programs have to end.
        """
        self._call("DELETE", path, query)

    def require(self, verb: str, resource: str) -> None:
        """Checks that we may, as in `get`, `pods/portforward`, in the namespace. Raises Forbidden."""
        if not self.allowed(verb, resource):
            raise forbidden(verb, resource, "", self.namespace)

    def allowed(self, verb: str, resource: str, group: str = "", *, everywhere: bool = False) -> bool:
        """Returns whether we may, as in `get`, `pods/portforward`: in the namespace, or `everywhere`."""
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
        """Returns one value of a Secret of the namespace; None where there is none."""
        document = self.get(f"{CORE}/namespaces/{self.namespace}/secrets/{name}")
        value = (document or {}).get("data", {}).get(key)
        return base64.b64decode(value).decode() if value else None

    def is_ready(self) -> bool:
        """Returns whether the API has come up whole: before, it may know nobody's rights yet."""
        return bool(self._send("GET", "/readyz", {}).status == 200)

    def now(self) -> datetime:
        """Returns the time by the API's clock, to the second; by this machine's where it does not say."""
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
        """Returns the answer, whatever it is; asks once more where the credentials may be old."""
        # It imports a large package, which no other verb than those of Kubernetes has to wait for.
        from bootstrap.kube.api_client import client

        known = client(self.kubeconfig, self.context)
        try:
            return known.send(method, path, query, body, kind)
        except CredentialsRefused:
            return client(self.kubeconfig, self.context).send(method, path, query, body, kind)

    def _require_success(self, answer: Any, method: str, path: str) -> None:
        """Raises what `refusal` makes of an error."""
        if 200 <= answer.status < 300:
            return
        raise refusal(self.url, method, path, answer.status, answer.data)


def path_of(document: Mapping[str, Any], plural: str = "") -> str:
    """Returns the path of an object, which has its namespace in it where it is in one."""
    version, metadata = document["apiVersion"], document["metadata"]
    namespace = f"/namespaces/{metadata['namespace']}" if "namespace" in metadata else ""
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    return f"{root}{namespace}/{plural or _plural(document['kind'])}/{metadata['name']}"


def _plural(kind: str) -> str:
    """Returns the resource of a kind, as in `networkpolicies`: English, as Kubernetes' own kinds are."""
    name = kind.lower()
    if name.endswith("s"):
        return f"{name}es"
    return f"{name[:-1]}ies" if name.endswith("y") else f"{name}s"


def made_here(document: Mapping[str, Any]) -> bool:
    """Returns whether the object is ours: we applied it, and no other manager holds a field with us.

    Who makes an object holds its fields; who applies the same values over it holds them too.
    """
    parts = document["metadata"].get("managedFields", [])
    own = [part["fieldsV1"] for part in parts if part["manager"] == FIELD_MANAGER]
    others = [part["fieldsV1"] for part in parts if part["manager"] != FIELD_MANAGER]
    return bool(own) and not any(_overlap(fields, more) for fields in own for more in others)


def _overlap(fields: Mapping[str, Any], more: Mapping[str, Any]) -> bool:
    both = (fields.keys() & more.keys()) - {"."}
    return any(not (fields[key] and more[key]) or _overlap(fields[key], more[key]) for key in both)


def require_namespace(kube: Kube) -> None:
    """Raises NamespaceTerminating where the namespace is being deleted, NotRunning where there is none."""
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
