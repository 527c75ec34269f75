"""Image of the workspace, which both sources build from the cluster's own Ray image."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from bootstrap.download import sha256
from bootstrap.settings import ROOT
from bootstrap.sources.extensions import own_files
from bootstrap.sources.image_build import ImageBuild
from bootstrap.sources.vsix import Extension
from rayside.debugger_files import DEBUGGER

# Files of a clone that a workspace's user needs: the verbs, and the labs for the pod.
CLONE = (
    *("LICENSE", "invokew", "requirements/rayside.txt", "tasks.py"),
    *(file.relative_to(ROOT).as_posix() for file in sorted((ROOT / "bootstrap").rglob("*.py"))),
    *DEBUGGER,
    *(
        file.relative_to(ROOT).as_posix()
        for file in sorted((ROOT / "example").rglob("*"))
        if file.is_file() and "__pycache__" not in file.parts
    ),
)


def workspace_image(
    ray_image: str,
    cache_folder: Path,
    build_base: str | None = None,
    extensions: Sequence[Extension] = (),
    hashed: Callable[[Path], str] = sha256,
    architecture: str = "",
) -> ImageBuild:
    """Returns the build; `build_base`: a smaller base image than Ray's for its build stage.

    `extensions` are third-party extensions, in their folder or in the cache. `hashed` and `architecture` as
    in ImageBuild.
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
            **{f"rayside/{file}": ROOT / file for file in DEBUGGER},
            **{f"clone/{file}": ROOT / file for file in CLONE},
            "rayside.txt": ROOT / "requirements" / "rayside.txt",
            **{f"extension/{name}": file for name, file in own_files().items()},
            "extension/LICENSE": ROOT / "LICENSE",
            **{f"extensions/{extension.id}.vsix": extension.file for extension in extensions},
        },
        hashed=hashed,
        needs=("engine", "ray-image", "extensions"),
        cache_folder=cache_folder,
        architecture=architecture,
    )
