"""Choice of the delivery of images to the nodes of an existing Kubernetes cluster."""

from __future__ import annotations

from dataclasses import dataclass

from bootstrap import docker_engine
from bootstrap.delivery.loaded import NodeImages
from bootstrap.delivery.pulled import BUILT_HERE, PulledByNodes, mirrored_in, names_in
from bootstrap.errors import ImagesOutOfReach
from bootstrap.kube.api import Kube
from bootstrap.kube.kubeconfig import server
from bootstrap.settings import Settings
from bootstrap.sources.source import Images, Source
from bootstrap.steps.kind_cluster import nodes_behind
from rayside.loopback import is_loopback
from rayside.steps.step import Step
from rayside.system.shell import Shell

_IMAGES = ("ray", "workspace", "operator")


@dataclass(frozen=True)
class Delivery:
    """One way to deliver the images.

    Attributes:
        images: references for pods.
        step: the step `images`, which is ready when the nodes have the images, or can pull them.
        artifacts: names of the source's artifacts that this machine needs.
        takes_engine: whether the images pass through this machine's Docker engine.
        refusal: the error if there is no way; else None.
    """

    images: Images
    step: Step
    artifacts: tuple[str, ...] = ()
    takes_engine: bool = False
    refusal: ImagesOutOfReach | None = None


def delivery(
    settings: Settings,
    shell: Shell,
    source: Source,
    kube: Kube,
    *,
    names: tuple[str, ...] = _IMAGES,
    ground: str = "namespace",
    pull_secret: str = "",
) -> Delivery:
    """Returns the delivery to the nodes of the Kubernetes cluster of `kube`.

    `names`: names of the images, as in `Images`; `ground`: the step before any is loaded; `pull_secret`: the
    Secret with the login to the source's registry.

    With a registry, from the settings or the source, the nodes pull. The nodes of a kind cluster, containers
    of this machine's Docker engine, get the images from the engine or a bundle. For any other cluster
    `refusal` says what to do.
    """
    images, registry = source.images, settings.image_registry
    if registry or source.registry:
        pulled = names_in(registry, images)
        if not registry:
            pulled = mirrored_in(source.registry, source, pull_secret)
        return Delivery(pulled, PulledByNodes(_references(pulled, names)))
    behind = nodes_behind(address := server(kube.kubeconfig, kube.context))
    references = _references(images, names)
    if behind is None:
        return Delivery(images, PulledByNodes(references), refusal=_refusal(source, address, references))
    cluster, nodes = behind
    # The images come from a bundle, without the engine, or from the engine.
    needs = ("bundle",) if source.archives else tuple(source.step_of(name) for name in names)
    step = NodeImages(shell, cluster, nodes, references, (), source.archives, needs=(ground, *needs))
    return Delivery(images, step, artifacts=() if source.archives else names, takes_engine=True)


def _references(images: Images, names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(getattr(images, name) for name in names)


def _refusal(source: Source, address: str, references: tuple[str, ...]) -> ImagesOutOfReach:
    # Without an engine it is unknown whether the nodes are its containers, and can load a bundle's images.
    if source.archives and is_loopback(address) and not docker_engine.answers():
        return ImagesOutOfReach(
            f"the Kubernetes API is on this machine, at {address}, and no Docker engine answers that could "
            "have its nodes",
            hint="start the Docker engine",
        )
    lacking = [image for image in references if image.startswith(BUILT_HERE)]
    origin = "out of a bundle" if source.archives else "that are built on this machine"
    return ImagesOutOfReach(
        f"the nodes there can't get the images {origin}, as no registry that they reach has them: "
        f"{', '.join(lacking)}",
        hint="run a registry that the nodes pull from, and fill it: ./invokew mirror REGISTRY; then run "
        "./invokew up with --source mirror --mirror REGISTRY",
    )
