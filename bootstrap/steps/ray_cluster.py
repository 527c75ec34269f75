"""Makes the standing RayCluster: its password, itself, and the token that its clients need."""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bootstrap import cache, codespaces, yaml_file
from bootstrap.errors import NotRunning
from bootstrap.instance import Instance
from bootstrap.kube import trouble
from bootstrap.kube.api import CORE, Kube, require_namespace
from bootstrap.private_file import write_private
from bootstrap.ray.state import Dashboard
from bootstrap.settings import RAY_VERSION, ROOT, Settings
from bootstrap.shell import Shell
from bootstrap.sources.source import Images
from bootstrap.step import Report, Status, difference, drifted, missing, pending, ready
from bootstrap.steps import kuberay

MANIFEST = ROOT / "k8s" / "ray-cluster.yaml"
NAME = "rayside"
DASHBOARD_PORT, WORKSPACE_PORT, RELAY_PORT = 8265, 8443, 5678
WORKSPACE_SECRET = "rayside-workspace"
_SPEC = "rayside.dev/spec"
# No setting decides these parts of it: the checkout does, and which extensions the cache has.
_FILES = {"ray": "Ray's image", "workspace": "the workspace's image", "manifest": "the manifest"}


@dataclass(frozen=True)
class WorkspacePassword:
    """A Secret with the workspace's password, made once at random."""

    shell: Shell
    kube: Kube
    kubectl: Path
    instance: Instance
    name: str = "workspace-password"
    title: str = "password of the workspace"
    needs: tuple[str, ...] = ("kubeconfig", "kubectl")
    patience: float = 0.0

    def password(self) -> str | None:
        """Returns the password; None where there is no Secret."""
        return secret(self.kube, WORKSPACE_SECRET, "password")

    def check(self) -> Status:
        require_namespace(self.kube)
        return ready(f"in the Secret {WORKSPACE_SECRET}") if self.password() else missing("not made yet")

    def apply(self, report: Report) -> None:
        manifest = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": WORKSPACE_SECRET, "namespace": self.kube.namespace},
            "stringData": {"password": secrets.token_urlsafe(18)},
        }
        file = self.instance.folder / "workspace-secret.json"
        try:
            write_private(file, json.dumps(manifest))
            kuberay.apply(self.shell, self.kubectl, self.kube, file)
        finally:
            file.unlink(missing_ok=True)

    def undo(self, report: Report) -> None:
        """Does nothing: it goes with the cluster."""


@dataclass(frozen=True)
class RayCluster:
    """One head with the workspace beside it, and its workers, all of them ready."""

    shell: Shell
    settings: Settings
    kube: Kube
    kubectl: Path
    images: Images
    instance: Instance
    needs: tuple[str, ...] = ("custom-resources", "workspace-password", "images")
    name: str = "ray-cluster"
    title: str = f"RayCluster {NAME}"

    @property
    def patience(self) -> float:
        return self.settings.ray_patience

    @property
    def selector(self) -> str:
        """Returns the labels of its pods."""
        return f"ray.io/cluster={NAME}"

    def check(self) -> Status:
        cluster = self.kube.ray("rayclusters", NAME)
        if cluster is None:
            require_namespace(self.kube)
            return missing("there is none")
        if "deletionTimestamp" in cluster["metadata"]:
            return pending("the earlier one is being removed")
        was = cluster["metadata"].get("annotations", {}).get(_SPEC)
        spec = self.manifest()["metadata"]["annotations"][_SPEC]
        if was != spec:
            return drifted(difference(json.loads(was or "{}"), json.loads(spec), _FILES))
        pods = self.kube.pods(self.selector)
        if behind := left_behind(pods):
            return missing(f"{', '.join(behind)} joined an earlier head")
        waits = [f"{pod['metadata']['name']}: {wait}" for pod in pods if (wait := trouble.waiting(pod))]
        wanted_pods = 1 + self.settings.ray_workers
        if not waits and len(pods) == wanted_pods:
            return ready(f"Ray {RAY_VERSION}, {self.settings.ray_workers} workers")
        if waits and (error := trouble.first_problem(self.kube, self.selector)):
            # It is said, not raised: what was killed with its engine, or lost its head, comes back by itself.
            return pending(f"{error.message}; {error.hint}")
        return pending("; ".join(waits) or f"{len(pods)} of {wanted_pods} pods")

    def apply(self, report: Report) -> None:
        require_namespace(self.kube)
        file = self.instance.folder / "ray-cluster.json"
        write_private(file, json.dumps(self.manifest()))
        kuberay.apply(self.shell, self.kubectl, self.kube, file)
        for pod in left_behind(self.kube.pods(self.selector)):
            report(f"removing {pod}, KubeRay makes another")
            # A pod that is asked to end takes all its time, 30 s (measured), and nothing is left to save.
            self.kube.delete(f"{CORE}/namespaces/{self.kube.namespace}/pods/{pod}", gracePeriodSeconds="1")

    def undo(self, report: Report) -> None:
        """Does nothing: it goes with the cluster."""

    def manifest(self) -> dict[str, Any]:
        """Returns k8s/ray-cluster.yaml with the images and the number of workers, and what it is made of."""
        document = dict(yaml_file.read(MANIFEST))
        origins = " ".join(codespaces.trusted_origins(self.instance.ports.workspace))
        spec = document["spec"]
        for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
            for container in group["template"]["spec"]["containers"]:
                ray = container["name"] in ("ray-head", "ray-worker")
                container["image"] = self.images.ray if ray else self.images.workspace
                if origins and container["name"] == "workspace":
                    container["env"].append({"name": "TRUSTED_ORIGINS", "value": origins})
        spec["rayVersion"] = RAY_VERSION
        spec["workerGroupSpecs"][0]["replicas"] = self.settings.ray_workers
        made_of = {
            "ray": self.images.ray,
            "workspace": self.images.workspace,
            "workers": str(self.settings.ray_workers),
            "trusted origins": origins or "none",
            "manifest": cache.key(MANIFEST.read_text()),
        }
        metadata = document["metadata"]
        metadata["namespace"] = self.kube.namespace
        metadata["annotations"] = {_SPEC: json.dumps(made_of, sort_keys=True)}
        return document


