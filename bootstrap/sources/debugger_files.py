"""Files of the debugger, the package `rayside/`, as images and jobs have them."""

from __future__ import annotations

from pathlib import Path

from bootstrap import cache
from bootstrap.settings import ROOT

_PACKAGE = ROOT / "rayside"
# All of it, as paths below the checkout: what a relay runs with, and `image/workspace/submit`.
DEBUGGER = tuple(file.relative_to(ROOT).as_posix() for file in sorted(_PACKAGE.rglob("*.py")))


def code() -> str:
    """Returns a hash of the debugger's code: a relay that was started for another is started anew."""
    return cache.key(*((ROOT / file).read_text() for file in DEBUGGER))


def ray_image_files() -> dict[str, Path]:
    """Returns the files that the Dockerfiles of image/ray/ have in their context besides their folder's."""
    worker_side = [_PACKAGE / "__init__.py", *sorted((_PACKAGE / "worker").rglob("*.py"))]
    return {
        "ray.txt": ROOT / "requirements" / "ray.txt",
        **{file.relative_to(ROOT).as_posix(): file for file in worker_side},
    }
