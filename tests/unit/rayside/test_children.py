"""Tests which Pythons count as somebody's program, and ask the process that started them for its debugger."""

from __future__ import annotations

import pytest

from rayside.worker.child import is_program

SPAWN = "from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=5, pipe_handle=7)"


@pytest.mark.parametrize(
    ("words", "is_somebodys"),
    [
        (["python", "a folder/train.py", "--rank", "0"], True),
        (["python", "-X", "dev", "-m", "package.tool"], True),
        (["python", "-c", SPAWN, "--multiprocessing-fork"], True),
        (["python", "-c", "from multiprocessing.resource_tracker import main;main(4)"], False),
        (["python", "-c", "from multiprocessing.forkserver import main; main(3, 4)"], False),
        (["python", "-u", "/env/lib/python3.11/site-packages/ray/dashboard/agent.py", "--port", "1"], False),
        (["python", "-m", "ray.util.client.server"], False),
        (["python", "-m", "raytools"], True),
        (["python"], True),
    ],
)
def test_servers_of_pythons_and_rays_are_nobodys_program(words: list[str], is_somebodys: bool) -> None:
    assert is_program(words) is is_somebodys
