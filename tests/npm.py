"""Node, npm, and npm packages that only tests need."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from bootstrap import cache
from bootstrap.settings import Settings
from rayside.console import Console
from tests.targets import local_target


def programs() -> Path:
    """Returns the folder of `node` and `npm`: the workspace's own, in the cache that every test shares."""
    files = local_target().workspace_files
    files.apply(Console().event)
    return files.folder / "build" / "node" / "bin"


def environment(node: Path) -> dict[str, str]:
    """Returns an environment in which scripts find `node`."""
    return {**os.environ, "PATH": f"{node}{os.pathsep}{os.environ['PATH']}"}


def packages(node: Path, folder: Path) -> Path:
    """Returns `node_modules` for the lock file in `folder`, downloaded once into the cache."""
    files = [folder / name for name in ("package.json", "package-lock.json")]
    cached = Settings().cache_folder / f"npm-{cache.key(*(file.read_text() for file in files))}"
    with cache.making(cached, lambda text: None) as draft:
        if draft is not None:
            for file in files:
                shutil.copy(file, draft)
            subprocess.run(
                [str(node / "npm"), "ci", "--ignore-scripts", "--no-audit", "--no-fund"],
                cwd=draft,
                env={**cache.environment(cached), "PATH": environment(node)["PATH"]},
                check=True,
                capture_output=True,
                timeout=300,
            )
    return cached / "node_modules"
