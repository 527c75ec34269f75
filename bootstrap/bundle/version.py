"""Version of a bundle: the code that it is for, as its images and this checkout have to match."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from bootstrap.bundle.manifest import Version
from bootstrap.settings import KUBERAY_VERSION, KUBERNETES_VERSION, RAY_VERSION, ROOT

# Users may change other files, above all the example and the labs, and the bundle still fits.
_CODE = ("bootstrap", "image", "k8s", "rayside", "requirements", "vscode")
_FILES = ("invokew", "tasks.py")


@cache
def this_version() -> Version:
    """Returns the version of this checkout."""
    files = [path for name in _CODE for path in (ROOT / name).rglob("*") if path.is_file()]
    code = code_of(ROOT, [*files, *(ROOT / name for name in _FILES)])
    return Version(code, RAY_VERSION, KUBERNETES_VERSION, KUBERAY_VERSION)


def code_of(root: Path, files: Iterable[Path]) -> str:
    """Returns a hash of the names, modes and contents of those files that are Rayside's code."""
    digest = hashlib.sha256()
    for file in sorted(file for file in files if _counts(file.relative_to(root))):
        executable = "x" if os.access(file, os.X_OK) else "-"
        content = file.read_bytes()
        digest.update(f"{file.relative_to(root).as_posix()} {executable} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()


def _counts(path: Path) -> bool:
    if len(path.parts) == 1:
        return path.name in _FILES
    hidden = any(part in ("__pycache__", "node_modules") or part.startswith(".") for part in path.parts)
    return path.parts[0] in _CODE and not hidden
