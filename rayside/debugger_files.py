"""Files of the package `rayside`, as sent to images and jobs, and a hash of them."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

# The folder that the package is in: a checkout, or an environment's site-packages.
ROOT = Path(__file__).resolve().parent.parent
# All files of the package, relative to that folder: a relay and `image/workspace/submit` run with them.
DEBUGGER = tuple(
    file.relative_to(ROOT).as_posix() for file in sorted(Path(__file__).resolve().parent.rglob("*.py"))
)


@cache
def code() -> str:
    """Returns a hash of the debugger's code: a relay that was started with another hash is restarted."""
    digest = hashlib.sha256()
    for file in DEBUGGER:
        data = (ROOT / file).read_bytes()
        digest.update(f"{file} {len(data)}\n".encode() + data)
    return digest.hexdigest()[:12]
