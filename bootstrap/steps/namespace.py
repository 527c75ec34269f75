"""Namespace of a Ray cluster in an existing Kubernetes cluster, created if missing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bootstrap.instance import Instance
from bootstrap.kube.api import CORE, Kube, made_here, require_namespace
from bootstrap.kube.contents import Kind, held
from bootstrap.steps.kuberay import require_gone
from rayside.plain import some_of
from rayside.steps.step import Report, Status, missing, ready

# All our pods comply with it: docs/targets.md (https://kubernetes.io/docs/concepts/security/pod-security-standards/).
POD_SECURITY = {"pod-security.kubernetes.io/enforce": "restricted"}


@dataclass(frozen=True)
class Namespace:
    """The namespace exists. One of ours accepts only `restricted` pods, and is removed by `down`.

    `kinds` returns the kinds of objects that may be in it, if already known.
    """

    instance: Instance
    kube: Kube
    needs: tuple[str, ...] = ("preflight", "state-folder")
    kinds: Callable[[], Sequence[Kind]] = tuple
    name: str = "namespace"

    @property
    def title(self) -> str:
        return f"namespace {self.kube.namespace}"

    def check(self) -> Status:
        if self.kube.get(self._path) is None:
            return missing("there is none")
        require_namespace(self.kube)
        return ready("made for this cluster" if self._ours() else "it was there, and stays")

    def apply(self, report: Report) -> None:
        metadata = {"name": self.kube.namespace, "labels": {**self.instance.labels, **POD_SECURITY}}
        self.kube.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})

    def undo(self, report: Report) -> str | None:
        """Removes it if we made it, unless foreign objects are in it."""
        if not self._ours():
            return None
        if others := held(self.kube, self.kinds()):
            return f"it stays: others have {some_of(others)} in it"
        report(f"removing the {self.title}")
        self.kube.delete(self._path)
        require_gone(lambda: [*filter(None, [self.kube.get(self._path)])], f"the {self.title}")
        return None

    @property
    def _path(self) -> str:
        return f"{CORE}/namespaces/{self.kube.namespace}"

    def _ours(self) -> bool:
        document = self.kube.get(self._path)
        if document is None or not made_here(document):
            return False
        labels = document["metadata"].get("labels", {})
        return bool(self.instance.labels.items() <= labels.items())
