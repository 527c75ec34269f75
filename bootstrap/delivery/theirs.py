"""Chooses how images get to the nodes of a Kubernetes that others look after."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bootstrap import docker_engine
from bootstrap.delivery.image_server import ImageServer, NoImageServer, port_of
from bootstrap.delivery.loaded import NodeImages
from bootstrap.delivery.pulled import BUILT_HERE, PulledByNodes, mirrored_in, names_in
from bootstrap.delivery.served import ServedImages
from bootstrap.errors import ImagesOutOfReach
from bootstrap.instance import Instance
from bootstrap.kube import rights
from bootstrap.kube.api import Kube
from bootstrap.kube.kubeconfig import server
from bootstrap.loopback import is_loopback
from bootstrap.settings import Settings
from bootstrap.shell import Shell
from bootstrap.sources.source import Archives, Images, Source
from bootstrap.step import Step
from bootstrap.steps.kind_cluster import nodes_behind

_IMAGES = ("ray", "workspace", "operator")


@dataclass(frozen=True)
class Delivery:
    """One way for the images.

    Attributes:
        images: pods name them so.
        steps: the first is named `image-server`, and outlives what is made of the images. The last is named
            `images`, and is true when the nodes have them, or can have them.
        artifacts: names of what the source has to make be there on this machine.
        takes_engine: whether they come by way of the Docker engine of this machine.
        refusal: why there is no way; None where there is one.
        require_rights: raises Forbidden where one may not go this way.
    """

    images: Images
    steps: tuple[Step, ...]
    artifacts: tuple[str, ...] = ()
    takes_engine: bool = False
    refusal: ImagesOutOfReach | None = None
    require_rights: Callable[[], None] = lambda: None


def delivery(
    settings: Settings,
    instance: Instance,
    shell: Shell,
    source: Source,
    kube: Kube,
    *,
    base: str,
    names: tuple[str, ...] = _IMAGES,
    ground: str = "namespace",
    pull_secret: str = "",
) -> Delivery:
    """Returns the way to the nodes of the Kubernetes that `kube` leads to.

    `base` is what names of ours begin with there. `names` are those of the images, as `Images` has them;
    `ground` is the step before any is loaded; `pull_secret` is the Secret with the login of the source's
    registry.

    With a registry, which somebody has named or the source has, the nodes pull. The nodes of a kind cluster,
    which are containers of this machine's Docker engine, get them from the engine, or out of a bundle.
    Others pull what is in a bundle from a pod of ours; for anything else there is no way, and `refusal` says
    what to do.
    """
    images, registry = source.images, settings.image_registry
    place = NoImageServer(instance, kube, base, needs=(ground,))
    if registry or source.registry:
        pulled = names_in(registry, images)
        if not registry:
            pulled = mirrored_in(source.registry, source, pull_secret)
        return Delivery(pulled, (place, PulledByNodes(_references(pulled, names))))
    behind = nodes_behind(address := server(kube.kubeconfig, kube.context))
    references = _references(images, names)
    if behind is None:
        # Without an engine nobody knows whether it has those nodes.
        is_known = not is_loopback(address) or docker_engine.answers()
        if source.archives and is_known:
            return _served(settings, place, source, source.archives, references)
        refusal = _without_engine(address) if source.archives else _refusal(references)
        return Delivery(images, (place, PulledByNodes(references)), refusal=refusal)
    cluster, nodes = behind
    # They come out of a bundle, past the engine, or out of the engine.
    needs = ("bundle",) if source.archives else tuple(source.step_of(name) for name in names)
    step = NodeImages(shell, cluster, nodes, references, (), source.archives, needs=(ground, *needs))
    return Delivery(images, (place, step), artifacts=() if source.archives else names, takes_engine=True)


def _served(
    settings: Settings,
    place: NoImageServer,
    source: Source,
    archives: Archives,
    references: tuple[str, ...],
) -> Delivery:
    """Returns the way by a pod that serves what is in a bundle."""
    program, image = source.resolve("serving"), settings.serving_image
    pod = ImageServer(
        place,
        port_of(place, settings.serving_nodeport),
        image,
        program.path,
        program.digest,
        program.platform.rpartition("/")[2],
        archives.size(references),
        needs=(*place.needs, source.step_of("serving")),
    )
    return Delivery(
        mirrored_in(pod.registry, source, pull_secret=""),
        (pod, ServedImages(pod, archives, references, needs=(pod.name, "bundle"))),
        artifacts=("serving",),
        require_rights=lambda: rights.require_serving(place.kube, image=image),
    )


def _references(images: Images, names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(getattr(images, name) for name in names)


def _without_engine(address: str) -> ImagesOutOfReach:
    return ImagesOutOfReach(
        f"the Kubernetes API is on this machine, at {address}, and no Docker engine answers that could have "
        "its nodes",
        hint="start the Docker engine; or have the API by an address that is not this machine's loopback",
    )


def _refusal(references: tuple[str, ...]) -> ImagesOutOfReach:
    built = [image for image in references if image.startswith(BUILT_HERE)]
    return ImagesOutOfReach(
        f"the nodes there can't get the images that are built on this machine: {', '.join(built)}",
        hint="./invokew mirror HOST/PATH puts them into a registry that the nodes pull from; then add "
        "--mirror HOST/PATH. Without a registry: ./invokew bundle FILE, then add --bundle FILE",
    )
