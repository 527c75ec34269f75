"""Tests that what a killed engine leaves does not keep the next one from starting."""

from pathlib import Path

import psutil

from bootstrap.steps.engine import forget_dead


def test_a_pid_file_stays_only_while_its_process_is_that_program(tmp_path: Path) -> None:
    this_process = psutil.Process()
    file = tmp_path / "docker.pid"
    file.write_text(str(this_process.pid))
    forget_dead(file, this_process.name())
    assert file.exists()
    # The pid was given to somebody else.
    forget_dead(file, "dockerd")
    assert not file.exists()
    for stale in ("4194305", "", "not a number"):
        file.write_text(stale)
        forget_dead(file, "dockerd")
        assert not file.exists()
    forget_dead(file, "dockerd")
