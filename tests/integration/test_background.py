"""Tests that a program of ours which runs in the background is found again, and ended."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from bootstrap.shell import Shell
from bootstrap.steps.background import Background

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
