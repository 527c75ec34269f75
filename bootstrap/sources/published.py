"""Lists all that is held to digests in the repository: for every platform, each with its publisher's word."""

from __future__ import annotations

from collections.abc import Callable

from bootstrap.settings import Settings
from bootstrap.sources import extensions
from bootstrap.sources.releases import Releases

_SYSTEMS = ("linux", "darwin")
# Release pages call an architecture so, and VS Code calls it so.
_ARCHITECTURES = (("amd64", "x64"), ("arm64", "arm64"))


def published(settings: Settings) -> dict[str, Callable[[], str]]:
    """Returns a function for each, by its recorded name, that asks whoever publishes it for its digest.

    These are the pinned programs, images and extensions. Packages have the lock files of their languages,
    KubeRay's manifests among them, which are in a Go module.
    """
    asking: dict[str, Callable[[], str]] = {}
    for system in _SYSTEMS:
        for architecture, editors_name in _ARCHITECTURES:
            releases = Releases(settings, system=system, architecture=architecture)
            programs = (releases.kind, releases.kubectl, releases.kubectl_ray, releases.oras)
            images = (releases.ray, releases.operator, releases.node)
            asking |= {each.record: each.published for each in (*programs, *images) if each.record}
            asking |= extensions.published(settings, f"{system}-{editors_name}")
    return asking
