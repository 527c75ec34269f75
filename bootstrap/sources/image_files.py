"""Our files in the context of image/ray/'s Dockerfiles, besides their own folder."""

from __future__ import annotations

from pathlib import Path

from bootstrap.settings import ROOT

_PACKAGE = ROOT / "rayside"


def ray_image_files() -> dict[str, Path]:
    """Returns the lock file, and the worker side of the debugger, by name in the context."""
    worker_side = [_PACKAGE / "__init__.py", *sorted((_PACKAGE / "worker").rglob("*.py"))]
    return {
        "ray.txt": ROOT / "requirements" / "ray.txt",
        **{file.relative_to(ROOT).as_posix(): file for file in worker_side},
    }
