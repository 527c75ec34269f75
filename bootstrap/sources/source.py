"""Defines what a source of programs and images gives, wherever it has them from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bootstrap.step import Appliable


@dataclass(frozen=True)
class Images:
    """References of the images that a cluster is made of, as the Docker engine knows them."""

    ray: str
    workspace: str
    operator: str
    node: str

    def aliases(self) -> tuple[tuple[str, str], ...]:
        """Returns references, each with a name that stays the same, for manifests that users write."""
        return stable_names(self.ray, self.workspace)


def stable_names(ray: str, workspace: str) -> tuple[tuple[str, str], ...]:
    """Returns each reference with the node's name for it, which stays the same whatever is in it."""
    return ((ray, "docker.io/rayside/ray:current"), (workspace, "docker.io/rayside/workspace:current"))


class Source(Protocol):
    """Programs and images for kind: what they will be called, and the steps that make them be there."""

    @property
    def name(self) -> str:
        """Returns the name that `--source` and `status --json` have."""

    @property
    def kind(self) -> Path:
        """Returns the program, once the step `kind` is ready."""

    @property
    def kubectl(self) -> Path:
        """Returns the program, once the step `kubectl` is ready."""

    @property
    def kubectl_ray(self) -> Path:
        """Returns kubectl's plugin, once the step `kubectl-ray` is ready."""

    @property
    def kuberay(self) -> Path:
        """Returns the folder with KubeRay's kustomization, once the step `kuberay-manifests` is ready."""

    @property
    def images(self) -> Images:
        """Returns the images of the steps `ray-image`, `workspace-image`, `operator-image`, `node-image`."""

    @property
    def steps(self) -> list[Appliable]:
        """Returns the eight steps named above, and what they need besides `disk` and `engine`."""
