"""Source `packages` builds everything here, from PyPI, npm, Go modules and Debian."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bootstrap.settings import (
    COREDNS_VERSION,
    ETCD_TAG,
    KIND_VERSION,
    KUBERAY_VERSION,
    KUBERNETES_VERSION,
    PAUSE_TAG,
    RAY_VERSION,
    ROOT,
    Settings,
)
from bootstrap.shell import Shell
from bootstrap.sources.base_image import BaseImage
from bootstrap.sources.extensions import image_extensions
from bootstrap.sources.go import Go, GoPrograms
from bootstrap.sources.image_build import ImageBuild
from bootstrap.sources.node_image import NodeImage
from bootstrap.sources.ray_image import ray_image_files
from bootstrap.sources.source import Images, stable_names
from bootstrap.sources.workspace_image import workspace_image
from bootstrap.step import Appliable

_IMAGE = ROOT / "image"
# kubeadm wants these names (`kubeadm config images list`); our one image has all of them.
_KUBERNETES_NAMES = (
    *(
        f"registry.k8s.io/{name}:v{KUBERNETES_VERSION}"
        for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy")
    ),
    f"registry.k8s.io/etcd:{ETCD_TAG}",
    f"registry.k8s.io/coredns/coredns:v{COREDNS_VERSION}",
    f"registry.k8s.io/pause:{PAUSE_TAG}",
)


@dataclass(frozen=True)
class Packages:
    """The source; if `cluster_exists`, its node exists too, and none is made."""

    settings: Settings
    shell: Shell
    cluster_exists: Callable[[], bool] = lambda: False
    name: str = "packages"

    # --- what it provides ----------------------------------------------------------------

    @property
    def kind(self) -> Path:
        return self._kind.folder / "kind"

    @property
    def kubectl(self) -> Path:
        return self._kubernetes.folder / "kubectl"

    @property
    def kubectl_ray(self) -> Path:
        return self._kuberay.folder / "kubectl-ray"

    @property
    def kuberay(self) -> Path:
        return self._kuberay.folder / "config" / "default"

    @property
    def images(self) -> Images:
        return Images(
            ray=self._ray_image.reference,
            workspace=self._workspace_image.reference,
            operator=self._operator_image.reference,
            node=self._node_image.reference,
        )

    @property
    def steps(self) -> list[Appliable]:
        """Returns the steps in order; those that need Go are long, and other images are built beside them."""
        return [
            self._go,
            self._kind,
            self._kubernetes,
            self._kuberay,
            self._coredns,
            self._pause,
            self._base,
            self._ray_image,
            self._workspace_image,
            self._operator_image,
            self._kubernetes_image,
            self._plain_node_image,
            self._node_image,
        ]

    # --- programs ------------------------------------------------------------------------

    @property
    def _go(self) -> Go:
        return Go(self.shell, self.settings.cache_folder)

    @property
    def _kind(self) -> GoPrograms:
        return GoPrograms(
            *self._builder,
            name="kind",
            title=f"kind {KIND_VERSION}",
            module="kind",
            version=KIND_VERSION,
            builds=(("kind", "sigs.k8s.io/kind"),),
        )

    @property
    def _kubernetes(self) -> GoPrograms:
        major, minor, _ = KUBERNETES_VERSION.split(".")
        return GoPrograms(
            *self._builder,
            name="kubectl",
            title=f"Kubernetes {KUBERNETES_VERSION} (10 minutes on two cores, once)",
            module="kubernetes",
            version=KUBERNETES_VERSION,
            builds=(("kubernetes", "."),),
            variables=tuple(
                f"{package}.{name}={value}"
                for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
                for name, value in (
                    ("gitVersion", f"v{KUBERNETES_VERSION}"),
                    ("gitMajor", major),
                    ("gitMinor", minor),
                )
            ),
            links=(("kubectl", "kubernetes"),),
        )

    @property
    def _kuberay(self) -> GoPrograms:
        module = "github.com/ray-project/kuberay"
        return GoPrograms(
            *self._builder,
            name="kubectl-ray",
            title=f"KubeRay {KUBERAY_VERSION} and its kubectl plugin",
            module="kuberay",
            version=KUBERAY_VERSION,
            builds=(("manager", f"{module}/ray-operator"), ("kubectl-ray", f"{module}/kubectl-plugin/cmd")),
            along=(f"{module}/ray-operator", "config"),
        )

    @property
    def _coredns(self) -> GoPrograms:
        return GoPrograms(
            *self._builder,
            name="coredns",
            title=f"CoreDNS {COREDNS_VERSION}",
            module="coredns",
            version=COREDNS_VERSION,
            builds=(("coredns", "github.com/coredns/coredns"),),
        )

    @property
    def _pause(self) -> GoPrograms:
        return GoPrograms(
            *self._builder,
            name="pause",
            title="the process of a pod's sandbox",
            module="pause",
            version="1",
            builds=(("pause", "."),),
        )

    @property
    def _builder(self) -> tuple[Shell, Go, Path]:
        return self.shell, self._go, self.settings.cache_folder

    # --- images --------------------------------------------------------------------------

    @property
    def _base(self) -> BaseImage:
        return BaseImage(self.shell, self.settings.cache_folder, self.settings.debian_mirror)

    @property
    def _ray_image(self) -> ImageBuild:
        return ImageBuild(
            name="ray-image",
            title=f"image of Ray {RAY_VERSION}",
            repository="rayside/ray",
            context=_IMAGE / "ray",
            arguments={"BASE": self._base.reference},
            extra=ray_image_files(),
            needs=("base-image",),
            cache_folder=self.settings.cache_folder,
        )

    @property
    def _workspace_image(self) -> ImageBuild:
        return workspace_image(
            self._ray_image.reference,
            self.settings.cache_folder,
            self._base.reference,
            image_extensions(self.settings).got(),
        )

    @property
    def _operator_image(self) -> ImageBuild:
        return ImageBuild(
            name="operator-image",
            title=f"image of the KubeRay operator {KUBERAY_VERSION}",
            repository="rayside/operator",
            context=_IMAGE / "operator",
            extra={"manager": self._kuberay.folder / "manager"},
            needs=("engine", "kubectl-ray"),
            cache_folder=self.settings.cache_folder,
        )

    @property
    def _kubernetes_image(self) -> ImageBuild:
        return ImageBuild(
            name="kubernetes-image",
            title=f"image of Kubernetes {KUBERNETES_VERSION}",
            repository="rayside/kubernetes",
            context=_IMAGE / "kubernetes",
            arguments={"BASE": self._base.reference},
            extra={
                "kubernetes": self._kubernetes.folder / "kubernetes",
                "coredns": self._coredns.folder / "coredns",
                "pause": self._pause.folder / "pause",
            },
            needs=("base-image", "kubectl", "coredns", "pause"),
            cache_folder=self.settings.cache_folder,
        )

    @property
    def _plain_node_image(self) -> ImageBuild:
        return ImageBuild(
            name="plain-node-image",
            title="image of the node, without images in it",
            repository="rayside/plain-node",
            context=_IMAGE / "node",
            arguments={"BASE": self._base.reference, "KUBERNETES_VERSION": KUBERNETES_VERSION},
            extra={"kubernetes": self._kubernetes.folder / "kubernetes"},
            needs=("base-image", "kubectl"),
            cache_folder=self.settings.cache_folder,
        )

    @property
    def _node_image(self) -> NodeImage:
        ray, workspace, operator = self._ray_image, self._workspace_image, self._operator_image
        return self.node_with(
            ray, workspace, operator, aliases=stable_names(ray.reference, workspace.reference)
        )

    def node_with(self, *images: ImageBuild, aliases: tuple[tuple[str, str], ...] = ()) -> NodeImage:
        """Returns the step of the node's image, with Kubernetes' own images and these in it."""
        kubernetes = self._kubernetes_image.reference
        return NodeImage(
            self.shell,
            self.settings.cache_folder,
            plain=self._plain_node_image.reference,
            images=(kubernetes, *(image.reference for image in images)),
            aliases=(*((kubernetes, name) for name in _KUBERNETES_NAMES), *aliases),
            needs=("plain-node-image", "kubernetes-image", *(image.name for image in images)),
            unneeded=self.cluster_exists,
        )
