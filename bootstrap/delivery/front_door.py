"""Front door of a workshop: one address, through which each attendee reaches a place of their own."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from bootstrap import cache
from bootstrap.delivery import ingress
from bootstrap.delivery.door_secrets import LIST, DoorSecrets, Listed
from bootstrap.delivery.ingress import Ingress
from bootstrap.errors import NotOurs
from bootstrap.instance import Instance
from bootstrap.kube import trouble
from bootstrap.kube.api import CORE, Kube, made_here, path_of
from bootstrap.kube.sizes import Size, of_pod
from bootstrap.settings import ROOT
from bootstrap.sources.source import Images
from bootstrap.steps.differences import SPEC, made_of
from bootstrap.steps.place_bounds import DOOR
from bootstrap.steps.ray_cluster import PROGRESS
from bootstrap.steps.removal import remove_ours, removed
from rayside import yaml_file
from rayside.plain import counted
from rayside.steps.step import Report, Status, missing, pending, ready

MANIFEST = ROOT / "k8s" / "front-door.yaml"
PORT, TEACHER_PORT = 8443, 8445
# A ConfigMap holds 1 MiB in all, with its names.
_LARGEST_PART = 1_000_000
_RIGHTS = "rbac.authorization.k8s.io"


def size() -> Size:
    """Returns the resource requests of the door's pod."""
    return of_pod(yaml_file.read(MANIFEST)["spec"]["template"]["spec"])


