"""Lists what an image of Ray is made of besides its base, whichever source it is from."""

from __future__ import annotations

from pathlib import Path

from bootstrap.settings import ROOT

_HOOK = ROOT / "bootstrap" / "ray" / "hook"


def hook_files() -> dict[str, Path]:
    """Returns the hook and what runs at the start of Python, by their path below bootstrap/ray/hook/."""
    return {str(file.relative_to(_HOOK)): file for file in sorted(_HOOK.rglob("*.py"))}


def ray_image_files() -> dict[str, Path]:
    """Returns the files that the Dockerfiles of image/ray/ have in their context besides their folder's."""
    hook = {f"hook/{name}": file for name, file in hook_files().items()}
    return {"ray.txt": ROOT / "requirements" / "ray.txt", **hook}
