"""The workspace's image, which both sources build from the cluster's own Ray image."""

from __future__ import annotations

from pathlib import Path

from bootstrap.settings import ROOT
from bootstrap.sources.image_build import ImageBuild


def workspace_image(ray_image: str, cache_folder: Path, build_base: str | None = None) -> ImageBuild:
    """`build_base`: what the build can start from, where that is less than Ray."""
    return ImageBuild(
        name="workspace-image",
        title="image of the workspace",
        repository="rayside/workspace",
        context=ROOT / "image" / "workspace",
        arguments={"BASE": ray_image, **({"BUILD_BASE": build_base} if build_base else {})},
        needs=("engine", "ray-image"),
        cache_folder=cache_folder,
    )
