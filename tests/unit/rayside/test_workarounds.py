"""Tests which files pydevd takes for Rayside's own, which it neither shows nor traces."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from rayside.worker import workarounds


@pytest.fixture
def debugger(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Returns pydevd's `PyDB`, to which each file is the user's."""

    class PyDB:
        PYDEV_FILE = 3

        def _internal_get_file_type(self, path: tuple[str, str, str]) -> int | None:
            return None

        def in_project_roots_filename_uncached(self, path: str) -> bool:
            return True

    pydevd = ModuleType("pydevd")
    vars(pydevd).update(PyDB=PyDB, __file__="/pydevd/pydevd.py", get_global_debugger=lambda: None)
    monkeypatch.setitem(sys.modules, "pydevd", pydevd)
    return PyDB


def is_hidden(debugger: Any, file: Path | str) -> bool:
    kind = debugger()._internal_get_file_type((str(file), str(file), Path(file).name))
    is_users = debugger().in_project_roots_filename_uncached(str(file))
    assert (kind is None) is is_users is not workarounds.is_ours(str(file))
    return not is_users


def copied(folder: Path) -> Any:
    """Returns the module from a copy of the package there, as a driver's that came by value has it."""
    folder.mkdir(parents=True)
    file = shutil.copy(workarounds.__file__, folder)
    spec = importlib.util.spec_from_file_location("copied", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_users_files_in_a_folder_of_that_name_are_the_users(debugger: Any, tmp_path: Path) -> None:
    workarounds.know_files_by_folder(debugger)
    own = Path(workarounds.__file__).parent
    assert is_hidden(debugger, own / "tracing.py") and is_hidden(debugger, own / "evaluated" / "reached.py")
    for file in ("rayside/worker/train.py", "rayside/worker/models/net.py"):
        assert not is_hidden(debugger, tmp_path / file)
    assert not is_hidden(debugger, f"{own}s/train.py")


def test_what_python_runs_at_its_start_is_hidden(
    debugger: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAYSIDE_START", str(tmp_path / "image" / "worker" / "start.py"))
    workarounds.know_files_by_folder(debugger)
    assert is_hidden(debugger, tmp_path / "image" / "worker" / "start.py")
    assert not is_hidden(debugger, tmp_path / "image" / "train.py")


def test_each_copy_of_the_package_in_a_process_is_hidden(debugger: Any, tmp_path: Path) -> None:
    workarounds.know_files_by_folder(debugger)
    by_value = copied(tmp_path / "driver" / "rayside" / "worker")
    by_value.know_files_by_folder(debugger)
    by_value.know_files_by_folder(debugger)
    assert is_hidden(debugger, tmp_path / "driver" / "rayside" / "worker" / "attach.py")
    assert is_hidden(debugger, Path(workarounds.__file__).with_name("attach.py"))
    assert by_value.is_ours(workarounds.__file__) and workarounds.is_ours(by_value.__file__)