@dataclass(frozen=True)
class FrontDoor:
    """The door runs, and lists these places.

    Attributes:
        instance: the cluster beside which the places are; `kube` is its namespace.
        images: the cluster's images; the door runs in the workspace's image.
        program: the door's program, static for Linux; `version` identifies it.
        listed: the door's list of places; None to inspect an existing door.
        ingress: host that leads to it through the cluster's Ingress controller; None without one.
    """

    instance: Instance
    kube: Kube
    images: Images
    program: Path
    version: str
    listed: Listed | None = None
    ingress: Ingress | None = None
    needs: tuple[str, ...] = ()
    name: str = "front-door"
    title: str = "front door of the workshop"
    patience: float = 120.0

    @property
    def label(self) -> str:
        """Returns the name of all its objects."""
        return f"{self.instance.name}-door"

    @property
    def selector(self) -> str:
        return f"{DOOR}={self.instance.name}"

    def check(self) -> Status:
        deployment = self.kube.get(self._path("deployments"))
        if deployment is None:
            return missing("there is none")
        self._require_ours(deployment)
        if made_of(deployment) != self._made_of:
            return missing("it is of an earlier version")
        if any(self.kube.get(path_of(document)) is None for document in self._beside()):
            return missing("not all of it is there")
        if self.listed and self.secrets.told() != self.listed:
            return missing("it does not know all places")
        status = deployment.get("status") or {}
        is_current = status.get("observedGeneration") == deployment["metadata"]["generation"]
        if is_current and status.get("availableReplicas"):
            listed = self.listed or self.secrets.told()
            return ready(counted(len(listed.places), "place") if listed else "it knows no places")
        error = trouble.first_problem(self.kube, self.selector)
        return pending(f"{error.message}; {error.hint}" if error else "it is starting")

    def apply(self, report: Report) -> None:
        """Applies all objects, and removes an unwanted Ingress. Raises NotOurs, FieldConflict."""
        if not self._ingresses():
            # Before the Deployment records the current state: after that, no old Ingress is looked for.
            remove_ours(self.kube, self._ingress_there(), report)
        for document in (*self._beside(), *self._programs, self._deployment()):
            present = self.kube.get(path_of(document))
            if present is not None:
                self._require_ours(present)
            self.kube.apply(document)

    def undo(self, report: Report) -> str | None:
        maps = self.kube.items(f"{CORE}/namespaces/{self.kube.namespace}/configmaps", self.selector)
        paths = [
            self._path("deployments"),
            *(
                f"{CORE}/namespaces/{self.kube.namespace}/configmaps/{each['metadata']['name']}"
                for each in maps
            ),
            *(path_of(document) for document in self._beside()),
        ]
        # The settings may not name its host any more.
        if not self._ingresses():
            paths += map(path_of, self._ingress_there())
        left = [removed(self.kube, path, path.rpartition("/")[2], report) for path in paths]
        return next(filter(None, left), None)

    def telling(self, listed: Listed) -> FrontDoor:
        """Returns the door with this list of places."""
        return replace(self, listed=listed)

    @property
    def secrets(self) -> DoorSecrets:
        """Returns the Secrets with the door's list and claims."""
        return DoorSecrets(self.kube, self.label)

    # --- what it is made of ----------------------------------------------------------------

    def _ingresses(self) -> list[dict[str, Any]]:
        return self.ingress.documents(self._metadata()) if self.ingress else []

    def _ingress_there(self) -> list[dict[str, Any]]:
        return [*filter(None, [ingress.there(self.kube, self._metadata())])]

    def _deployment(self) -> dict[str, Any]:
        document = dict(yaml_file.read(MANIFEST))
        labels = {**self.instance.labels, DOOR: self.instance.name}
        document["metadata"] = self._metadata({SPEC: json.dumps(self._made_of, sort_keys=True)})
        spec = document["spec"]
        spec["selector"] = {"matchLabels": {DOOR: self.instance.name}}
        spec["template"]["metadata"] = {"labels": labels}
        pod = spec["template"]["spec"]
        pod["serviceAccountName"] = self.label
        if self.images.pull_secret:
            pod["imagePullSecrets"] = self.images.pull_secrets
        (container,) = pod["containers"]
        container["image"] = self.images.workspace
        container["imagePullPolicy"] = self.images.pull_policy
        secrets_url = f"https://kubernetes.default.svc{CORE}/namespaces/{self.kube.namespace}/secrets"
        for name, secret in (("RAYSIDE_PLACES", self.label), ("RAYSIDE_CLAIMS", self.secrets.claims_name)):
            container["env"].append({"name": name, "value": f"{secrets_url}/{secret}"})
        container["env"].append({"name": "RAYSIDE_PROGRESS", "value": PROGRESS})
        if self.ingress:
            container["env"].append({"name": "RAYSIDE_HOST", "value": self.ingress.host})
            container["ports"].append({"name": ingress.PORT_NAME, "containerPort": ingress.PORT})
        boot, _, tls = pod["volumes"]
        boot["projected"]["sources"] = [
            {"configMap": {"name": each["metadata"]["name"]}} for each in self._programs
        ]
        tls["secret"]["secretName"] = f"{self.label}-tls"
        return document

    @cached_property
    def _programs(self) -> list[dict[str, Any]]:
        """Returns the ConfigMaps with the program's parts, whose names sort in order."""
        program, size = self.program.read_bytes(), _LARGEST_PART
        parts = {f"part-{at // size:02}": program[at : at + size] for at in range(0, len(program), size)}
        return [
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {**self._metadata(), "name": f"{self.label}-{name}"},
                "binaryData": {name: base64.b64encode(part).decode()},
            }
            for name, part in parts.items()
        ]

    def _beside(self) -> tuple[dict[str, Any], ...]:
        """Returns the objects that the pod needs, in order of creation."""
        metadata = self._metadata()
        role = {"apiGroup": _RIGHTS, "kind": "Role", "name": self.label}
        account = {"kind": "ServiceAccount", "name": self.label, "namespace": self.kube.namespace}
        verbs = {self.label: ["get"], self.secrets.claims_name: ["get", "patch"]}
        rules = [
            {"apiGroups": [""], "resources": ["secrets"], "resourceNames": [name], "verbs": may}
            for name, may in verbs.items()
        ]
        plain = {ingress.PORT_NAME: ingress.PORT} if self.ingress else {}
        ports = [{"port": port, "protocol": "TCP"} for port in (PORT, TEACHER_PORT, *plain.values())]
        labels = {DOOR: self.instance.name}
        policy = {
            "podSelector": {"matchLabels": labels},
            "policyTypes": ["Ingress"],
            "ingress": [{"ports": ports}],
        }
        service = {
            "selector": labels,
            "ports": [
                {"name": name, "port": port, "targetPort": port, "protocol": "TCP"}
                for name, port in {"door": PORT, **plain}.items()
            ],
        }
        listed = {LIST: self.listed.text()} if self.listed else {}
        return (
            {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": listed},
            # The door alone writes into it.
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {**metadata, "name": self.secrets.claims_name},
            },
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata},
            {"apiVersion": f"{_RIGHTS}/v1", "kind": "Role", "metadata": metadata, "rules": rules},
            {
                "apiVersion": f"{_RIGHTS}/v1",
                "kind": "RoleBinding",
                "metadata": metadata,
                "roleRef": role,
                "subjects": [account],
            },
            {
                "apiVersion": "networking.k8s.io/v1",
                "kind": "NetworkPolicy",
                "metadata": metadata,
                "spec": policy,
            },
            {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": service},
            *self._ingresses(),
        )

    @property
    def _made_of(self) -> dict[str, Any]:
        return {
            "program": self.version.removeprefix("sha256:")[:12],
            "image": self.images.workspace,
            "manifest": cache.key(MANIFEST.read_text()),
            **({"pull secret": self.images.pull_secret} if self.images.pull_secret else {}),
            **({"ingress": vars(self.ingress)} if self.ingress else {}),
        }

    def _metadata(self, annotations: Mapping[str, str] | None = None) -> dict[str, Any]:
        labels = {**self.instance.labels, DOOR: self.instance.name}
        metadata = {"name": self.label, "namespace": self.kube.namespace, "labels": labels}
        return {**metadata, "annotations": dict(annotations)} if annotations else metadata

    def _path(self, plural: str) -> str:
        return f"/apis/apps/v1/namespaces/{self.kube.namespace}/{plural}/{self.label}"

    def _require_ours(self, document: Mapping[str, Any]) -> None:
        if not made_here(document):
            what = f"{document.get('kind', 'Deployment')} {document['metadata']['name']}"
            raise NotOurs(
                f"there is a {what} in namespace {self.kube.namespace} that Rayside did not make",
                hint="make the workshop beside a cluster of another name: --name NAME",
            )
