"""Writes files whole or not at all, and those that are private readable by their owner alone at every moment.

A command that is killed, or a disk that is full, leaves what was there; who reads a file never sees a part.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_private(file: Path, content: str | bytes) -> None:
    """Replaces `file`, which lies in a folder of this user's alone, with one that only this user can read."""
    replace_whole(file, content, 0o600)


def replace_whole(file: Path, content: str | bytes, mode: int) -> None:
    """Replaces `file` with one that has this content and these permissions."""
    descriptor, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)  # It is 0600.
    draft = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content.encode() if isinstance(content, str) else content)
        draft.chmod(mode)
        draft.replace(file)
    finally:
        draft.unlink(missing_ok=True)
