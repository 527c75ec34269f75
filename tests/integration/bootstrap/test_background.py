"""Tests that a program of ours which runs in the background is found again, and ended."""

from __future__ import annotations

import sys
from pathlib import Path

import psutil
import pytest

from bootstrap.shell import Shell
from bootstrap.step import until
from bootstrap.steps.background import Background
from tests.patience import PATIENCE

pytestmark = [
    pytest.mark.gate,
    pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning"),
]


def test_what_was_started_is_found_at_once_and_ended(tmp_path: Path) -> None:
    program = Background(Shell(), tmp_path, "sleeps", "RAYSIDE_TEST_MARK", patience=5)
    try:
        for _ in range(100):
            program.start(["/bin/sleep", "60"])
            assert program.pid is not None
            assert psutil.Process(program.pid).environ()[program.mark] == str(tmp_path)
        assert len(program.leftovers()) == 100
    finally:
        program.end(lambda _: None)
    assert program.leftovers() == []


ENDS_IN_ORDER = """
import pathlib, signal, subprocess, sys, time
child = subprocess.Popen(["/bin/sleep", "60"])
def end(*_):
    time.sleep(0.2)
    pathlib.Path(sys.argv[1]).write_text(str(child.poll()))
    child.terminate()
    sys.exit()
signal.signal(signal.SIGTERM, end)
pathlib.Path(sys.argv[1]).write_text("ready")
signal.pause()
"""


def test_one_that_ends_what_it_started_is_given_the_time_for_that(tmp_path: Path) -> None:
    told = tmp_path / "told"
    program = Background(Shell(), tmp_path, "starts", "RAYSIDE_TEST_MARK", patience=60)
    program.start([sys.executable, "-c", ENDS_IN_ORDER, str(told)])
    assert until(told.exists, bool, PATIENCE)
    assert len(program.leftovers()) == 2
    program.end(lambda _: None)
    assert told.read_text() == "None"
    assert program.leftovers() == []
