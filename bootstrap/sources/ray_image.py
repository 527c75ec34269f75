"""Lists what an image of Ray is made of besides its base, whichever source it is from."""

from __future__ import annotations

from pathlib import Path

from bootstrap.settings import ROOT

_HOOK = ROOT / "bootstrap" / "hook"


def ray_image_files() -> dict[str, Path]:
    """Returns the files that the Dockerfiles of image/ray/ have in their context besides their folder's."""
    hook = [_HOOK / "start.py", *sorted((_HOOK / "rayside_hook").rglob("*.py"))]
    return {
        "ray.txt": ROOT / "requirements" / "ray.txt",
        **{f"hook/{file.relative_to(_HOOK).as_posix()}": file for file in hook},
    }
