"""What several of the unit tests stand on."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A folder, with a space in its path, that holds train.py and the package `model`."""
    folder = tmp_path / "my code"
    (folder / "model").mkdir(parents=True)
    (folder / "train.py").write_text("")
    (folder / "model" / "__init__.py").write_text("")
    return folder
