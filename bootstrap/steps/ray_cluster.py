"""RayCluster, with the workspace's password and the token for clients."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bootstrap import cache, codespaces
from bootstrap.errors import NotOurs
from bootstrap.instance import Instance
from bootstrap.kube import trouble
from bootstrap.kube.api import CORE, RAY, Kube, made_here, path_of, require_namespace
from bootstrap.settings import RAY_VERSION, ROOT
from bootstrap.sources.source import Images
from bootstrap.steps.differences import SPEC, difference, made_of
from bootstrap.steps.kuberay import require_gone
from bootstrap.steps.package_index import PackageIndex
from rayside import yaml_file
from rayside.errors import NotRunning
from rayside.private_file import write_private
from rayside.ray.state import Dashboard
from rayside.relay.config import UNSET, Masking, variables
from rayside.steps.step import Report, Status, drifted, missing, pending, ready

MANIFEST = ROOT / "k8s" / "ray-cluster.yaml"
DASHBOARD_PORT, WORKSPACE_PORT, RELAY_PORT = 8265, 8443, 5678
# File in the workspace of a workshop's place, in which the editor records the attendee's progress.
PROGRESS = "/tmp/rayside-progress.json"
# Annotation of a paused place of a workshop: its number of workers before.
PAUSED = "rayside.dev/paused"
# Limit in digits: annotations are untrusted, and no place has a million workers.
_LONGEST_NOTE = 6
# Start of the pause, by the API's clock; and total seconds of earlier pauses.
PAUSED_SINCE, PAUSED_FOR = "rayside.dev/paused-since", "rayside.dev/paused-seconds"
# Time of the last activity in a place that was paused as idle, by its own clock, in seconds since 1970. And
# the time at which a place got its workers again, by the API's clock.
PAUSED_IDLE, RESUMED = "rayside.dev/paused-idle", "rayside.dev/resumed"
# Inputs that depend on the checkout and the cached extensions instead of settings.
_FILES = {"ray": "Ray's image", "workspace": "the workspace's image", "manifest": "the manifest"}


@dataclass(frozen=True)
class WorkspacePassword:
    """A Secret with the workspace's random password, made once."""

    instance: Instance
    kube: Kube
    cluster_goes: bool = False
    name: str = "workspace-password"
    title: str = "password of the workspace"
    needs: tuple[str, ...] = ("kubeconfig",)

    def password(self) -> str | None:
        """Returns the password; None if there is no Secret."""
        return self.kube.secret(self.instance.workspace_secret, "password")

    def check(self) -> Status:
        require_namespace(self.kube)
        document = self.kube.get(self._path)
        if document is None or not self.password():
            return missing("not made yet")
        if not _is_ours(document):
            raise NotOurs(
                f"there is a Secret {self.instance.workspace_secret} in namespace {self.kube.namespace} that "
                "Rayside did not make: another knows that password",
                hint="./invokew up --name another-name makes a cluster beside it",
            )
        return ready(f"in the Secret {self.instance.workspace_secret}")

    def apply(self, report: Report) -> None:
        metadata = _metadata(self.instance, self.instance.workspace_secret)
        password = {"password": secrets.token_urlsafe(18)}
        self.kube.apply({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": password})

    def undo(self, report: Report) -> None:
        if not self.cluster_goes and _is_ours(self.kube.get(self._path)):
            report(f"removing the Secret {self.instance.workspace_secret}")
            self.kube.delete(self._path)

    @property
    def _path(self) -> str:
        return f"{CORE}/namespaces/{self.kube.namespace}/secrets/{self.instance.workspace_secret}"


@dataclass(frozen=True)
class RayCluster:
    """One head with the workspace beside it, and its workers, all of them ready."""

    instance: Instance
    kube: Kube
    images: Images
    workers: int
    patience: float
    package_index: PackageIndex
    masking: Masking = UNSET
    cluster_goes: bool = False
    needs: tuple[str, ...] = ("custom-resources", "workspace-password", "package-index", "images")
    name: str = "ray-cluster"

    @property
    def title(self) -> str:
        return f"RayCluster {self.instance.ray_cluster}"

    @property
    def selector(self) -> str:
        """Returns the labels of its pods."""
        return f"ray.io/cluster={self.instance.ray_cluster}"

    def check(self) -> Status:
        cluster = self._cluster()
        if cluster is None:
            require_namespace(self.kube)
            return missing("there is none")
        if "deletionTimestamp" in cluster["metadata"]:
            return pending("the earlier one is being removed")
        if not _is_ours(cluster):
            raise NotOurs(
                f"there is a {self.title} in namespace {self.kube.namespace} that Rayside did not make",
                hint="set another namespace, or ./invokew up --name another-name",
            )
        was, would_be = made_of(cluster), made_of(self.manifest())
        if was != would_be:
            return drifted(difference(was, would_be, _FILES))
        is_paused = bool(paused(cluster))
        all_pods = 1 if is_paused else 1 + self.workers
        pods = self.kube.pods(self.selector)
        if behind := left_behind(pods):
            return missing(f"{', '.join(behind)} joined an earlier head")
        waits = trouble.waits(pods)
        if not waits and len(pods) == all_pods:
            workers = "paused, without workers" if is_paused else f"{self.workers} workers"
            return ready(f"Ray {RAY_VERSION}, {workers}")
        if waits and (error := trouble.first_problem(self.kube, self.selector)):
            # Reported, not raised: a pod that was killed with its engine, or lost its head, recovers.
            return pending(f"{error.message}; {error.hint}")
        return pending("; ".join(waits) or f"{len(pods)} of {all_pods} pods")

    def apply(self, report: Report) -> None:
        require_namespace(self.kube)
        document = self.manifest()
        if paused(self._cluster() or {}):
            document["spec"]["workerGroupSpecs"][0]["replicas"] = 0
        self.kube.apply(document)
        for pod in left_behind(self.kube.pods(self.selector)):
            report(f"removing {pod}, KubeRay makes another")
            self._remove_pod(pod)

    def undo(self, report: Report) -> None:
        """Removes it, its pods, and the RayJobs that were submitted to it."""
        if self.cluster_goes:
            return
        cluster = self._cluster()
        if _is_ours(cluster):
            report(f"removing the {self.title} and its jobs")
            for job in self._jobs():
                self.kube.delete(path_of({"apiVersion": "ray.io/v1", **job}, "rayjobs"))
            require_gone(self._jobs, "a RayJob")
            assert cluster is not None
            self.kube.delete(path_of(cluster))
            for pod in self.kube.pods(self.selector):
                self._remove_pod(pod["metadata"]["name"])
            require_gone(lambda: self.kube.pods(self.selector), self.title)

    def _cluster(self) -> dict[str, Any] | None:
        return self.kube.ray("rayclusters", self.instance.ray_cluster)

    def _jobs(self) -> list[dict[str, Any]]:
        selector = ",".join(f"{key}={value}" for key, value in self.instance.labels.items())
        return self.kube.items(f"{RAY}/namespaces/{self.kube.namespace}/rayjobs", selector)

    def _remove_pod(self, name: str) -> None:
        # A pod uses its whole grace period, 30 s (measured), and nothing is left to save.
        self.kube.delete(f"{CORE}/namespaces/{self.kube.namespace}/pods/{name}", gracePeriodSeconds="1")

    @property
    def _masked(self) -> dict[str, str]:
        return variables(self.masking)

    def manifest(self) -> dict[str, Any]:
        """Returns k8s/ray-cluster.yaml with names, labels, images, workers, and its inputs as annotation."""
        document = dict(yaml_file.read(MANIFEST))
        origins = " ".join(codespaces.trusted_origins(self.instance.ports.workspace))
        spec = document["spec"]
        for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
            group["template"]["metadata"] = {"labels": self.instance.labels}
            if self.images.pull_secret:
                group["template"]["spec"]["imagePullSecrets"] = self.images.pull_secrets
            for container in group["template"]["spec"]["containers"]:
                ray = container["name"] in ("ray-head", "ray-worker")
                container["image"] = self.images.ray if ray else self.images.workspace
                container["imagePullPolicy"] = self.images.pull_policy
                for variable in container.get("env", []):
                    if variable["name"] == "PASSWORD":
                        variable["valueFrom"]["secretKeyRef"]["name"] = self.instance.workspace_secret
                if origins and container["name"] == "workspace":
                    container["env"].append({"name": "TRUSTED_ORIGINS", "value": origins})
                if self.instance.workshop and container["name"] == "workspace":
                    container["env"].append({"name": "RAYSIDE_PROGRESS", "value": PROGRESS})
                if container["name"] == "relay":
                    container["env"] = [
                        {"name": name, "value": value} for name, value in self._masked.items() if value
                    ]
            self.package_index.add_to(group["template"]["spec"])
        for volume in spec["headGroupSpec"]["template"]["spec"]["volumes"]:
            if volume["name"] == "token":
                volume["secret"]["secretName"] = self.instance.ray_cluster
        spec["rayVersion"] = RAY_VERSION
        spec["workerGroupSpecs"][0]["replicas"] = self.workers
        spec_of = {
            "ray": self.images.ray,
            "workspace": self.images.workspace,
            "workers": str(self.workers),
            "trusted origins": origins or "none",
            "masked": json.dumps(self._masked),
            **({"progress": PROGRESS} if self.instance.workshop else {}),
            **({"pull secret": self.images.pull_secret} if self.images.pull_secret else {}),
            **self.package_index.made_of,
            "manifest": cache.key(MANIFEST.read_text()),
        }
        annotations = {SPEC: json.dumps(spec_of, sort_keys=True)}
        document["metadata"] = {
            **_metadata(self.instance, self.instance.ray_cluster),
            "annotations": annotations,
        }
        return document


@dataclass(frozen=True)
class KubeRayToken:
    """The cluster's token from KubeRay, in a private file."""

    instance: Instance
    kube: Kube
    name: str = "ray-token"
    title: str = "Ray's authentication token"
    needs: tuple[str, ...] = ("ray-cluster",)
    patience: float = 30.0

    def check(self) -> Status:
        token, file = self._token(), self.instance.token_file
        if token is None:
            return pending("KubeRay has not made it yet")
        if not file.exists() or file.read_text() != token:
            return missing("not fetched yet")
        return ready(str(file))

    def apply(self, report: Report) -> None:
        token = self._token()
        if token is None:
            raise NotRunning("KubeRay has made no token", hint="./invokew up goes on from there")
        write_private(self.instance.token_file, token)

    def undo(self, report: Report) -> None:
        self.instance.token_file.unlink(missing_ok=True)

    def dashboard(self) -> Dashboard:
        """Returns a client through the port forward. Raises NotRunning without a token."""
        try:
            token = self.instance.token_file.read_text()
        except FileNotFoundError:
            raise NotRunning("no Ray cluster is up", hint="./invokew up starts one") from None
        return Dashboard(self.instance.dashboard, token)

    def _token(self) -> str | None:
        return self.kube.secret(self.instance.ray_cluster, "auth_token")


def _metadata(instance: Instance, name: str) -> dict[str, Any]:
    return {"name": name, "namespace": instance.namespace, "labels": instance.labels}


def _is_ours(document: dict[str, Any] | None) -> bool:
    return document is not None and made_here(document)


def left_behind(pods: Sequence[dict[str, Any]]) -> list[str]:
    """Returns the names of the worker pods that joined a head before this one.

    A new head does not know them. They notice half a minute later (measured), then they restart, each
    time after a longer pause, up to five minutes, while their probes report them as ready.
    """
    since = max((_started(pod, "ray-head") for pod in pods), default="")
    return [
        pod["metadata"]["name"]
        for pod in pods
        if "deletionTimestamp" not in pod["metadata"] and "" < _started(pod, "ray-worker") < since
    ]


def _started(pod: dict[str, Any], container: str) -> str:
    """Returns the container's start time, RFC 3339 in UTC as in the API; empty before its start."""
    for status in pod.get("status", {}).get("containerStatuses", []):
        if status["name"] == container:
            run = status["state"].get("running")
            if status["state"].get("waiting", {}).get("reason") == "CrashLoopBackOff":
                run = status["lastState"].get("terminated")
            return str((run or {}).get("startedAt") or "")
    return ""


def notes(ray_cluster: Mapping[str, Any]) -> Mapping[str, str]:
    """Returns a RayCluster's annotations, which are untrusted."""
    annotations: Mapping[str, str] = ray_cluster.get("metadata", {}).get("annotations") or {}
    return annotations


def paused(ray_cluster: Mapping[str, Any]) -> str:
    """Returns a paused RayCluster's number of workers before, in digits; empty if it is not paused."""
    note = notes(ray_cluster).get(PAUSED, "")
    return note if note.isascii() and note.isdigit() and len(note) <= _LONGEST_NOTE else ""
