"""The debugger on real Ray: whatever stops, wherever its file came from."""

from __future__ import annotations

from pathlib import Path

import pytest

from bootstrap.debug.terminal import PROMPT
from bootstrap.settings import ROOT
from tests.integration.conftest import Rayside
from tests.integration.screen import Screen

PROGRAM = """\
import ray
from model import scale

@ray.remote
class Counter:
    def __init__(self):
        self.total = 40

    def add(self, amount):
        breakpoint()
        self.total += amount
        return self.total

@ray.remote
def work(n):
    factor = n + 1
    breakpoint()
    return scale(n, factor)

together = ray.get([work.remote(1), work.remote(2)])
counter = Counter.remote()
total = ray.get(counter.add.remote(2))
breakpoint()
print("result", sorted(together), total)
"""
MODULE = """\
def scale(value, factor):
    result = value * factor
    breakpoint()
    return result
"""


@pytest.fixture(scope="module")
def up(rayside: Rayside) -> Rayside:
    done = rayside.run("up", "--no-example")
    assert done.returncode == 0, done.stdout + done.stderr
    return rayside


@pytest.fixture
def code(tmp_path: Path) -> Path:
    folder = tmp_path / "some code"
    (folder / "lib" / "model").mkdir(parents=True)
    (folder / "lib" / "model" / "__init__.py").write_text(MODULE)
    (folder / "program.py").write_text(PROGRAM)
    return folder


def submit(up: Rayside, code: Path) -> str:
    arguments = ["--py-modules", "lib/model", "--entrypoint", "python program.py"]
    return str(up.json("submit", *arguments, cwd=code)["submission_id"])


def test_tasks_actors_modules_and_the_driver_stop_each_in_its_local_file(up: Rayside, code: Path) -> None:
    job = submit(up, code)
    result = up.json("debug", "--job", job, "--evaluate", "locals().get('factor')")
    stops = [(stop["task"], stop["function"], Path(stop["file"]).name) for stop in result["stopped"]]
    assert sorted(stops) == [
        ("Counter.add", "add", "program.py"),
        ("driver", "<module>", "program.py"),
        ("work", "scale", "__init__.py"),
        ("work", "scale", "__init__.py"),
        ("work", "work", "program.py"),
        ("work", "work", "program.py"),
    ]
    assert {stop["file"] for stop in result["stopped"]} == {
        str(code / "program.py"),
        str(code / "lib" / "model" / "__init__.py"),
    }
    assert sorted(
        s["evaluated"]["locals().get('factor')"] for s in result["stopped"] if "factor" in s["locals"]
    ) == [
        "2",
        "2",
        "3",
        "3",
    ]
    assert result["job"] == {"submission_id": job, "status": "SUCCEEDED"}
    assert "result [2, 6] 42" in up.run("logs", "--job", job).stdout


def test_a_person_leaves_a_task_paused_and_comes_back_to_it(up: Rayside) -> None:
    up.json("submit")
    first = Screen(str(ROOT / "invokew"), "debug", env=up.environment)
    try:
        assert "in estimate" in first.until(PROMPT)
        first.type("p points\r")
        assert "400000" in first.until(PROMPT)
        first.until("is paused again", press="\x03")
    finally:
        first.close()
    assert [paused["task"] for paused in up.json("breakpoints")] == ["estimate"]
    second = Screen(str(ROOT / "invokew"), "debug", env=up.environment)
    try:
        assert "in estimate" in second.until(PROMPT)
        second.type("continue\r")
        second.until("ended: SUCCEEDED")
    finally:
        second.close()
