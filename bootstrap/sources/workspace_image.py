"""Describes the workspace's image, which both sources build from the cluster's own Ray image."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from bootstrap.settings import ROOT
from bootstrap.sources.extensions import OWN, Extension, own_files
from bootstrap.sources.image_build import ImageBuild
from bootstrap.sources.ray_image import hook_files

# `python -m bootstrap.relay` needs just these of ours. It runs where nothing else of ours is.
RELAY = (
    "bootstrap/__init__.py",
    "bootstrap/errors.py",
    "bootstrap/loopback.py",
    "bootstrap/plain.py",
    "bootstrap/relay.py",
    "bootstrap/debug/__init__.py",
    "bootstrap/debug/capabilities.py",
    "bootstrap/debug/client.py",
    "bootstrap/debug/configuration.py",
    "bootstrap/debug/dap.py",
    "bootstrap/debug/debug_session.py",
    "bootstrap/debug/debuggee.py",
    "bootstrap/debug/desired.py",
    "bootstrap/debug/editor.py",
    "bootstrap/debug/editor_requests.py",
    "bootstrap/debug/exception_filters.py",
    "bootstrap/debug/files.py",
    "bootstrap/debug/flood.py",
    "bootstrap/debug/gathered.py",
    "bootstrap/debug/hit_condition.py",
    "bootstrap/debug/ids.py",
    "bootstrap/debug/interruption.py",
    "bootstrap/debug/lifecycle.py",
    "bootstrap/debug/line_table.py",
    "bootstrap/debug/lines.py",
    "bootstrap/debug/locations.py",
    "bootstrap/debug/lookout.py",
    "bootstrap/debug/messages.py",
    "bootstrap/debug/others.py",
    "bootstrap/debug/paths.py",
    "bootstrap/debug/relay.py",
    "bootstrap/debug/reports.py",
    "bootstrap/debug/results.py",
    "bootstrap/debug/rules.py",
    "bootstrap/debug/sent.py",
    "bootstrap/debug/stop_points.py",
    "bootstrap/debug/threads.py",
    "bootstrap/debug/tracing.py",
    "bootstrap/debug/translation.py",
    "bootstrap/debug/work.py",
    "bootstrap/debug/worker.py",
    "bootstrap/ray/__init__.py",
    "bootstrap/ray/announced.py",
    "bootstrap/ray/hook/__init__.py",
    "bootstrap/ray/hook/rayside_hook/__init__.py",
    "bootstrap/ray/hook/rayside_hook/handshake.py",
    "bootstrap/debug/inside/__init__.py",
    # It reads these: they are sent to workers.
    "bootstrap/debug/inside/by_value.py",
    "bootstrap/debug/inside/exceptions.py",
    "bootstrap/debug/inside/prints.py",
    "bootstrap/debug/inside/reached.py",
    "bootstrap/ray/hook/rayside_hook/tracing.py",
    "bootstrap/ray/paths.py",
    "bootstrap/ray/state.py",
)

# `image/workspace/submit` needs just these of ours, for the same reason.
SUBMISSION = (
    "bootstrap/__init__.py",
    "bootstrap/console.py",
    "bootstrap/errors.py",
    "bootstrap/loopback.py",
    "bootstrap/options.py",
    "bootstrap/plain.py",
    "bootstrap/settings.py",
    "bootstrap/submission.py",
    "bootstrap/yaml_file.py",
    "bootstrap/ray/__init__.py",
    "bootstrap/ray/jobs.py",
    "bootstrap/ray/state.py",
    # It is the whole package, which is sent to workers.
    *(f"bootstrap/ray/hook/{name}" for name in hook_files()),
)


def workspace_image(
    ray_image: str,
    cache_folder: Path,
    build_base: str | None = None,
    extensions: Sequence[Extension] = (),
) -> ImageBuild:
    """Returns the build; `build_base` is what it can start from, where that is less than Ray.

    `extensions` are others' extensions, in the folder or the cache that they come from.
    """
    record = json.dumps([extension.document() for extension in extensions])
    return ImageBuild(
        name="workspace-image",
        title="image of the workspace",
        repository="rayside/workspace",
        context=ROOT / "image" / "workspace",
        arguments={
            "BASE": ray_image,
            "EXTENSIONS": record,
            **({"BUILD_BASE": build_base} if build_base else {}),
        },
        extra={
            **{f"rayside/{file}": ROOT / file for file in (*RELAY, *SUBMISSION)},
            **{f"extension/{file.relative_to(OWN).as_posix()}": file for file in own_files()},
            "extension/LICENSE": ROOT / "LICENSE",
            **{f"extensions/{extension.id}.vsix": extension.file for extension in extensions},
        },
        needs=("engine", "ray-image", "extensions"),
        cache_folder=cache_folder,
    )