@dataclass(frozen=True)
class KubeRayToken:
    """The token that KubeRay made for the cluster, in a file that only its owner can read."""

    kube: Kube
    instance: Instance
    name: str = "ray-token"
    title: str = "Ray's authentication token"
    needs: tuple[str, ...] = ("ray-cluster",)
    patience: float = 30.0

    @property
    def file(self) -> Path:
        return self.instance.token_file

    def check(self) -> Status:
        token = secret(self.kube, NAME, "auth_token")
        if token is None:
            return pending("KubeRay has not made it yet")
        if not self.file.exists() or self.file.read_text() != token:
            return missing("not fetched yet")
        return ready(str(self.file))

    def apply(self, report: Report) -> None:
        token = secret(self.kube, NAME, "auth_token")
        if token is None:
            raise NotRunning("KubeRay has made no token", hint="./invokew up goes on from there")
        write_private(self.file, token)

    def undo(self, report: Report) -> None:
        self.file.unlink(missing_ok=True)

    def dashboard(self, url: str) -> Dashboard:
        """Returns a client through the forward at `url`. Raises NotRunning without a token."""
        try:
            return Dashboard(url, self.file.read_text())
        except FileNotFoundError:
            raise NotRunning("no Ray cluster is up", hint="./invokew up starts one") from None


def secret(kube: Kube, name: str, key: str) -> str | None:
    """Returns one value of a Secret; None where there is none."""
    document = kube.get(f"{CORE}/namespaces/{kube.namespace}/secrets/{name}")
    value = (document or {}).get("data", {}).get(key)
    return base64.b64decode(value).decode() if value else None


def left_behind(pods: Sequence[dict[str, Any]]) -> list[str]:
    """Returns the names of the worker pods that joined a head before this one.

    A new head does not know them. They notice half a minute later (measured), then they end and start
    again, each time after a longer pause, up to five minutes, while their probes call them ready.
    """
    since = max((_started(pod, "ray-head") for pod in pods), default="")
    return [
        pod["metadata"]["name"]
        for pod in pods
        if "deletionTimestamp" not in pod["metadata"] and "" < _started(pod, "ray-worker") < since
    ]


def _started(pod: dict[str, Any], container: str) -> str:
    """Returns when the container started, RFC 3339 in UTC as in the API; empty if it is about to start."""
    for status in pod.get("status", {}).get("containerStatuses", []):
        if status["name"] == container:
            run = status["state"].get("running")
            if status["state"].get("waiting", {}).get("reason") == "CrashLoopBackOff":
                run = status["lastState"].get("terminated")
            return str((run or {}).get("startedAt") or "")
    return ""
