"""KubeRay operator and its custom resources, installed if the cluster has none that fits."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from bootstrap import cache
from bootstrap.errors import OperatorNotRunning
from bootstrap.instance import MANAGED_BY
from bootstrap.kube import operator
from bootstrap.kube.api import CORE, RAY, Kube, made_here, path_of
from bootstrap.settings import KUBERAY_VERSION
from bootstrap.sources.source import Images
from rayside.errors import Drifted, Forbidden, NotReady
from rayside.steps.step import Report, Status, missing, pending, ready
from rayside.system.shell import Shell
from rayside.waiting import until

_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_RIGHTS = "/apis/rbac.authorization.k8s.io/v1"
_PUBLIC_IMAGE = "quay.io/kuberay/operator"
_POD = "/spec/template/spec"
# Labels of all our objects of KubeRay, also of cluster-wide ones.
_LABELS = {**MANAGED_BY, "app.kubernetes.io/part-of": "kuberay"}
# Label from which other instances read KubeRay's version: an image that was built here has none.
_VERSION = {"app.kubernetes.io/version": KUBERAY_VERSION}
# API paths of the manifests' objects, in order of removal.
_IN_A_NAMESPACE = (
    *(operator.DEPLOYMENTS, f"{CORE}/services", f"{CORE}/serviceaccounts"),
    *(f"{_RIGHTS}/rolebindings", f"{_RIGHTS}/roles"),
)
_OF_THE_CLUSTER = (f"{_RIGHTS}/clusterrolebindings", f"{_RIGHTS}/clusterroles", _DEFINITIONS)
# Timeout in seconds of a removal: of pods, and of RayJobs, whose jobs KubeRay stops first.
_REMOVAL = 60.0


@dataclass(frozen=True)
class OperatorManifest:
    """KubeRay's manifests as one file, rendered once, as that takes as long as the cluster's own start.

    They use the operator's image of `images`. `confined_to`: the operator's namespace, which it watches
    alone; empty: it watches all.
    """

    shell: Shell
    cache_folder: Path
    kubectl: Path
    # KubeRay's kustomization, a folder named by a hash.
    kustomization: Path
    images: Images
    confined_to: str = ""
    name: str = "operator-manifest"
    title: str = "KubeRay's manifests"
    # The plugin's build, or a separate download, provides the kustomization.
    needs: tuple[str, ...] = ("kubectl", "kubectl-ray", "kuberay-manifests")

    @property
    def image(self) -> str:
        return self.images.operator

    @property
    def file(self) -> Path:
        return self._folder / "operator.json"

    @property
    def _folder(self) -> Path:
        place = self.kustomization.relative_to(self.cache_folder)
        made_of = json.dumps([str(place), self._overlay(Path())], sort_keys=True)
        return self.cache_folder / f"operator-manifest-{cache.key(made_of)}"

    def _overlay(self, base: Path) -> dict[str, Any]:
        name, _, digest = self.image.partition("@")
        changed = {"newName": name, "digest": digest}
        if not digest:
            changed = dict(zip(("newName", "newTag"), name.rsplit(":", 1), strict=True))
        values: dict[str, Any] = {"containers/0/imagePullPolicy": self.images.pull_policy}
        if self.images.pull_secret:
            values["imagePullSecrets"] = self.images.pull_secrets
        added = [{"op": "add", "path": f"{_POD}/{path}", "value": value} for path, value in values.items()]
        return {
            "resources": [str(base)],
            "images": [{"name": _PUBLIC_IMAGE, **changed}],
            "patches": [{"target": {"kind": "Deployment"}, "patch": json.dumps(added)}],
            "labels": [{"pairs": {**_LABELS, **_VERSION}}],
        }

    def documents(self) -> list[dict[str, Any]]:
        """Returns the manifests; each namespaced object has its namespace."""
        documents: list[dict[str, Any]] = json.loads(self.file.read_text())
        if not self.confined_to:
            return documents
        return [operator.confined(document, self.confined_to) for document in documents]

    def check(self) -> Status:
        return ready(str(self.file)) if self._folder.exists() else missing("not rendered yet")

    def apply(self, report: Report) -> None:
        with cache.making(self._folder, report) as draft:
            if draft is None:
                return
            # kustomize takes a base only by a relative path.
            overlay = self._overlay(Path(os.path.relpath(self.kustomization, draft)))
            (draft / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
            rendered = self.shell.run([self.kubectl, "kustomize", draft], env=cache.environment(self._folder))
            # The manifests have 4 MB: PyYAML's own loader takes ten times as long as libyaml's.
            documents = list(yaml.load_all(rendered.out, yaml.CSafeLoader))
            (draft / "operator.json").write_text(json.dumps(documents))

    def undo(self, report: Report) -> None:
        cache.end_abandoned(self._folder)


@dataclass(frozen=True)
class CustomResources:
    """Kubernetes serves RayClusters, and an operator for them is installed: ours, or an existing one.

    An existing one is used if it fits, by `Operator.require_fit`, and never changed.
    """

    kube: Kube
    manifest: OperatorManifest
    cluster_goes: bool = False
    needs: tuple[str, ...] = ("kubeconfig", "operator-manifest")
    name: str = "custom-resources"
    title: str = f"manifests of KubeRay {KUBERAY_VERSION}"
    patience: float = 30.0

    def check(self) -> Status:
        try:
            present = operator.installed(self.kube)
        except Forbidden:
            if operator.served(self.kube):
                return ready("RayCluster, RayJob; you may not see whose operator")
            raise
        if present is None:
            return missing("not applied")
        ours = present.made_for(self.manifest.confined_to)
        if not ours:
            present.require_fit()
        elif _content(present.image) != _content(self.manifest.image):
            return missing(f"the operator's image is {present.image}")
        for plural in ("rayclusters", "rayjobs"):
            if self.kube.get(f"{RAY}/namespaces/{self.kube.namespace}/{plural}", limit="1") is None:
                if self.kube.get(f"{_DEFINITIONS}/{plural}.ray.io"):
                    return pending(f"{plural} are not served yet")
                if ours:
                    return missing(f"Kubernetes does not know {plural}")
                raise Drifted(
                    f"Kubernetes knows no {plural}, and {present.namespace}/{present.name} is another's",
                    hint="ask who installed it for KubeRay's custom resources, too",
                )
        return ready(f"RayCluster, RayJob, {present.image}{'' if ours else ', not installed by us'}")

    def apply(self, report: Report) -> None:
        report("applying the custom resources and the operator")
        for document in self.manifest.documents():
            self.kube.apply(document)

    def undo(self, report: Report) -> None:
        """Removes our objects, including the operator, unless a Ray cluster or job still exists."""
        if self.cluster_goes:
            return
        try:
            if any(self._in_use(self.manifest.confined_to)):
                return
            # Once, as a list of custom resources takes seconds while their definition is being removed.
            lists = self._lists()
        except Forbidden:  # A user without this permission has not installed an operator.
            return
        paths = list(self._ours(lists))
        if paths:
            report("removing KubeRay's operator and custom resources")
        for path in paths:
            self.kube.delete(path, propagationPolicy="Background")
        require_gone(lambda: list(self._ours(lists)), "KubeRay")

    def _in_use(self, namespace: str) -> Iterator[str]:
        """Yields the names of objects that need KubeRay in the namespace; if empty, in the whole cluster."""
        for plural in ("rayclusters", "rayjobs", "rayservices", "raycronjobs"):
            path = f"{RAY}/namespaces/{namespace}/{plural}" if namespace else f"{RAY}/{plural}"
            yield from (item["metadata"]["name"] for item in self.kube.items(path))

    def _lists(self) -> list[str]:
        """Returns the API paths of our kinds of objects. Raises Forbidden if operators can't be listed."""
        namespace = self.manifest.confined_to
        if not namespace:
            return [*_IN_A_NAMESPACE, *_OF_THE_CLUSTER]
        others = [each for each in operator.operators(self.kube) if not each.made_for(namespace)]
        if any(other.namespace == namespace for other in others):
            return []
        parts = [path.rpartition("/") for path in _IN_A_NAMESPACE]
        own = [f"{version}/namespaces/{namespace}/{plural}" for version, _, plural in parts]
        return own if others or any(self._in_use("")) else [*own, _DEFINITIONS]

    def _ours(self, lists: Sequence[str]) -> Iterator[str]:
        """Yields the path of each existing object of the manifests that we made."""
        selector = ",".join(f"{key}={value}" for key, value in _LABELS.items())
        for path in lists:
            plural = path.rpartition("/")[2]
            version = re.sub(r"^/apis?/|/namespaces/[^/]+|/[^/]+$", "", path)
            for item in filter(made_here, self.kube.items(path, selector)):
                yield path_of({"apiVersion": version, **item}, plural)


