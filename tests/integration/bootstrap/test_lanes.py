"""Tests of lanes, tiers, shards and the second look, with suites of one small test each."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from bootstrap.settings import ROOT
from bootstrap.verbs.development import again
from rayside.waiting import until
from tests.integration.conftest import free_ports

pytestmark = pytest.mark.gate

PYTEST = [sys.executable, "-m", "pytest", "--durations=3"]
LANES = ["--numprocesses=2", "--dist=loadgroup", "--no-loadscope-reorder"]
# A file of each suite, and what it is called here.
FILES = {"e2e/test_kind.py": "kind", "browser/test_debugging.py": "ray", "unit/test_dap.py": "unit"}
# It ends well only where the two long lanes run at the same time.
MEETS = """
def test_it_meets_the_others(record_property):
    HERE.joinpath(FILE).touch()
    until(lambda: len(list(HERE.iterdir())), lambda count: count >= 2, 60)
    assert {file.name for file in HERE.iterdir()} >= {"kind", "ray"}
    record_property("figure", f"{FILE} was measured")
"""
# What it has brought up is gone when its file is; that of one lane takes longer than pytest-xdist would wait.
WAITS = """
@pytest.fixture(scope="session", autouse=True)
def brought_up():
    HERE.joinpath(FILE).touch()
    yield
    time.sleep(0.2 if FILE != "kind" else 17)
    HERE.joinpath(FILE).unlink()

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
        for product in ("bootstrap", "rayside"):
            (tmp_path / product).symlink_to(ROOT / product)
        for name, called in FILES.items():
            file = tmp_path / "tests" / name
            file.parent.mkdir()
            (file.parent / "__init__.py").touch()
            head = "import os, pathlib, pytest, time\nfrom rayside.waiting import until\n"
            file.write_text(f"{head}HERE, FILE = pathlib.Path({str(marks)!r}), {called!r}\n{code}")
        return tmp_path

    return make


def run(
    folder: Path, *options: str, tests: Sequence[str] = ("tests",), **more: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PYTEST, *(options or LANES), *tests],
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


def test_the_lanes_run_side_by_side_and_one_line_counts_all(project: Project) -> None:
    done = run(project(MEETS))
    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.fullmatch(r"=+ 3 passed in [\d.]+s =+", lines[-1])
    for file in FILES.values():
        assert f"{file} was measured" in lines
    assert any(re.match(r"\d+ s in all; ", line) for line in lines), done.stdout


@pytest.mark.parametrize(
    ("ci", "counted"), [("", "4 passed, 2 skipped"), ("true", "4 passed, 1 skipped, 1 error")]
)
def test_a_skip_for_want_of_something_is_a_failure_with_ci_set(
    project: Project, ci: str, counted: str
) -> None:
    code = """
@pytest.mark.skipif(FILE == 'ray', reason="it lacks something")
def test_it(): pass
@pytest.mark.skipif(FILE == 'unit', reason="systemd's engine is not ours to kill")
def test_other(): pass
"""
    done = run(project(code), CI=ci)
    assert done.returncode == (1 if ci else 0), done.stdout
    assert re.fullmatch(rf"=+ {counted} in .*", done.stdout.splitlines()[-1])
    assert ("with CI set nothing may be skipped: Skipped: it lacks something" in done.stdout) == bool(ci)


def test_with_ci_set_a_failure_is_shown_at_once_and_a_test_that_hangs_is_one(project: Project) -> None:
    code = "def test_it_hangs():\n    time.sleep(60 if FILE == 'ray' else 0)\n"
    folder = project(code)
    configuration = folder / "pyproject.toml"
    configuration.write_text(configuration.read_text().replace("timeout = 600", "timeout = 1"))
    done = run(folder, CI="true")
    at_once, _, summary = done.stdout.partition("= FAILURES =")
    assert re.search(
        r"^FAILED tests/browser/test_debugging.py::test_it_hangs@ray\n +in call after", at_once, re.MULTILINE
    )
    assert "Timeout (>1.0s)" in at_once
    assert re.fullmatch(r"=+ 1 failed, 2 passed in [\d.]+s =+", summary.splitlines()[-1])


def test_the_gate_has_all_unit_tests_and_the_others_that_are_marked(project: Project) -> None:
    code = "@pytest.mark.skipif(False, reason='')\ndef test_one(): pass\n"
    code += "if FILE != 'ray':\n    test_one = pytest.mark.gate(test_one)\ndef test_two(): pass\n"
    done = run(project(code), *LANES, "-m", "gate")
    assert re.fullmatch(r"=+ 3 passed in [\d.]+s =+", done.stdout.splitlines()[-1]), done.stdout


def test_what_failed_is_kept_in_a_file_and_named_where_it_passes_alone(project: Project) -> None:
    code = """
def test_it_fails_once():
    once = HERE.joinpath("once")
    if FILE == "ray" and not once.exists():
        once.touch()
        raise AssertionError("for a reason")
"""
    folder = project(code)
    failures = str(folder / "failures.txt")
    first = run(folder, *LANES, "--failures", failures)
    assert first.returncode == 1, first.stdout
    tests = again(Path(failures).read_text())
    assert tests == ["tests/browser/test_debugging.py::test_it_fails_once"]
    assert "AssertionError: for a reason" in Path(failures).read_text()
    second = run(folder, "--second-look", "--failures", failures, tests=tests)
    assert second.returncode == 0, second.stdout
    *_, named, where, counted = second.stdout.splitlines()
    assert named == f"passed alone: {tests[0]}"
    assert where.endswith(failures)
    assert re.fullmatch(r"=+ 1 passed in [\d.]+s =+", counted)
    assert "for a reason" in Path(failures).read_text()


def test_ctrl_c_ends_every_lane_and_each_removes_what_it_brought_up(project: Project) -> None:
    folder = project(WAITS)
    command = "import pathlib, sys; from bootstrap.verbs.development import foreground; "
    command += "sys.exit(foreground(sys.argv[2:], pathlib.Path(sys.argv[1])))"
    arguments = [str(folder), *PYTEST, *LANES, str(folder / "tests")]
    with subprocess.Popen([sys.executable, "-c", command, *arguments], cwd=ROOT) as running:
        try:
            assert until(lambda: len(list((folder / "there").iterdir())), lambda count: count == 2, 120) == 2
            running.send_signal(signal.SIGTERM)
            assert running.wait(120) == 130
        finally:
            running.kill()
    assert list((folder / "there").iterdir()) == []
