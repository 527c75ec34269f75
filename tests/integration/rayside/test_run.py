"""Tests `rayside run` on a real Ray, from an environment that has Ray and the wheel alone."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from bootstrap.settings import ROOT
from rayside.client.commands import Place
from rayside.client.scripted import run_sync
from rayside.client.session import AttachOptions, NoJob
from rayside.dap.client import Client
from rayside.errors import NotRunning
from tests.integration.conftest import Rayside
from tests.integration.relay_port import until
from tests.integration.screen import Screen
from tests.patience import PATIENCE

PROGRAM = """\
import sys

import ray

before = 1  # no Ray is there yet


@ray.remote(num_cpus=0.1)
def half(n):
    result = n / 2
    return result


@ray.remote(num_cpus=0.1)
class Counter:
    def add(self, n):
        return 10 / n


def main(words):
    for _ in range(2):
        ray.init(num_cpus=1, include_dashboard=True)
        halves = ray.get([half.remote(int(word)) for word in words])
        ray.get(Counter.remote().add.remote(sum(halves)))
        ray.shutdown()
    print(f"halves {halves}")


if __name__ == "__main__":
    main(sys.argv[1:])
"""
BEFORE, HALF, ADD, HALVES = (
    PROGRAM.splitlines().index(line) + 1
    for line in (
        "before = 1  # no Ray is there yet",
        "    return result",
        "        return 10 / n",
        "        ray.get(Counter.remote().add.remote(sum(halves)))",
    )
)


@pytest.fixture
def program(tmp_path: Path) -> Path:
    file = tmp_path / "halves.py"
    file.write_text(PROGRAM)
    return file


@pytest.fixture
def environment(python: Path, tmp_path: Path) -> Iterator[dict[str, str]]:
    """Yields the variables of a user who has that Python, and sees that nothing of a run is left."""
    with tempfile.TemporaryDirectory(prefix="r-", dir="/tmp") as folder:  # short, for Ray's sockets
        (Path(folder) / "run").mkdir()
        yield {
            "PATH": f"{python.parent}{os.pathsep}{os.defpath}",
            "HOME": str(tmp_path),
            "TMPDIR": f"{folder}/run",
            "RAY_TMPDIR": folder,
            "RAY_USAGE_STATS_ENABLED": "0",
        }
        with contextlib.suppress(AssertionError):
            until(lambda: not [*processes(folder)])
        assert [" ".join(each.cmdline())[:200] for each in processes(folder)] == []
        assert [*(Path(folder) / "run").glob("rayside*")] == []


def processes(folder: str) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get("RAY_TMPDIR") == folder:
                yield process


def script(environment: dict[str, str]) -> str:
    return f"{environment['PATH'].partition(os.pathsep)[0]}/rayside"


def run(environment: dict[str, str], folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [script(environment), "run", *words]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE
    )


def document(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.stdout.startswith("{"), done.stderr
    return dict(json.loads(done.stdout))


@pytest.mark.gate
def test_driver_tasks_and_actors_stop_in_each_ray_of_a_program(
    environment: dict[str, str], program: Path
) -> None:
    breaks = [f"--break=halves.py:{line}" for line in (BEFORE, HALF, ADD, HALVES)]
    breaks[1] += ":n == 6"
    done = run(environment, program.parent, "--json", *breaks, "--evaluate=n", "halves.py", "4", "6")
    told = document(done)
    assert done.returncode == 0, done.stderr
    assert "halves [2.0, 3.0]" in done.stderr
    assert told["job"] == {"submission_id": None, "status": "SUCCEEDED"}
    stops = [(stop["task"], stop["line"], stop["evaluated"]["n"][:4]) for stop in told["stopped"]]
    one_ray = [("half", HALF, "6"), ("driver", HALVES, "<Nam"), ("Counter.add", ADD, "5.0")]
    assert stops == [("driver", BEFORE, "<Nam"), *one_ray, *one_ray]
    assert {stop["file"] for stop in told["stopped"]} == {str(program)}


def test_a_failure_stops_in_the_task_and_in_the_driver(environment: dict[str, str], program: Path) -> None:
    done = run(environment, program.parent, "--json", "--post-mortem", "-m", "halves", "0")
    told = document(done)
    assert done.returncode == 1
    assert "ZeroDivisionError" in done.stderr
    assert "runpy" not in done.stderr
    stops = [(stop["task"], stop["reason"], stop["line"]) for stop in told["stopped"]]
    assert stops == [("Counter.add", "exception", ADD), ("driver", "exception", HALVES)]
    assert told["job"]["status"] == "FAILED"


@pytest.fixture
def stopped(environment: dict[str, str], program: Path) -> Iterator[Screen]:
    """Yields the terminal in which a task of the program has stopped."""
    words = ("run", f"--break={program}:{HALF}:n == 6", str(program), "4", "6")
    screen = Screen(script(environment), *words, env=environment)
    try:
        screen.until("(rayside) ")
        yield screen
    finally:
        screen.close()


def test_ctrl_c_at_the_prompt_ends_the_program_and_its_ray(stopped: Screen) -> None:
    stopped.type("p result\n")
    stopped.until("3.0")
    stopped.until("(rayside) ")
    stopped.type("\x03")
    stopped.until("the program is ended")
    assert not stopped.shows("Traceback", seconds=PATIENCE)
    assert stopped.process.wait(PATIENCE) == 130


def test_a_failed_task_runs_again_in_the_terminal_which_names_at_the_end_what_was_edited(
    environment: dict[str, str], program: Path
) -> None:
    program.write_text(PROGRAM.replace("range(2)", "range(1)"))
    screen = Screen(script(environment), "run", "--post-mortem", str(program), "0", env=environment)
    try:
        screen.until("side effects happen again")
        screen.until("(rayside) ")
        program.write_text(program.read_text().replace("return 10 / n", "return n and 10 / n"))
        screen.type("retry\n")
        screen.until("1 returned")
        screen.until("halves [0.0]")
        screen.until(f"edited while it ran: {program}")
        assert screen.process.wait(PATIENCE) == 0
    finally:
        screen.close()


def test_after_quit_no_worker_waits_for_a_debugger(stopped: Screen) -> None:
    stopped.type("help\n")
    stopped.until("Ctrl-C at an empty prompt ends the program.")
    stopped.until("(rayside) ")
    stopped.type("quit\n")
    stopped.until("goes on")
    # Actors and a second Ray begin after it; each of them waited for a minute.
    assert stopped.shows("halves [2.0, 3.0]", seconds=50)
    assert stopped.process.wait(PATIENCE) == 0


def test_an_editor_attaches_by_the_token_in_the_file_that_is_named(
    environment: dict[str, str], program: Path
) -> None:
    command = [script(environment), "run", "--listen", "0", str(program), "6"]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        port = int(running.stderr.readline().rpartition(":")[2])
        token = Path(running.stderr.readline().partition("cat ")[2].strip())
        assert token.stat().st_mode & 0o777 == 0o600
        options = AttachOptions(
            partial(Client.connect, "127.0.0.1", port),
            token.read_text(),
            breakpoints=[Place(str(program), HALF, None)],
        )
        told: list[str] = []
        with pytest.raises(NotRunning, match="it was ended"):  # with the program
            run_sync(options, NoJob(), timeout=PATIENCE, on_event=told.append)
        assert running.wait(PATIENCE) == 0, running.stderr.read()
    assert told.count(f"half stopped at {program}:{HALF}") == 2


def test_two_programs_in_one_ray_are_debugged_apart(
    environment: dict[str, str], program: Path, up: Rayside
) -> None:
    head = up.target.access.target.head
    program.write_text(PROGRAM.replace("num_cpus=1, include_dashboard=True", ""))
    joined = {**head.environment(), **environment, "RAY_ADDRESS": address(up)}
    command = [script(joined), "run", "--json", f"--break={program}:{HALF}", "--evaluate=n", str(program)]
    running = [
        subprocess.Popen([*command, word], env=joined, stdout=subprocess.PIPE, text=True) for word in "46"
    ]
    for process, word in zip(running, "46", strict=True):
        output, _ = process.communicate(timeout=PATIENCE)
        stops = json.loads(output)["stopped"]
        assert [stop["evaluated"]["n"] for stop in stops] == [word, word]


def test_a_program_that_turns_rays_dashboard_off_is_told_that_no_task_stops(
    environment: dict[str, str], program: Path
) -> None:
    program.write_text("import ray\nray.init(num_cpus=1, include_dashboard=False)\n")
    command = [script(environment), "run", "--json", str(program)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE)
    assert done.stderr.count("leave include_dashboard=False out of ray.init") == 1, done.stderr


NOTEBOOK = [
    "%load_ext rayside",
    "import ray\nray.init(num_cpus=1, include_dashboard=True)\nNone",
    """%%rayside --break 4 --break "9:n == 2" --evaluate "n * 10"
