"""Chooses how images get to the nodes of a Kubernetes that others look after."""

from __future__ import annotations

from dataclasses import dataclass

from bootstrap.delivery.loaded import NodeImages
from bootstrap.delivery.pulled import BUILT_HERE, PulledByNodes, mirrored_in, names_in
from bootstrap.errors import ImagesOutOfReach
from bootstrap.settings import environment_name
from bootstrap.shell import Shell
from bootstrap.sources.source import Images, Source
from bootstrap.step import Step
from bootstrap.steps.kind_cluster import nodes_behind

_IMAGES = ("ray", "workspace", "operator")


@dataclass(frozen=True)
class Delivery:
    """One way for the images.

    Attributes:
        images: pods name them so.
        step: it is named `images`, and is true when the nodes have them, or can have them.
        artifacts: names of what the source has to make be there on this machine.
        takes_engine: whether they come by way of the Docker engine of this machine.
        refusal: why there is no way; None where there is one.
    """

    images: Images
    step: Step
    artifacts: tuple[str, ...] = ()
    takes_engine: bool = False
    refusal: ImagesOutOfReach | None = None


def delivery(
    registry: str,
    shell: Shell,
    source: Source,
    address: str,
    *,
    names: tuple[str, ...] = _IMAGES,
    ground: str = "namespace",
    pull_secret: str = "",
) -> Delivery:
    """Returns the way to the nodes of the Kubernetes whose API is at `address`.

    `names` are those of the images, as `Images` has them; `ground` is the step before any is loaded;
    `pull_secret` is the Secret with the login of the source's registry.

    With a registry, which somebody has named or the source has, the nodes pull. The nodes of a kind cluster,
    which are containers of this machine's Docker engine, get them from the engine, or out of a bundle.
    Anywhere else there is no way, and `refusal` says what to do.
    """
    images = source.images
    if registry or source.registry:
        pulled = names_in(registry, images)
        if not registry:
            pulled = mirrored_in(source.registry, source, pull_secret)
        return Delivery(pulled, PulledByNodes(_references(pulled, names)))
    behind = nodes_behind(address)
    if behind is None:
        references = _references(images, names)
        return Delivery(images, PulledByNodes(references), refusal=_refusal(source.name, references))
    cluster, nodes = behind
    # They come out of a bundle, past the engine, or out of the engine.
    needs = ("bundle",) if source.archives else tuple(source.step_of(name) for name in names)
    step = NodeImages(
        *(shell, cluster, nodes, _references(images, names), (), source.archives), needs=(ground, *needs)
    )
    return Delivery(images, step, artifacts=() if source.archives else names, takes_engine=True)


def _references(images: Images, names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(getattr(images, name) for name in names)


def _refusal(source: str, references: tuple[str, ...]) -> ImagesOutOfReach:
    if source == "mirror":
        return ImagesOutOfReach(
            "the mirror is on this machine's loopback address, where the nodes there can't reach it",
            hint="name it by an address that they reach, too: --mirror HOST/PATH",
        )
    built = [image for image in references if image.startswith(BUILT_HERE)]
    return ImagesOutOfReach(
        f"the nodes there can't get the images that are built on this machine: {', '.join(built)}",
        hint="./invokew mirror HOST/PATH puts them into a registry that the nodes pull from; then add "
        f"--mirror HOST/PATH. One that has them already: {environment_name('image_registry')}=HOST/PATH",
    )
