"""Tests Python's own way into a process, from 3.14 on, with a real one."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from bootstrap.settings import ROOT

RUNS = """\
import threading, time
print("runs", flush=True)
while True:
    {}
"""
# The hook's own needs Ray.
ATTACH = "import pathlib\ndef open_port(user):\n    {}\n"
OPENS = """\
import json, pathlib, sys
from bootstrap.in_ray import remote_exec
assert remote_exec.is_possible()
try:
    print(json.dumps(remote_exec.open_port(int(sys.argv[1]), pathlib.Path(sys.argv[2]), float(sys.argv[3]))))
except TimeoutError:
    print(json.dumps("nothing came"))
"""


@pytest.fixture
def python() -> str:
    """Returns the first Python that has it."""
    program = shutil.which("python3.14")
    if program is None:
        pytest.skip("this machine has no such Python")
    return program


def answer(python: str, folder: Path, loop: str, attach: str, patience: float = 60) -> str:
    """Returns what `open_port` said of a process that runs the line `loop` for ever."""
    (folder / "rayside_hook").mkdir()
    (folder / "rayside_hook" / "attach.py").write_text(ATTACH.format(attach))
    with subprocess.Popen([python, "-c", RUNS.format(loop)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "runs\n"
        try:
            command = [python, "-c", OPENS, str(process.pid), str(folder), str(patience)]
            return str(json.loads(subprocess.check_output(command, cwd=ROOT, text=True)))
        finally:
            process.kill()


def test_a_process_that_runs_python_code_is_opened(python: str, tmp_path: Path) -> None:
    mark = tmp_path / "opened"
    assert answer(python, tmp_path, "pass", f"pathlib.Path({str(mark)!r}).touch(); return True") == ""
    assert mark.exists()


def test_what_fails_there_is_said(python: str, tmp_path: Path) -> None:
    assert answer(python, tmp_path, "time.sleep(0.1)", "raise OSError('no port')") == "OSError: no port"


def test_a_process_outside_python_is_busy(python: str, tmp_path: Path) -> None:
    assert answer(python, tmp_path, "time.sleep(600)", "return True", patience=2) == "nothing came"
