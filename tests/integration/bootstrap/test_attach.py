"""Tests `attach` on a real Ray: a job that was submitted without --debug is debugged as far as that goes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rayside.waiting import until
from tests.integration.conftest import Rayside

# Ray sends a class of a module by its name: who attaches lacks the module.
METERS = """\
import time
class Meter:
    def __init__(self):
        self.total = 0
    def add(self, n):
        self.total += n
        return self.total
    def hang(self):
        time.sleep(600)
"""
PROGRAM = """\
import glob, sys, time
import meters, ray
Meter = ray.remote(num_cpus=0.1)(meters.Meter)
@ray.remote(num_cpus=0.1)
def stays():
    while True:
        time.sleep(0.1)
ray.init()
meter, hangs = (Meter.options(name=name).remote() for name in ("meter", "hangs"))
nameless = Meter.remote()
tasks = [stays.remote(), hangs.hang.remote()]
print("begun")
while len(glob.glob(sys.argv[1] + "*")) < int(sys.argv[2]):
    ray.get([each.add.remote(1) for each in (meter, nameless)])
    time.sleep(0.2)
"""
LINE = METERS.splitlines().index("        return self.total") + 1


@pytest.fixture(scope="module")
def up(rayside: Rayside) -> Rayside:
    done = rayside.run("up", "--no-example")
    assert done.returncode == 0, done.stdout + done.stderr
    return rayside


def begin(up: Rayside, folder: Path, stops: int = 1) -> str:
    """Submits the program, which ends once there are so many `stop...`; returns its id once it all runs."""
    (folder / "main.py").write_text(PROGRAM)
    (folder / "meters.py").write_text(METERS)
    entrypoint = f"python main.py '{folder / 'stop'}' {stops}"
    name = str(up.json("submit", "--working-dir", str(folder), "--entrypoint", entrypoint)["submission_id"])
    dashboard = up.target.access.require()

    def runs() -> bool:
        names = [task.name for tasks in dashboard.running_tasks().values() for task in tasks]
        return "begun" in dashboard.output(name) and {"stays", "Meter.hang"} <= set(names)

    assert until(runs, bool, 180), dashboard.output(name)
    return name


def results(document: Any) -> list[tuple[str, str, str]]:
    rows = [(each["kind"], each["name"], each["result"]) for each in document["processes"]]
    return sorted(rows)


def test_actors_stop_and_of_others_the_stack_is_told(up: Rayside, tmp_path: Path) -> None:
    name = begin(up, tmp_path, stops=2)
    before = {job.submission_id for job in up.target.access.require().jobs()}
    document = up.json("attach", name)
    assert results(document) == [
        ("actor", "Meter", "busy"),
        ("actor", "Meter", "opened"),
        ("actor", "Meter", "opened"),
        ("driver", "driver", "not possible"),
        ("task", "stays", "not possible"),
    ]
    stacks = {each["name"]: each["stack"] for each in document["processes"] if each["result"] != "opened"}
    assert "stays (main.py:" in stacks["stays"], stacks
    # Of the job that opened it, nothing is left in Ray's list.
    assert {job.submission_id for job in up.target.access.require().jobs()} == before

    # Each actor that stops leaves a file: the program goes on until both have.
    stop = f"open({str(tmp_path / 'stop')!r} + str(__import__('os').getpid()), 'w').close()"
    at = f"{tmp_path / 'meters.py'}:{LINE}"
    options = ["--job", name, "--timeout", "60", "--break", at, "--evaluate", "self.total"]
    document = up.json("debug", *options, "--evaluate", f"exec({stop!r})", timeout=240)
    assert document["job"]["status"] == "SUCCEEDED"
    assert {(each["function"], each["line"]) for each in document["stopped"]} == {("add", LINE)}
    assert len({each["worker_id"] for each in document["stopped"]}) == 2


def test_what_is_open_stays_so_and_one_actor_can_be_named(up: Rayside, tmp_path: Path) -> None:
    name = begin(up, tmp_path)
    meter = next(each for each in up.json("attach", name)["processes"] if each["result"] == "opened")
    again = up.json("attach", meter["actor_id"])
    assert [(each["worker_id"], each["result"]) for each in again["processes"]] == [
        (meter["worker_id"], "open")
    ]
    done = up.run("attach", meter["worker_id"])
    assert done.returncode == 0
    assert "open" in done.stdout and "Next: ./invokew debug" in done.stdout
    (tmp_path / "stop").touch()


def test_where_nothing_can_be_opened_it_says_what_helps(up: Rayside, tmp_path: Path) -> None:
    name = begin(up, tmp_path)
    task = next(each for each in up.json("attach", name)["processes"] if each["kind"] == "task")
    done = up.run("attach", task["worker_id"])
    assert done.returncode == 5
    assert "another job can send code only to an actor" in done.stdout
    assert "submit --debug opens a job from its start" in done.stderr
    (tmp_path / "stop").touch()


def test_what_does_not_run_is_an_error(up: Rayside) -> None:
    assert up.json("attach", "nobody", code=5)["error"]["id"] == "job-not-found"
