"""Atomic file writes; a private file is readable by its owner alone at every moment.

A killed command or a full disk leaves the previous file; a reader never sees a partial one.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_private(file: Path, content: str | bytes) -> None:
    """Replaces `file`, in a private folder of this user, with one that only this user can read."""
    replace_whole(file, content, 0o600)


def replace_whole(file: Path, content: str | bytes, mode: int) -> None:
    """Replaces `file` atomically with this content and these permissions."""
    descriptor, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)  # It is 0600.
    draft = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content.encode() if isinstance(content, str) else content)
        draft.chmod(mode)
        draft.replace(file)
    finally:
        draft.unlink(missing_ok=True)
