"""Copy of the project as after a clone, with the uncommitted changes."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from bootstrap.settings import ROOT


def check_out(folder: Path) -> Path:
    """Copies every tracked or not ignored file, and so no .venv; the folder may exist already."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder
