"""Fixtures of the debugger's tests: its wheel, and an environment that has Ray and the wheel alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bootstrap.settings import ROOT
from tests.patience import PATIENCE
from tests.targets import local_target


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT / "rayside", check=True, capture_output=True, timeout=60)
    (wheel,) = folder.iterdir()
    return wheel


@pytest.fixture(scope="session")
def python(wheel: Path, ray_environment: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a Python that has Ray, the wheel and what that needs."""
    venv = tmp_path_factory.mktemp("venv")
    rays = local_target().environment.programs / "python"
    subprocess.run([rays, "-m", "venv", "--without-pip", venv], check=True, timeout=60)
    python = venv / "bin" / "python"
    (_packages(python) / "ray.pth").write_text(str(_packages(rays)))
    install: list[str | Path] = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", python]
    pins = ROOT / "requirements" / "rayside.txt"
    subprocess.run([*install, "--constraint", pins, wheel], check=True, timeout=PATIENCE)
    return python


def _packages(python: Path) -> Path:
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    done = subprocess.run([python, "-c", where], check=True, capture_output=True, text=True)
    return Path(done.stdout.strip())
