"""Browser workspace of an existing RayCluster, with a relay, as one pod beside it.

The pod has no permissions in Kubernetes. A Secret has Ray's address; the pod connects to the dashboard
through the head's service, and to workers through the pods' network, like the relay beside our own heads.
"""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from bootstrap import cache, codespaces
from bootstrap.errors import NotOurs
from bootstrap.instance import Instance
from bootstrap.kube import trouble
from bootstrap.kube.api import CORE, Kube, made_here
from bootstrap.settings import POD, ROOT
from bootstrap.sources.source import Images
from bootstrap.steps.differences import SPEC, difference, made_of
from bootstrap.steps.ray_cluster import DASHBOARD_PORT, RELAY_PORT, WORKSPACE_PORT
from bootstrap.steps.removal import removed
from bootstrap.steps.secret_file import SecretFile
from rayside import yaml_file
from rayside.connection.instance import Ports
from rayside.errors import NotRunning
from rayside.relay.config import Config, Masking, variables
from rayside.steps.existing_ray import ExistingRay
from rayside.steps.ray_beside import authentication
from rayside.steps.step import Report, Status, drifted, missing, pending, ready
from rayside.users import in_a_name

MANIFEST = ROOT / "k8s" / "workspace-pod.yaml"
# Folder that `open` shows, in the image's clone.
FOLDER = "/home/ray/rayside/example/working_dir"
# Path of the Secret in the pod.
_PLACE = Path("/run/ray")
_LABEL = "rayside.dev/workspace"
_FILES = {"image": "the workspace's image", "manifest": "the manifest"}


def new_name(user: str) -> str:
    """Returns a unique name of a pod, which shows its user."""
    return f"workspace-{in_a_name(user)}-{secrets.token_hex(3)}"


def selector(instance: Instance) -> str:
    """Returns the pod's label selector."""
    return f"{_LABEL}={instance.workspace_pod}"


