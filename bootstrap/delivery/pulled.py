"""Images that nodes pull from a registry."""

from __future__ import annotations

from dataclasses import dataclass

from bootstrap.sources.source import Images, Source
from rayside.steps.step import Status, ready

# Prefix of the names of images that are built on this machine, which no registry has.
BUILT_HERE = "rayside/"


@dataclass(frozen=True)
class PulledByNodes:
    """The images are in the nodes' registry, which this machine may not reach; pods report missing ones."""

    references: tuple[str, ...]
    needs: tuple[str, ...] = ("preflight",)
    name: str = "images"
    title: str = "images that the nodes pull"

    def check(self) -> Status:
        return ready(", ".join(self.references))


def names_in(registry: str, images: Images) -> Images:
    """Returns the references that nodes pull: images built here from the registry, others unchanged."""
    return Images(
        _name_in(registry, images.ray),
        _name_in(registry, images.workspace),
        _name_in(registry, images.operator),
        pull_policy="IfNotPresent",
    )


def mirrored_in(registry: str, source: Source, pull_secret: str) -> Images:
    """Returns the references that nodes pull, to a source's images in the registry.

    They are digests from the bundle's manifest: other users with write access to the registry can't replace
    an image under our name. `pull_secret` as in Images.
    """

    def reference(name: str) -> str:
        image = source.resolve(name)
        return f"{registry}/{image.reference.rpartition(':')[0]}@{image.digest}"

    return Images(
        reference("ray"),
        reference("workspace"),
        reference("operator"),
        pull_policy="IfNotPresent",
        pull_secret=pull_secret,
    )


def _name_in(registry: str, image: str) -> str:
    return f"{registry}/{image}" if image.startswith(BUILT_HERE) else image
