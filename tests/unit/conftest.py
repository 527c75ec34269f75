"""Provides what several of the unit tests need."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _no_cluster_of_the_users(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keeps a cluster out of the tests that is up on this machine meanwhile."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.getbasetemp() / "state-home"))


@pytest.fixture
def python_signals() -> Iterator[None]:
    """Sets Python's own handlers; a lane's handler of Ctrl-C serves one Ctrl-C, which is the user's."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    handlers = {number: signal.getsignal(number) for number in numbers}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """Provides a folder, with a space in its path, that holds train.py and the package `model`."""
    folder = tmp_path / "my code"
    (folder / "model").mkdir(parents=True)
    (folder / "train.py").write_text("")
    (folder / "model" / "__init__.py").write_text("")
    return folder