@dataclass(frozen=True)
class WorkspaceSecret:
    """The pod's Secret: the password, the token, and the addresses of Ray and the relay."""

    instance: Instance
    kube: Kube
    head: ExistingRay
    # Port of the dashboard on the head.
    port: int
    password: SecretFile
    name: str = "workspace-secret"
    title: str = "Secret for the workspace's pod"
    needs: tuple[str, ...] = ("ray", "workspace-password")

    def check(self) -> Status:
        document = self.kube.get(self._path)
        if document is None:
            return missing("not made yet")
        _require_ours(document, "Secret")
        contents = self.contents().items()
        if document.get("data") != {key: base64.b64encode(text.encode()).decode() for key, text in contents}:
            return missing("it is of an earlier token, or another place")
        return ready(f"{self.instance.workspace_pod} in {self.kube.namespace}")

    def apply(self, report: Report) -> None:
        metadata = _metadata(self.instance)
        self.kube.apply(
            {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": self.contents()}
        )

    def undo(self, report: Report) -> str | None:
        return removed(self.kube, self._path, f"the Secret {self.instance.workspace_pod}", report)

    def contents(self) -> dict[str, str]:
        """Returns the values by key, which is the file's name in the pod. Raises NotRunning."""
        token = _PLACE / "auth_token"
        ports = Ports(DASHBOARD_PORT, 10001, RELAY_PORT, WORKSPACE_PORT)
        here = Instance(
            *(self.instance.name, POD, "", "", self.instance.location, ports),
            address=self.dashboard,
            user=self.instance.user,
        )
        relay = Config(
            host="127.0.0.1",
            port=RELAY_PORT,
            dashboard=self.dashboard,
            token_file=token,
            shared_files=False,
            rays_token=self.head.asks_for_token,
            user=self.instance.user,
        )
        cluster = {
            "dashboard": self.dashboard,
            "relay": {"host": relay.host, "port": relay.port},
            "token_file": str(token),
            # `bring-verbs` replaces CLONE by the folder of its clone.
            "submit": ["CLONE/invokew", "submit"],
            "environment": {},
            "shared_files": relay.shared_files,
            "target": POD,
            "user": self.instance.user,
        }
        return {
            "password": self.password.text() or "",
            "auth_token": self.head.token.read_text(),
            "cluster.json": json.dumps(cluster, indent=2),
            "instance.json": here.document(),
            "relay.json": relay.document(),
        }

    @cached_property
    def dashboard(self) -> str:
        """Returns the dashboard's URL for pods. Raises NotRunning."""
        cluster = self.kube.ray("rayclusters", self.instance.their_cluster) or {}
        service = str(cluster.get("status", {}).get("head", {}).get("serviceName") or "")
        if not service:
            raise NotRunning(
                f"KubeRay names no service of the head of {self.instance.place}",
                hint="wait until that RayCluster is ready; kubectl get rayclusters shows it",
            )
        return f"http://{service}.{self.kube.namespace}.svc:{self.port}"

    @property
    def _path(self) -> str:
        return f"{CORE}/namespaces/{self.kube.namespace}/secrets/{self.instance.workspace_pod}"


@dataclass(frozen=True)
class WorkspacePod:
    """The pod, with a container for the workspace and one for the relay."""

    instance: Instance
    kube: Kube
    head: ExistingRay
    secret: WorkspaceSecret
    images: Images
    masking: Masking
    name: str = "workspace-pod"
    title: str = "pod of the workspace and the relay"
    needs: tuple[str, ...] = ("workspace-secret", "images")
    # Timeout in seconds: the node may have to pull a gigabyte.
    patience: float = 300.0

    def check(self) -> Status:
        pod = self.kube.get(self._path)
        if pod is None:
            return missing("there is none")
        _require_ours(pod, "pod")
        if "deletionTimestamp" in pod["metadata"]:
            return pending("the earlier one is being removed")
        if (was := made_of(pod)) != self._made_of:
            return drifted(difference(was, self._made_of, _FILES))
        if wait := trouble.waiting(pod):
            error = trouble.first_problem(self.kube, selector(self.instance))
            return pending(f"{error.message}; {error.hint}" if error else wait)
        return ready(f"{self.instance.workspace_pod} in {self.kube.namespace}")

    def apply(self, report: Report) -> None:
        self.kube.apply(self.manifest())

    def undo(self, report: Report) -> str | None:
        return removed(self.kube, self._path, f"the pod {self.instance.workspace_pod}", report)

    def manifest(self) -> dict[str, Any]:
        """Returns k8s/workspace-pod.yaml with names, labels, the image, and its inputs as annotation."""
        document = dict(yaml_file.read(MANIFEST))
        name = self.instance.workspace_pod
        document["metadata"] = {
            **_metadata(self.instance),
            "annotations": {SPEC: json.dumps(self._made_of, sort_keys=True)},
        }
        if self.images.pull_secret:
            document["spec"]["imagePullSecrets"] = self.images.pull_secrets
        workspace, relay = document["spec"]["containers"]
        for container in (workspace, relay):
            container["image"] = self.images.workspace
            container["imagePullPolicy"] = self.images.pull_policy
        for variable in workspace["env"]:
            if variable["name"] == "PASSWORD":
                variable["valueFrom"]["secretKeyRef"]["name"] = name
        workspace["env"] += _variables(self._environment)
        relay["env"] += _variables(self._masked)
        place, _ = document["spec"]["volumes"]
        place["secret"]["secretName"] = name
        return document

    @property
    def _environment(self) -> dict[str, str]:
        mode = authentication(self.head)["RAY_AUTH_MODE"]
        origins = " ".join(codespaces.trusted_origins(self.instance.ports.workspace))
        return {
            "DEFAULT_WORKSPACE": FOLDER,
            "RAY_CLUSTER_NAME": self.instance.their_cluster,
            "RAY_API_SERVER_ADDRESS": self.secret.dashboard,
            "RAY_AUTH_MODE": mode,
            **({"TRUSTED_ORIGINS": origins} if origins else {}),
        }

    @property
    def _masked(self) -> dict[str, str]:
        return {name: value for name, value in variables(self.masking).items() if value}

    @property
    def _made_of(self) -> dict[str, Any]:
        return {
            "image": self.images.workspace,
            **({"pull secret": self.images.pull_secret} if self.images.pull_secret else {}),
            "environment": self._environment,
            "masked": self._masked,
            "manifest": cache.key(MANIFEST.read_text()),
        }

    @property
    def _path(self) -> str:
        return f"{CORE}/namespaces/{self.kube.namespace}/pods/{self.instance.workspace_pod}"


def _variables(values: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in values.items()]


def _metadata(instance: Instance) -> dict[str, Any]:
    name = instance.workspace_pod
    labels = {**instance.labels, _LABEL: name}
    return {"name": name, "namespace": instance.namespace, "labels": labels}


def _require_ours(document: Mapping[str, Any], kind: str) -> None:
    if not made_here(document):
        raise NotOurs(
            f"there is a {kind} {document['metadata']['name']} that Rayside did not make",
            hint="./invokew down, then ./invokew up with --workspace, chooses another name",
        )
