"""Tests lanes with suites of one small test each: they run side by side, are counted and end as one."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bootstrap.settings import ROOT
from bootstrap.step import until
from tests.integration.conftest import free_ports

PYTEST = [sys.executable, "-m", "pytest", "--numprocesses", "3", "--dist", "loadgroup", "--durations=3"]
# A file of each lane, and the lane.
FILES = {"e2e/test_kind.py": "kind", "browser/test_debugging.py": "ray", "unit/test_dap.py": "rest"}
# It ends well only where those of the other lanes run at the same time.
MEETS = """
def test_it_meets_the_others(record_property):
    HERE.joinpath(LANE).touch()
    until(lambda: len(list(HERE.iterdir())), lambda count: count == 3, 60)
    assert {file.name for file in HERE.iterdir()} == {"kind", "ray", "rest"}
    record_property("figure", f"{LANE} was measured")
"""
# Each of them says in which process it runs.
NOTES = """
@pytest.mark.parametrize("number", range(6))
def test_it_notes_its_process(number):
    HERE.joinpath(LANE + os.environ["PYTEST_XDIST_WORKER"]).touch()
"""
# What it has brought up is gone when its file is; that of one lane takes longer than pytest-xdist would wait.
WAITS = """
@pytest.fixture(scope="session", autouse=True)
def brought_up():
    HERE.joinpath(LANE).touch()
    yield
    time.sleep(0.2 if LANE != "kind" else 17)
    HERE.joinpath(LANE).unlink()

def test_it_waits():
    time.sleep(600)
"""

Project = Callable[[str], Path]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Makes the suites, with the same code in each file, and returns their folder."""

    def make(code: str) -> Path:
        marks = tmp_path / "there"
        marks.mkdir()
        for name in ("pyproject.toml", "tests/__init__.py", "tests/conftest.py", "tests/lanes.py"):
            (tmp_path / name).parent.mkdir(exist_ok=True)
            shutil.copy(ROOT / name, tmp_path / name)
        (tmp_path / "bootstrap").symlink_to(ROOT / "bootstrap")
        for name, lane in FILES.items():
            file = tmp_path / "tests" / name
            file.parent.mkdir()
            (file.parent / "__init__.py").touch()
            head = "import os, pathlib, pytest, time\nfrom bootstrap.step import until\n"
            file.write_text(f"{head}HERE, LANE = pathlib.Path({str(marks)!r}), {lane!r}\n{code}")
        return tmp_path

    return make


def run(folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PYTEST, "tests"],
        cwd=folder,
        env={**os.environ, **more},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_no_port_is_given_twice_nor_by_two_lanes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_XDIST_WORKER_COUNT", "3")
    ports = []
    for lane in ("gw0", "gw1", "gw2"):
        monkeypatch.setenv("PYTEST_XDIST_WORKER", lane)
        ports.append([port for _ in range(100) for port in free_ports(4)])
    assert len(set().union(*ports)) == 1200
    assert [len({port % 3 for port in of_lane}) for of_lane in ports] == [1, 1, 1]


def test_a_lane_has_one_process(project: Project) -> None:
    folder = project(NOTES)
    done = run(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    notes = sorted(file.name for file in (folder / "there").iterdir())
    assert [note.partition("gw")[0] for note in notes] == ["kind", "ray", "rest"], notes


def test_the_lanes_run_side_by_side_and_one_line_counts_all(project: Project) -> None:
    done = run(project(MEETS))
    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.fullmatch(r"=+ 3 passed in [\d.]+s =+", lines[-1])
    for lane in FILES.values():
        assert f"{lane} was measured" in lines
        assert any(re.match(rf"{lane}: \d+ s; \w+/test_\w+\.py \d+$", line) for line in lines), done.stdout


def test_what_fails_in_a_lane_is_shown_whole_and_fails_the_run(project: Project) -> None:
    done = run(project("def test_it():\n    assert LANE != 'ray', 'for a reason'\n"))
    assert done.returncode == 1
    assert re.search(r"^E +AssertionError: for a reason$", done.stdout, re.MULTILINE)
    assert re.search(r"^FAILED tests/browser/test_debugging.py::test_it", done.stdout, re.MULTILINE)
    assert re.fullmatch(r"=+ 1 failed, 2 passed in [\d.]+s =+", done.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    ("ci", "counted"), [("", "4 passed, 2 skipped"), ("true", "4 passed, 1 skipped, 1 error")]
)
def test_a_skip_for_want_of_something_is_a_failure_with_ci_set(
    project: Project, ci: str, counted: str
) -> None:
    code = """
@pytest.mark.skipif(LANE == 'ray', reason="it lacks something")
def test_it(): pass
@pytest.mark.skipif(LANE == 'rest', reason="systemd's engine is not ours to kill")
def test_other(): pass
"""
    done = run(project(code), CI=ci)
    assert done.returncode == (1 if ci else 0), done.stdout
    assert re.fullmatch(rf"=+ {counted} in .*", done.stdout.splitlines()[-1])
    assert ("with CI set nothing may be skipped: Skipped: it lacks something" in done.stdout) == bool(ci)


def test_with_ci_set_a_failure_is_shown_at_once_and_a_test_that_hangs_is_one(project: Project) -> None:
    code = "def test_it_hangs():\n    time.sleep(60 if LANE == 'ray' else 0)\n"
    folder = project(code)
    configuration = folder / "pyproject.toml"
    configuration.write_text(configuration.read_text().replace("timeout = 600", "timeout = 1"))
    done = run(folder, CI="true")
    at_once, _, summary = done.stdout.partition("= FAILURES =")
    assert re.search(
        r"^FAILED in call after \d+ s: tests/browser/test_debugging.py::test_it", at_once, re.MULTILINE
    )
    assert "Timeout (>1.0s)" in at_once
    assert re.fullmatch(r"=+ 1 failed, 2 passed in [\d.]+s =+", summary.splitlines()[-1])


def test_ctrl_c_ends_every_lane_and_each_removes_what_it_brought_up(project: Project) -> None:
    folder = project(WAITS)
    command = "import pathlib, sys; from bootstrap.verbs.development import foreground; "
    command += "sys.exit(foreground(sys.argv[2:], pathlib.Path(sys.argv[1])))"
    arguments = [str(folder), *PYTEST, str(folder / "tests")]
    with subprocess.Popen([sys.executable, "-c", command, *arguments], cwd=ROOT) as running:
        try:
            assert until(lambda: len(list((folder / "there").iterdir())), lambda count: count == 3, 120) == 3
            running.send_signal(signal.SIGTERM)
            assert running.wait(120) == 130
        finally:
            running.kill()
    assert list((folder / "there").iterdir()) == []
