"""Tests retries in each Python, with Ray Data, by `rayside run` in an environment that has the wheel."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bootstrap.settings import RAY_VERSION, ROOT
from tests.integration.pythons import python_of
from tests.integration.rayside.test_retries import KINDS
from tests.integration.screen import Screen
from tests.patience import PATIENCE

# What `map_batches` runs is pickled by value, and called within Ray Data's own generators.
DATA = """\
import ray

def halves(batch):
    batch["id"] = batch["id"] + int("2.5")  # data
    return batch

print("kind data", ray.data.range(8, override_num_blocks=4).map_batches(halves).sum("id"))
"""


@pytest.fixture(params=["3.10", "3.11", "3.12", "3.13"])
def programs(request: pytest.FixtureRequest, wheel: Path, tmp_path: Path) -> Path:
    """Returns the programs of an environment with Ray, Ray Data and the wheel."""
    venv = tmp_path / "venv"
    uv: list[str | Path] = [sys.executable, "-m", "uv"]
    subprocess.run([*uv, "venv", "--quiet", "--python", python_of(request.param), venv], check=True)
    install: list[str | Path] = [*uv, "pip", "install", "--quiet", "--python", venv / "bin" / "python"]
    install += ["--constraint", ROOT / "requirements" / "rayside.txt"]
    packages: list[str | Path] = [wheel, f"ray[default]=={RAY_VERSION}", "pandas==2.3.3", "pyarrow==21.0.0"]
    subprocess.run([*install, *packages], check=True, timeout=PATIENCE)
    return venv / "bin"


@pytest.mark.parametrize(("program", "kinds"), [(KINDS, 4), (DATA, 1)], ids=["kinds", "data"])
def test_what_failed_runs_again(programs: Path, tmp_path: Path, program: str, kinds: int) -> None:
    file = tmp_path / "program.py"
    file.write_text(program)
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
    screen = Screen(str(programs / "rayside"), "run", "--post-mortem", str(file), env=environment)
    try:
        for _ in range(kinds):
            shown = screen.until("(rayside) ")
            (line,) = [each for each in shown.splitlines() if each.startswith("->")]
            comment = line.rpartition("# ")[2].strip()
            lines = file.read_text().splitlines(keepends=True)
            edited = [each.replace("int(", "float(") if comment in each else each for each in lines]
            file.write_text("".join(edited))
            screen.type("retry @failed\n")
            screen.until(" returned")
        assert "FAILED" not in screen.until("the program ended: SUCCEEDED")
    finally:
        screen.close()