@ray.remote(num_cpus=0.1)
def half(n):
    result = n / 2
    return result

print(f"halves {ray.get([half.remote(n) for n in (4, 6)])}")
def twice(n):
    result = n * 2
    return result
print(twice(1) + twice(2))
""",
    "rayside_stops",
    "%%rayside --break 99\nNone",
]
RUN_NOTEBOOK = """\
import json, sys
import nbformat
from nbclient import NotebookClient
cells = [nbformat.v4.new_code_cell(text) for text in json.load(sys.stdin)]
notebook = nbformat.v4.new_notebook(cells=cells)
NotebookClient(notebook, timeout=120, kernel_name="python3", allow_errors=True).execute()
print(json.dumps([cell.outputs for cell in cells]))
"""


@pytest.fixture
def with_programs(python: Path, environment: dict[str, str]) -> dict[str, str]:
    """Returns the variables of a user who has pytest and notebooks, too."""
    pins = ROOT / "requirements" / "test-programs.txt"
    install: list[str | Path] = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", python]
    subprocess.run([*install, "--require-hashes", "-r", pins], check=True, timeout=PATIENCE)
    return environment


def test_a_cell_of_a_notebook_records_where_its_tasks_and_its_driver_stop(
    with_programs: dict[str, str], python: Path, tmp_path: Path
) -> None:
    done = subprocess.run(
        [python, "-c", RUN_NOTEBOOK],
        cwd=tmp_path,
        env=with_programs,
        input=json.dumps(NOTEBOOK),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    outputs = json.loads(done.stdout.splitlines()[-1])
    shown = "".join(output["text"] for output in outputs[2] if output["output_type"] == "stream")
    assert "halves [2.0, 3.0]" in shown and "6\n" in shown
    (result,) = (output["data"]["text/plain"] for output in outputs[3] if "data" in output)
    stops = [
        (each["task"], each["function"], each["line"], each["evaluated"]["n * 10"])
        for each in ast.literal_eval(result)
    ]
    assert sorted(stops) == [
        ("driver", "twice", 9, "20"),
        ("half", "half", 4, "40"),
        ("half", "half", 4, "60"),
    ]
    assert "half stopped in half, line 4 (breakpoint)\n    n = 4\n    result = 2.0\n" in shown
    assert "this cell has no line 99" in json.dumps(outputs[4])


def test_pytest_stops_in_the_remote_task_that_made_a_test_fail(
    with_programs: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "test_share.py"
    file.write_text(
        "import ray\n@ray.remote\ndef share(total, people):\n    return total / people\n"
        "def test_good():\n    ray.init(num_cpus=1, include_dashboard=True)\n"
        "    assert ray.get(share.remote(4, 2)) == 2\n    ray.shutdown()\n"
        "def test_bad():\n    ray.init(num_cpus=1, include_dashboard=True)\n"
        "    assert ray.get(share.remote(4, 0)) == 2\n"
    )
    pytest_ = script(with_programs).replace("rayside", "pytest")
    screen = Screen(pytest_, "--rayside", "-q", f"--rootdir={tmp_path}", str(file), env=with_programs)
    try:
        assert "ZeroDivisionError" in screen.until("(rayside) ")
        screen.type("p total, people\n")
        screen.until("(4, 0)")
        screen.until("(rayside) ")
        screen.type("continue\n")
        assert "Module already imported" not in screen.until("1 failed, 1 passed")
        assert screen.process.wait(PATIENCE) == 1
    finally:
        screen.close()


@pytest.fixture
def up(rayside: Rayside) -> Rayside:
    done = rayside.run("up", "--no-example")
    assert done.returncode == 0, done.stdout + done.stderr
    return rayside


def address(up: Rayside) -> str:
    return (up.folder / "ray" / "ray_current_cluster").read_text()
