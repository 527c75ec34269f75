"""Tests that every package of the lock files has a wheel for each Python and platform: nothing is built."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bootstrap.settings import NEWEST_PYTHON, OLDEST_PYTHON, ROOT

UV = Path(sys.executable).with_name("uv")
PYTHONS = [f"3.{minor}" for minor in range(OLDEST_PYTHON[1], NEWEST_PYTHON[1] + 1)]
LINUX = ("x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu")
# Ray itself has no wheel for Macs with Intel's processors.
EVERYWHERE = (*LINUX, "aarch64-apple-darwin", "x86_64-apple-darwin")
PLATFORMS = {
    "requirements/rayside.txt": EVERYWHERE,
    "requirements/uv.txt": EVERYWHERE,
    "requirements/dev.txt": EVERYWHERE,
    "requirements/ray.txt": EVERYWHERE[:-1],
    "requirements/go.txt": EVERYWHERE,
    "requirements/lab-profilers.txt": EVERYWHERE,
    "requirements/lab-plots.txt": EVERYWHERE,
    "image/workspace/node.txt": EVERYWHERE,
}


def resolved(lock_file: Path, python: str, platform: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Resolves what would be installed from what the index says of each package; it downloads nothing."""
    for_it = ["--python-version", python, "--python-platform", platform, "--target", str(folder)]
    exact = ["--dry-run", "--no-deps", "--require-hashes", "--only-binary", ":all:", "--requirement"]
    command = [str(UV), "pip", "install", *for_it, *exact, str(lock_file)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_every_lock_file_is_looked_at() -> None:
    # Those of Rays that only tests run have to have wheels only where these run.
    files = {*(ROOT / "requirements").glob("*.txt"), *(ROOT / "image").glob("*/*.txt")}
    names = {str(file.relative_to(ROOT)) for file in files if not file.name.startswith("test-")}
    assert names == set(PLATFORMS)


@pytest.mark.parametrize("lock_file", PLATFORMS)
@pytest.mark.parametrize("python", PYTHONS)
def test_there_is_a_wheel_of_everything(lock_file: str, python: str, tmp_path: Path) -> None:
    for platform in PLATFORMS[lock_file]:
        done = resolved(ROOT / lock_file, python, platform, tmp_path)
        assert done.returncode == 0, f"{platform}: {done.stderr}"


def test_a_package_that_has_only_its_source_is_found_out(tmp_path: Path) -> None:
    source_only = tmp_path / "lock.txt"
    digest = "0" * 64
    source_only.write_text(f"docopt==0.6.2 --hash=sha256:{digest}\n")
    done = resolved(source_only, PYTHONS[0], LINUX[0], tmp_path)
    assert done.returncode != 0
    assert "no usable wheels" in done.stderr
