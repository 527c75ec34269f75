"""The workspace's image, which both sources build from the cluster's own Ray image."""

from __future__ import annotations

from pathlib import Path

from bootstrap.settings import ROOT
from bootstrap.sources.image_build import ImageBuild

# All that `python -m bootstrap.relay` needs of ours. It runs where nothing else of ours is.
RELAY = (
    "bootstrap/__init__.py",
    "bootstrap/errors.py",
    "bootstrap/relay.py",
    "bootstrap/debug/__init__.py",
    "bootstrap/debug/capabilities.py",
    "bootstrap/debug/client.py",
    "bootstrap/debug/dap.py",
    "bootstrap/debug/debuggee.py",
    "bootstrap/debug/desired.py",
    "bootstrap/debug/editor.py",
    "bootstrap/debug/files.py",
    "bootstrap/debug/ids.py",
    "bootstrap/debug/lines.py",
    "bootstrap/debug/paths.py",
    "bootstrap/debug/relay.py",
    "bootstrap/debug/tracing.py",
    "bootstrap/debug/translation.py",
    "bootstrap/debug/worker.py",
    "bootstrap/ray/__init__.py",
    # Read, not imported: it is sent to workers.
    "bootstrap/ray/hook/rayside_hook/tracing.py",
    "bootstrap/ray/paths.py",
    "bootstrap/ray/state.py",
)


def workspace_image(ray_image: str, cache_folder: Path, build_base: str | None = None) -> ImageBuild:
    """`build_base`: what the build can start from, where that is less than Ray."""
    return ImageBuild(
        name="workspace-image",
        title="image of the workspace",
        repository="rayside/workspace",
        context=ROOT / "image" / "workspace",
        arguments={"BASE": ray_image, **({"BUILD_BASE": build_base} if build_base else {})},
        extra={f"relay/{file}": ROOT / file for file in RELAY},
        needs=("engine", "ray-image"),
        cache_folder=cache_folder,
    )
