"""Tests drivers that nobody submitted: `python -m rayside.worker`, a notebook, a printed runtime_env."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from bootstrap.settings import ROOT
from tests.integration.conftest import Rayside

PROGRAM = """\
import sys, time
import ray
@ray.remote(num_cpus=0.1)
def half(n):
    result = n / 2
    return result
if __name__ == "__main__":
    ray.init(**OPTIONS)
    for _ in range(TIMES):
        print(f"halves {ray.get([half.remote(int(n)) for n in sys.argv[1:]])}")
        time.sleep(0.3)
"""


@pytest.fixture(scope="module")
def up(rayside: Rayside) -> Rayside:
    done = rayside.run("up", "--no-example")
    assert done.returncode == 0, done.stdout + done.stderr
    return rayside


def start(
    up: Rayside, file: Path, *words: str, prefix: str = "", times: int = 1, **options: Any
) -> subprocess.Popen[str]:
    """Starts a driver as somebody does who has a shell on the head's machine."""
    text = prefix + PROGRAM.replace("**OPTIONS", f"**{options!r}").replace("TIMES", str(times))
    file.write_text(text)
    head = up.target.access.target.head
    environment: Mapping[str, str] = {
        **head.environment(),
        "PYTHONPATH": str(ROOT),
        "RAY_ADDRESS": (up.folder / "ray" / "ray_current_cluster").read_text(),
    }
    return subprocess.Popen(
        [head.programs / "python", *words, file, "4", "6"],
        cwd=file.parent,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_the_tasks_of_drivers_that_nobody_submitted_stop(up: Rayside, tmp_path: Path) -> None:
    names = ("program", "notebook", "runtime_env")
    program, notebook, runtime_env = files = [tmp_path / f"{name}.py" for name in names]
    printed = up.json("submit", "--print-runtime-env")
    drivers = [
        start(up, program, "-m", "rayside.worker"),
        # It waits for nobody, so that the first may be over before the breakpoint is set.
        start(up, notebook, prefix="import rayside.worker.notebook\n", times=60),
        start(up, runtime_env, runtime_env=printed),
    ]
    breaks = [
        f"--break={file}:{file.read_text().splitlines().index('    return result') + 1}" for file in files
    ]
    options = ["--timeout", "30", *breaks, "--evaluate", "result"]
    document = up.json("debug", *options, timeout=300)
    stops = {(stop["task"], stop["file"], stop["evaluated"]["result"]) for stop in document["stopped"]}
    assert stops == {("half", str(file), result) for file in files for result in ("2.0", "3.0")}
    for driver in drivers:
        output, _ = driver.communicate(timeout=60)
        assert driver.returncode == 0, output
        assert "halves [2.0, 3.0]" in output


def test_after_ray_init_it_is_too_late_and_says_so(up: Rayside, tmp_path: Path) -> None:
    file = tmp_path / "main.py"
    driver = start(up, file, prefix="import ray; ray.init(); import rayside.worker.notebook\n")
    output, _ = driver.communicate(timeout=60)
    assert driver.returncode == 1
    assert "call ray.shutdown(), then this, then ray.init() again" in output


def test_what_submits_nothing_takes_no_entrypoint(up: Rayside) -> None:
    done = up.run("submit", "--print-runtime-env", "--entrypoint", "python main.py")
    assert done.returncode == 2
    assert "--print-runtime-env submits nothing" in done.stderr
