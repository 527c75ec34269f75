"""Chooses how images get to the nodes of a Kubernetes that others look after."""

from __future__ import annotations

from dataclasses import dataclass

from bootstrap.delivery.loaded import NodeImages
from bootstrap.delivery.pulled import BUILT_HERE, PulledByNodes, names_in
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
        refusal: why there is no way; None where there is one.
    """

    images: Images
    step: Step
    artifacts: tuple[str, ...] = ()
    refusal: ImagesOutOfReach | None = None

    @property
    def builds(self) -> bool:
        """Returns whether it takes the Docker engine of this machine."""
        return bool(self.artifacts)


def delivery(
    registry: str,
    shell: Shell,
    source: Source,
    address: str,
    *,
    names: tuple[str, ...] = _IMAGES,
    ground: str = "namespace",
) -> Delivery:
    """Returns the way to the nodes of the Kubernetes whose API is at `address`.

    `names` are those of the images, as `Images` has them; `ground` is the step before any is loaded.

    With a registry the nodes pull. The nodes of a kind cluster, which are containers of this machine's Docker
    engine, get them from the engine. Anywhere else there is no way, and `refusal` says what to do.
    """
    images = source.images
    if registry:
        pulled = names_in(registry, images)
        return Delivery(pulled, PulledByNodes(_references(pulled, names)))
    behind = nodes_behind(address)
    if behind is None:
        references = _references(images, names)
        return Delivery(images, PulledByNodes(references), refusal=_refusal(references))
    cluster, nodes = behind
    needs = (ground, *(source.step_of(name) for name in names))
    step = NodeImages(shell, cluster, nodes, _references(images, names), (), needs=needs)
    return Delivery(images, step, artifacts=names)


def _references(images: Images, names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(getattr(images, name) for name in names)


def _refusal(references: tuple[str, ...]) -> ImagesOutOfReach:
    built = [image for image in references if image.startswith(BUILT_HERE)]
    return ImagesOutOfReach(
        f"the nodes there can't get the images that are built on this machine: {', '.join(built)}",
        hint="./invokew prepare --target kind builds them; push them to a registry that the nodes pull from "
        f"(docker tag, docker push), and name it: {environment_name('image_registry')}=HOST/PATH",
    )
