"""What a killed engine leaves does not keep the next one from starting."""

from pathlib import Path

import psutil

from bootstrap.steps.engine import forget_dead


def test_a_pid_file_stays_only_while_its_process_is_that_program(tmp_path: Path) -> None:
    own = psutil.Process()
    file = tmp_path / "docker.pid"
    file.write_text(str(own.pid))
    forget_dead(file, own.name())
    assert file.exists()
    # The pid was given to somebody else.
    forget_dead(file, "dockerd")
    assert not file.exists()
    for stale in ("4194305", "", "not a number"):
        file.write_text(stale)
        forget_dead(file, "dockerd")
        assert not file.exists()
    forget_dead(file, "dockerd")
