"""Images that nodes pull from a registry to which somebody has pushed them."""

from __future__ import annotations

from dataclasses import dataclass

from bootstrap.sources.source import Images, Source
from rayside.steps.step import Status, ready

# Images that are built here bear names below this, which no registry has.
BUILT_HERE = "rayside/"


@dataclass(frozen=True)
class PulledByNodes:
    """The images are where the nodes pull from; this machine may not see that. Pods say which one lacks."""

    references: tuple[str, ...]
    needs: tuple[str, ...] = ("preflight",)
    name: str = "images"
    title: str = "images that the nodes pull"

    def check(self) -> Status:
        return ready(", ".join(self.references))


def names_in(registry: str, images: Images) -> Images:
    """Returns the references by which nodes pull: in the registry those built here, others where they are."""
    return Images(
        _name_in(registry, images.ray),
        _name_in(registry, images.workspace),
        _name_in(registry, images.operator),
        pull_policy="IfNotPresent",
    )


def mirrored_in(registry: str, source: Source, pull_secret: str) -> Images:
    """Returns the references by which nodes pull what a source has put there.

    They are digests, which the bundle's manifest has: whoever may write to the registry can't give a name of
    ours to another image. `pull_secret` is as Images has it.
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
