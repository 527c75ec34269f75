"""Installs the KubeRay operator, with its custom resources, where the cluster has none that serves us."""

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
# All of KubeRay's objects of ours bear these, those of the whole cluster too.
_LABELS = {**MANAGED_BY, "app.kubernetes.io/part-of": "kuberay"}
# By it another instance knows which KubeRay this is: an image that was built here does not say.
_VERSION = {"app.kubernetes.io/version": KUBERAY_VERSION}
# Lists of what the manifests have, in the order in which it is removed.
_IN_A_NAMESPACE = (
    *(operator.DEPLOYMENTS, f"{CORE}/services", f"{CORE}/serviceaccounts"),
    *(f"{_RIGHTS}/rolebindings", f"{_RIGHTS}/roles"),
)
_OF_THE_CLUSTER = (f"{_RIGHTS}/clusterrolebindings", f"{_RIGHTS}/clusterroles", _DEFINITIONS)
# What is removed may take so many seconds to go: pods, and RayJobs, whose jobs KubeRay stops first.
_REMOVAL = 60.0


@dataclass(frozen=True)
class OperatorManifest:
    """KubeRay's manifests as one file, rendered once: it takes as long as the cluster's own start.

    Of `images` it names the operator's. `confined_to` is the namespace that the operator is in, and
    looks after alone; empty, it looks after all.
    """

    shell: Shell
    cache_folder: Path
    kubectl: Path
    # It is KubeRay's kustomization, a folder named by a hash.
    kustomization: Path
    images: Images
    confined_to: str = ""
    name: str = "operator-manifest"
    title: str = "KubeRay's manifests"
    # It brings the kustomization: the plugin's build, or a download of its own.
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
        """Returns the manifests; each object has its namespace in it, if it is in one."""
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
            # They are 4 MB: PyYAML's own loader takes ten times as long as libyaml's.
            documents = list(yaml.load_all(rendered.out, yaml.CSafeLoader))
            (draft / "operator.json").write_text(json.dumps(documents))

    def undo(self, report: Report) -> None:
        cache.end_abandoned(self._folder)


@dataclass(frozen=True)
class CustomResources:
    """Kubernetes knows RayClusters, and an operator for them is on its way: ours, or one that was there.

    Somebody else's is used where it serves us, as `Operator.require_fit` says, and never changed.
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
        """Removes what we installed, the operator too, unless somebody's Ray cluster or job is there."""
        if self.cluster_goes:
            return
        try:
            if any(self._in_use(self.manifest.confined_to)):
                return
            # Once, for while custom resources go, a look at what is of them takes seconds.
            lists = self._lists()
        except Forbidden:  # Who may not look for an operator has not installed one.
            return
        paths = list(self._ours(lists))
        if paths:
            report("removing KubeRay's operator and custom resources")
        for path in paths:
            self.kube.delete(path, propagationPolicy="Background")
        require_gone(lambda: list(self._ours(lists)), "KubeRay")

    def _in_use(self, namespace: str) -> Iterator[str]:
        """Yields the names of what needs KubeRay in the namespace; without one, in the whole cluster."""
        for plural in ("rayclusters", "rayjobs", "rayservices", "raycronjobs"):
            path = f"{RAY}/namespaces/{namespace}/{plural}" if namespace else f"{RAY}/{plural}"
            yield from (item["metadata"]["name"] for item in self.kube.items(path))

    def _lists(self) -> list[str]:
        """Returns the lists in which ours are. Raises Forbidden for who may not look for operators."""
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
        """Yields the path of each object of the manifests that is there, and was made by us."""
        selector = ",".join(f"{key}={value}" for key, value in _LABELS.items())
        for path in lists:
            plural = path.rpartition("/")[2]
            version = re.sub(r"^/apis?/|/namespaces/[^/]+|/[^/]+$", "", path)
            for item in filter(made_here, self.kube.items(path, selector)):
                yield path_of({"apiVersion": version, **item}, plural)


def _content(image: str) -> str:
    """Returns the digest of an image, else its name: one content is had from many places."""
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
    """The operator runs. Ray clusters may be asked for before it does."""

    kube: Kube
    needs: tuple[str, ...] = ("custom-resources", "images")
    name: str = "kuberay"
    title: str = f"KubeRay {KUBERAY_VERSION}"
    patience: float = 120.0

    def check(self) -> Status:
        try:
            present = operator.installed(self.kube)
        except Forbidden:  # Where it does not run, the RayCluster does not come up.
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
