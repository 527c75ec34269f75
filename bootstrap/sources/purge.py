"""Removal of the sources' images from the Docker engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bootstrap import docker_engine
from bootstrap.bundle.manifest import BUNDLED
from bootstrap.errors import EngineNotPermitted, EngineNotRunning
from bootstrap.sources.image_build import LABEL
from bootstrap.sources.pulled_image import FOREIGN

if TYPE_CHECKING:
    from docker import DockerClient


def remove_images() -> list[str]:
    """Removes all of our images, and their build stages; returns the images' references."""
    import docker.errors

    removed: list[str] = []
    try:
        with docker_engine.connected(300) as client:
            references = [
                reference
                for image in client.images.list(filters={"label": LABEL})
                for reference in image.tags or [image.id]
            ]
            for prefix in (BUNDLED, FOREIGN):
                references += names_of_ours(client, prefix)
            for reference in references:
                try:
                    client.images.remove(reference, force=True)
                    removed.append(reference)
                except docker.errors.APIError:  # A container uses it.
                    continue
            client.images.prune(filters={"dangling": True, "label": f"{LABEL}=build"})
    except (EngineNotRunning, EngineNotPermitted):  # Without an engine there are no images.
        pass
    return removed


def names_of_ours(client: DockerClient, prefix: str) -> list[str]:
    """Returns the names of images with that prefix, without a user's own names for the same images."""
    images = client.images.list(filters={"reference": f"{prefix}*"})
    return [tag for image in images for tag in image.tags if tag.startswith(prefix)]