def _content(image: str) -> str:
    """Returns the digest of an image, else its name: the same content may have several names."""
    return image.rpartition("@")[2]


def require_gone(left: Callable[[], list[Any]], what: str) -> None:
    """Waits until nothing is left. Raises NotReady."""
    if until(left, lambda left: not left, _REMOVAL):
        raise NotReady(
            f"{what} is still being removed after {_REMOVAL:g} s",
            hint="./invokew status shows what is left; then run ./invokew down again",
        )


@dataclass(frozen=True)
class KubeRay:
    """The operator runs. Ray clusters may be requested before it does."""

    kube: Kube
    needs: tuple[str, ...] = ("custom-resources", "images")
    name: str = "kuberay"
    title: str = f"KubeRay {KUBERAY_VERSION}"
    patience: float = 120.0

    def check(self) -> Status:
        try:
            present = operator.installed(self.kube)
        except Forbidden:  # If it does not run, the RayCluster does not become ready.
            return ready("you may not see whether the operator runs")
        if present is None:
            raise OperatorNotRunning("KubeRay is not installed", hint="./invokew up installs it")
        if present.replicas == 0:
            raise OperatorNotRunning(
                "somebody scaled the KubeRay operator to 0",
                hint=f"kubectl --context {self.kube.context} -n {present.namespace} "
                f"scale deployment/{present.name} --replicas 1",
            )
        if not present.runs():
            if error := present.problem():
                return pending(f"the operator does not run: {error.message}")
            return pending("the operator is starting")
        return ready(f"the operator runs, {present.image}")
