"""Files of the debugger, the package `rayside`, as images and jobs have them."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

# The folder that the package is in: a checkout, or an environment's site-packages.
ROOT = Path(__file__).resolve().parent.parent
# All of it, as paths below that folder: what a relay runs with, and `image/workspace/submit`.
DEBUGGER = tuple(
    file.relative_to(ROOT).as_posix() for file in sorted(Path(__file__).resolve().parent.rglob("*.py"))
)


@cache
def code() -> str:
    """Returns a hash of the debugger's code: a relay that was started for another is started anew."""
    digest = hashlib.sha256()
    for file in DEBUGGER:
        data = (ROOT / file).read_bytes()
        digest.update(f"{file} {len(data)}\n".encode() + data)
    return digest.hexdigest()[:12]
