"""Calls the Kubernetes API, in JSON: reads, and the few writes that are not manifests."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bootstrap.errors import ClusterUnreachable, NamespaceTerminating, NotRunning
from bootstrap.loopback import is_loopback

if TYPE_CHECKING:
    from kubernetes.client import ApiClient

CORE = "/api/v1"
RAY = "/apis/ray.io/v1"
# A connection, and an answer, may take so many seconds.
_PATIENCE = (3, 15)


@dataclass(frozen=True)
class Kube:
    """One context of one kubeconfig, and the namespace that Ray is in."""

    kubeconfig: Path
    context: str
    namespace: str = "default"

    @property
    def options(self) -> list[str]:
        """The options by which kubectl and its plugins reach this context."""
        return ["--kubeconfig", str(self.kubeconfig), "--context", self.context]

    def get(self, path: str, **query: str) -> dict[str, Any] | None:
        """Returns the object, or the list, at `path`, as in `/api/v1/nodes`; None where there is none.

        Raises ClusterUnreachable.
        """
        return self._call("GET", path, query)

    def items(self, path: str, selector: str = "", fields: str = "") -> list[dict[str, Any]]:
        """Returns the items of the list at `path`; `selector` selects by label, `fields` by field."""
        query = {"labelSelector": selector, "fieldSelector": fields}
        document = self._call("GET", path, {key: value for key, value in query.items() if value})
        return list(document["items"]) if document else []

    def pods(self, selector: str) -> list[dict[str, Any]]:
        """Returns the namespace's pods with these labels, as in `ray.io/cluster=rayside`."""
        return self.items(f"{self._core}/pods", selector)

    def events(self, kind: str, name: str) -> list[dict[str, Any]]:
        """Returns what happened to an object, oldest first."""
        fields = f"involvedObject.kind={kind},involvedObject.name={name}"
        events = self.items(f"{self._core}/events", fields=fields)
        return sorted(events, key=lambda event: event.get("lastTimestamp") or event.get("eventTime") or "")

    def ray(self, plural: str, name: str) -> dict[str, Any] | None:
        """Returns a RayCluster or RayJob: `plural` is rayclusters or rayjobs. None where there is none."""
        return self.get(f"{RAY}/namespaces/{self.namespace}/{plural}/{name}")

    def log(self, selector: str, container: str) -> str:
        """Returns what a container of the first pod with these labels has printed. Raises NotRunning."""
        from kubernetes.client import CoreV1Api
        from kubernetes.client.exceptions import ApiException

        pods = self.pods(selector)
        if not pods:
            raise NotRunning(f"there is no pod {selector}", hint="./invokew up makes it")
        try:
            return str(
                CoreV1Api(self.client).read_namespaced_pod_log(
                    pods[0]["metadata"]["name"], self.namespace, container=container
                )
            )
        except ApiException as error:
            raise NotRunning(
                f"{container} has no log: {error.reason}", hint="./invokew status says why"
            ) from None

    def delete(self, path: str, **query: str) -> None:
        """Asks for the removal of the object at `path`; does nothing where there is none.

        `query` is as in gracePeriodSeconds="1": how long a pod's programs have to end.
        """
        self._call("DELETE", path, query)

    @property
    def _core(self) -> str:
        return f"{CORE}/namespaces/{self.namespace}"

    @property
    def url(self) -> str:
        """Returns the API server's address."""
        return str(self.client.configuration.host)

    @cached_property
    def client(self) -> ApiClient:
        """Returns a client. Raises ClusterUnreachable where the kubeconfig does not lead to one."""
        import yaml
        from kubernetes import config
        from kubernetes.client import ApiClient, Configuration
        from urllib3 import Retry

        if not self.kubeconfig.exists():
            raise ClusterUnreachable("there is no cluster yet", hint="./invokew up makes one")
        loaded = Configuration()
        try:
            config.load_kube_config(str(self.kubeconfig), self.context, loaded)  # type: ignore[no-untyped-call]
        except (config.ConfigException, yaml.YAMLError, OSError) as error:
            raise ClusterUnreachable(
                f"{self.kubeconfig} does not lead to a cluster: {error}", hint="./invokew up makes it anew"
            ) from None
        if is_loopback(str(loaded.host)):
            loaded.proxy = None
        # The API refuses requests for a custom resource for a moment, while it sets that up.
        loaded.retries = Retry(
            connect=0, read=0, status=5, status_forcelist=(429, 500, 503), backoff_factor=0.2
        )
        return ApiClient(loaded)

    def _call(self, method: str, path: str, query: dict[str, str]) -> dict[str, Any] | None:
        from kubernetes.client.exceptions import ApiException
        from urllib3.exceptions import HTTPError

        request = self.client.param_serialize(
            method,
            path,
            query_params=list(query.items()),
            header_params={"Accept": "application/json"},
            auth_settings=["BearerToken"],
        )
        try:
            answer = self.client.call_api(*request, _request_timeout=_PATIENCE)
            body = answer.read()  # type: ignore[no-untyped-call]
            if answer.status == 404:
                return None
            if not 200 <= answer.status < 300:
                raise ApiException(status=answer.status, reason=answer.reason)
            return dict(json.loads(body))
        except ApiException as error:
            raise ClusterUnreachable(
                f"the Kubernetes API at {self.url} refused {method} {path}: {error.status} {error.reason}",
                hint="./invokew status shows what is left",
            ) from None
        except (HTTPError, OSError):
            raise ClusterUnreachable(
                f"the Kubernetes API at {self.url} does not answer", hint="./invokew up mends the cluster"
            ) from None


def head_selector(ray_cluster: str) -> str:
    """Returns the label selector of a head pod (KubeRay, ray-operator/controllers/ray/utils/constant.go)."""
    return f"ray.io/cluster={ray_cluster},ray.io/node-type=head"


def require_namespace(kube: Kube) -> None:
    """Raises NamespaceTerminating where the namespace is being deleted; nothing can be made in it."""
    namespace = kube.get(f"{CORE}/namespaces/{kube.namespace}")
    if namespace and namespace["status"]["phase"] == "Terminating":
        raise NamespaceTerminating(
            f"the namespace {kube.namespace} is being deleted",
            hint="wait until it is gone and run ./invokew up, or set another namespace",
        )
