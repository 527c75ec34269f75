"""Installs the KubeRay operator, with its custom resources, in the cluster."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from bootstrap import cache
from bootstrap.errors import OperatorNotRunning
from bootstrap.kube import trouble
from bootstrap.kube.api import RAY, Kube
from bootstrap.settings import KUBERAY_VERSION
from bootstrap.shell import Shell
from bootstrap.step import Report, Status, missing, pending, ready

# It is called so in the operator's own config/manager.
DEPLOYMENT = "/apis/apps/v1/namespaces/default/deployments/kuberay-operator"
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_SELECTOR = "app.kubernetes.io/name=kuberay"
_PUBLIC_IMAGE = "quay.io/kuberay/operator"


@dataclass(frozen=True)
class OperatorManifest:
    """KubeRay's manifests as one file, rendered once: it takes as long as the cluster's own start."""

    shell: Shell
    cache_folder: Path
    kubectl: Path
    # It is KubeRay's kustomization, a folder named by a hash.
    kustomization: Path
    image: str
    name: str = "operator-manifest"
    title: str = "KubeRay's manifests"
    # It brings the kustomization: the plugin's build, or a download of its own.
    needs: tuple[str, ...] = ("kubectl", "kubectl-ray", "kuberay-manifests")
    patience: float = 0.0

    @property
    def file(self) -> Path:
        return self._folder / "operator.yaml"

    @property
    def _folder(self) -> Path:
        place = self.kustomization.relative_to(self.cache_folder)
        return self.cache_folder / f"operator-manifest-{cache.key(str(place), self.image)}"

    def check(self) -> Status:
        return ready(str(self.file)) if self._folder.exists() else missing("not rendered yet")

    def apply(self, report: Report) -> None:
        with cache.making(self._folder, report) as draft:
            if draft is None:
                return
            name, tag = self.image.rsplit(":", 1)
            overlay = {
                # kustomize takes a base only by a relative path.
                "resources": [os.path.relpath(self.kustomization, draft)],
                "images": [{"name": _PUBLIC_IMAGE, "newName": name, "newTag": tag}],
            }
            (draft / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
            rendered = self.shell.run([self.kubectl, "kustomize", draft], env=cache.environment(self._folder))
            (draft / "operator.yaml").write_text(rendered.out)

    def undo(self, report: Report) -> None:
        cache.end_builds(self._folder)


@dataclass(frozen=True)
class CustomResources:
    """KubeRay's manifests are applied: Kubernetes knows RayClusters, and the operator is on its way."""

    shell: Shell
    kube: Kube
    kubectl: Path
    manifest: OperatorManifest
    needs: tuple[str, ...] = ("kubeconfig", "operator-manifest")
    name: str = "custom-resources"
    title: str = f"manifests of KubeRay {KUBERAY_VERSION}"
    patience: float = 30.0

    def check(self) -> Status:
        deployment = self.kube.get(DEPLOYMENT)
        if deployment is None:
            return missing("not applied")
        image = _image(deployment)
        if image != self.manifest.image:
            return missing(f"the operator's image is {image}")
        for plural in ("rayclusters", "rayjobs"):
            if self.kube.get(f"{_DEFINITIONS}/{plural}.ray.io") is None:
                return missing(f"Kubernetes does not know {plural}")
            if self.kube.get(f"{RAY}/{plural}") is None:
                return pending(f"{plural} are not served yet")
        return ready(f"RayCluster, RayJob, {image}")

    def apply(self, report: Report) -> None:
        report("applying the custom resources and the operator")
        apply(self.shell, self.kubectl, self.kube, self.manifest.file)

    def undo(self, report: Report) -> None:
        """Does nothing: they go with the cluster."""


@dataclass(frozen=True)
class KubeRay:
    """The operator runs. Ray clusters may be asked for before it does."""

    kube: Kube
    needs: tuple[str, ...] = ("custom-resources", "images")
    name: str = "kuberay"
    title: str = f"KubeRay {KUBERAY_VERSION}"
    patience: float = 120.0

    def check(self) -> Status:
        deployment = self.kube.get(DEPLOYMENT)
        if deployment is None:
            raise OperatorNotRunning("KubeRay is not installed", hint="./invokew up installs it")
        if deployment["spec"].get("replicas") == 0:
            raise OperatorNotRunning(
                "somebody scaled the KubeRay operator to 0",
                hint=f"kubectl --context {self.kube.context} -n default scale deployment/kuberay-operator"
                " --replicas 1",
            )
        status = deployment.get("status") or {}
        current = status.get("observedGeneration") == deployment["metadata"]["generation"]
        if not current or not status.get("availableReplicas"):
            home = Kube(self.kube.kubeconfig, self.kube.context, "default")
            if error := trouble.first_problem(home, _SELECTOR):
                return pending(f"the operator does not run: {error.message}")
            return pending("the operator is starting")
        return ready(f"the operator runs, {_image(deployment)}")

    def apply(self, report: Report) -> None:
        raise AssertionError("custom-resources applies it: check never says missing")

    def undo(self, report: Report) -> None:
        """Does nothing: it goes with the cluster."""


def apply(shell: Shell, kubectl: Path, kube: Kube, file: Path) -> None:
    """Runs `kubectl apply` server-side: KubeRay's resources are too large for kubectl's own annotation."""
    options = ["--server-side", "--force-conflicts", "--field-manager=rayside"]
    shell.run([kubectl, *kube.options, "apply", *options, "-f", file])


def _image(deployment: dict[str, Any]) -> str:
    return str(deployment["spec"]["template"]["spec"]["containers"][0]["image"])
