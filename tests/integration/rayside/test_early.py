"""Tests the driver's port before its program when Ray fails: the job goes on, with one line at most."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bootstrap.settings import ROOT
from rayside.relay.connection import Connection
from rayside.relay.debuggee import Debuggee
from rayside.worker.evaluated import PROTOCOL

pytestmark = pytest.mark.gate

# As rayside.pth does, before the program.
PROGRAM = f"""\
import subprocess, sys
file = {str(ROOT / "rayside/worker/start.py")!r}
exec(compile(open(file).read(), file, "exec"), {{"__name__": "rayside_start", "__file__": file}})
print("first line", "debugpy" in sys.modules, flush=True)
if len(sys.argv) < 2:
    subprocess.run([sys.executable, __file__, "child"], check=True)
"""
JOB = json.dumps({"runtime_env": {}, "metadata": {"job_submission_id": "j1"}})


def run(
    tmp_path: Path,
    ray: str = "",
    path: Path = ROOT,
    env: dict[str, str] | None = None,
    cwd: Path | None = None,
) -> tuple[str, str]:
    """Returns what a driver prints whose Ray is that text."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    (tmp_path / "ray.py").write_text(ray)
    driver = {
        "RAY_RUNTIME_ENV_HOOK": "rayside.worker.driver.on_init",
        "RAY_JOB_CONFIG_JSON_ENV_VAR": JOB,
        "RAY_ADDRESS": "127.0.0.1:1",
        "RAYSIDE_DEBUG": '{"attach_timeout": 60.0}',
        "PYTHONPATH": f"{path}:{tmp_path}",
    }
    done = subprocess.run(
        [sys.executable, str(program)],
        env={**os.environ, **driver, **(env or {})},
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


@pytest.mark.parametrize(
    ("ray", "why"),
    [
        ("", "ModuleNotFoundError: No module named 'ray._private'; 'ray' is not a package"),
        ("raise ValueError('spoiled')", "ValueError: spoiled"),
        ("import os; os._exit(3)", "Ray gave no answer"),
        ("print('a banner', flush=True)", "No module named 'ray._private'"),
        ("print('rayside: [1]', flush=True)", "TypeError"),
        ("print('rayside: {', flush=True)", "JSONDecodeError"),
    ],
)
def test_a_scout_that_fails_is_one_line_and_no_wait(tmp_path: Path, ray: str, why: str) -> None:
    output, errors = run(tmp_path, ray)
    (line,) = errors.splitlines()
    assert line.startswith("rayside: the driver is debugged from ray.init on: ") and why in line
    # Its child, which has the same environment, is left alone.
    assert output.splitlines() == ["first line True", "first line False"]


@pytest.mark.parametrize(
    "env",
    [
        {"RAYSIDE_DEBUG": "{}"},
        {"RAY_RUNTIME_ENV_HOOK": "another"},
        {"RAY_RUNTIME_ENV_HOOK": ""},
        {"RAYSIDE_DEBUG": '{"attach_timeout": 60.0, "started": true}'},
        # `ray.init` says that these are malformed.
        {"RAYSIDE_DEBUG": ""},
        {"RAYSIDE_DEBUG": "[" * 100_000},
        {"RAYSIDE_DEBUG": "[60]"},
        {"RAYSIDE_DEBUG": '{"attach_timeout": "60"}'},
        {"RAYSIDE_DEBUG": '{"attach_timeout": 1e9}'},
    ],
)
def test_nothing_happens_where_nothing_may_wait_and_in_other_processes(
    tmp_path: Path, env: dict[str, str]
) -> None:
    output, errors = run(tmp_path, "raise SystemExit('never')", env=env)
    assert (output.splitlines(), errors) == (["first line False", "first line False"], "")


def test_the_package_of_the_job_comes_before_the_one_beside_the_start_file(tmp_path: Path) -> None:
    """An older one may lack what the start file calls."""
    (tmp_path / "older" / "rayside" / "worker").mkdir(parents=True)
    for package in ("rayside", "rayside/worker"):
        (tmp_path / "older" / package / "__init__.py").touch()
    output, errors = run(tmp_path, path=tmp_path / "older", env={"RAYSIDE_DEBUG": '{"attach_timeout": 1.0}'})
    assert "first line False" in output
    why = "No module named 'rayside.worker.driver'"
    assert errors == f"rayside: the driver is debugged from ray.init on: {why}\n"


@pytest.mark.parametrize("text", ["", "open('ran', 'a').write('!'); raise SystemExit"])
def test_a_module_of_that_name_is_not_run(tmp_path: Path, text: str) -> None:
    """In the current folder it may be anybody's; on the path it may be the program, and runs but once."""
    current = tmp_path / "current"
    (current / "rayside").mkdir(parents=True)
    (current / "rayside" / "__init__.py").write_text("open('ran', 'a').write('!')")
    run(tmp_path, cwd=current)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "rayside.py").write_text(text)
    _, errors = run(tmp_path, path=tmp_path / "other", cwd=current)
    assert "rayside.py is another module of that name" in errors
    assert not (current / "ran").exists()


@pytest.mark.parametrize(("path", "answer"), [(ROOT, [PROTOCOL]), (None, [None])])
def test_the_relay_runs_no_module_of_that_name(tmp_path: Path, path: Path | None, answer: list[int]) -> None:
    (tmp_path / "rayside.py").write_text("raise SystemExit")
    connection = Connection(Debuggee("w1", "127.0.0.1", 1, 1, "127.0.0.1", "01000000"), lambda event: None)
    done = subprocess.run(
        [sys.executable, "-c", "import sys; print([eval(sys.argv[1])])", connection.begins],
        cwd=ROOT.parent,
        env={**os.environ, "PYTHONPATH": str(path or tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.stdout == f"{answer}\n", done.stderr


def test_a_folder_of_that_name_does_not_hide_the_package(tmp_path: Path) -> None:
    (tmp_path / "rayside").mkdir()
    (tmp_path / "rayside" / "mine.py").touch()
    program = (
        f"import runpy, sys; runpy.run_path({str(ROOT / 'rayside/worker/start.py')!r})\n"
        "import rayside.worker.evaluated, rayside.mine\n"
        "print(rayside.worker.evaluated.__file__)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.strip() == str(ROOT / "rayside/worker/evaluated/__init__.py"), done.stderr


def test_without_the_jobs_package_the_one_beside_the_start_file_is_there_and_nothing_else(
    tmp_path: Path,
) -> None:
    program = (
        f"import importlib.util, runpy; runpy.run_path({str(ROOT / 'rayside/worker/start.py')!r})\n"
        "import rayside.worker.evaluated\n"
        "names = 'start', 'bootstrap', 'tests', 'tracing'\n"
        "print(rayside.worker.evaluated.__file__, *map(importlib.util.find_spec, names))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    package = ROOT / "rayside" / "worker" / "evaluated" / "__init__.py"
    assert done.stdout.split() == [str(package), *["None"] * 4]
