"""Tests `submit --pip-debugpy` on a real Ray without debugpy: the job gets it from the index."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.integration.conftest import Rayside

PROGRAM = """\
import ray

@ray.remote
def work(n):
    return n + 1

ray.init()
print(f"result {ray.get(work.remote(1))}")
"""
# Nothing else needs that package.
COMPILED_IN = "'bytecode' in __import__('sys').modules"


@pytest.fixture(scope="module")
def up(rayside: Rayside) -> Iterator[Rayside]:
    """Provides Ray in a copy of its environment without debugpy, as in a user's own image."""
    with tempfile.TemporaryDirectory(prefix="rc-", dir="/tmp") as cache:
        bare = Rayside(replace(rayside.settings, cache_folder=Path(cache)))
        whole, copy = rayside.target.environment.folder, bare.target.environment.folder
        packages = next(whole.glob("lib/python3*/site-packages"))
        # Ray's own, which it makes a job's environment with.
        clone = packages / "ray" / "_private" / "runtime_env" / "_clonevirtualenv.py"
        subprocess.run([whole / "bin" / "python", clone, whole, copy], check=True, capture_output=True)
        for name in ("debugpy*", "bytecode*"):
            for distribution in (copy / packages.relative_to(whole)).glob(name):
                shutil.rmtree(distribution)
        assert subprocess.run(
            [copy / "bin" / "python", "-c", "import debugpy"], check=False, capture_output=True
        ).returncode
        (copy / ".complete").touch()
        try:
            done = bare.run("up", "--no-example")
            assert done.returncode == 0, done.stdout + done.stderr
            yield bare
        finally:
            bare.run("down")


@pytest.fixture
def code(tmp_path: Path) -> Path:
    (tmp_path / "program.py").write_text(PROGRAM)
    return tmp_path


def test_without_it_the_job_says_what_is_missing_and_runs_to_its_end(up: Rayside, code: Path) -> None:
    done = up.run("submit", "--entrypoint", "python program.py", "--debug", "--wait", cwd=code)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "rayside: no debugger in this process, it has no debugpy: submit with --pip-debugpy" in done.stdout
    assert "result 2" in done.stdout


def test_with_it_a_task_and_the_driver_stop_in_unmodified_code(up: Rayside, code: Path) -> None:
    # Ray makes an environment of the job's own first: a copy of its own, and what pip fetches.
    options = ["--entrypoint", "python program.py", "--debug", "--pip-debugpy", "--attach-timeout", "150"]
    job = up.json("submit", *options, cwd=code)["submission_id"]
    options = ["--break", "program.py:5", "--break", "program.py:8", "--evaluate", COMPILED_IN]
    done = up.run("debug", "--job", job, *options, "--timeout", "150", "--json", cwd=code, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(done.stdout)
    stops = [(stop["task"], stop["function"], stop["line"]) for stop in result["stopped"]]
    assert stops == [("driver", "<module>", 8), ("work", "work", 5)], up.run("logs", "--job", job).stdout
    assert result["stopped"][1]["locals"] == {"n": "1"}
    assert [stop["evaluated"] for stop in result["stopped"]] == [{COMPILED_IN: "True"}] * 2
    assert result["job"] == {"submission_id": job, "status": "SUCCEEDED"}
