"""Removes from the Docker engine what the sources built there."""

from __future__ import annotations

from bootstrap import docker_engine
from bootstrap.bundle.manifest import BUNDLED
from bootstrap.errors import EngineNotPermitted, EngineNotRunning
from bootstrap.sources.image_build import LABEL


def remove_images() -> list[str]:
    """Removes every image of ours, and the stages they were built in; returns their references."""
    import docker.errors

    removed: list[str] = []
    try:
        with docker_engine.connected(300) as client:
            images = client.images.list(filters={"label": LABEL})
            images += client.images.list(filters={"reference": f"{BUNDLED}*"})
            for image in images:
                for reference in image.tags or [image.id]:
                    try:
                        client.images.remove(reference, force=True)
                        removed.append(reference)
                    except docker.errors.APIError:  # Somebody's container uses it.
                        continue
            client.images.prune(filters={"dangling": True, "label": f"{LABEL}=build"})
    except (EngineNotRunning, EngineNotPermitted):  # Without an engine there is nothing to remove them from.
        pass
    return removed
