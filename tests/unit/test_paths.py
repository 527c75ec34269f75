"""From a worker's file to the local one it was sent from."""

import json
from pathlib import Path

import pytest

from bootstrap.ray.jobs import PY_MODULES, WORKING_DIR
from bootstrap.ray.paths import PathMap
from bootstrap.ray.state import Job

SESSION = "/tmp/ray/session_2026-11-21_11-12-05_658463_2912/runtime_resources"


@pytest.fixture
def paths(tmp_path: Path) -> PathMap:
    for file in ("code/app/main.py", "lib/one/__init__.py", "lib/two/deep/x.py"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("")
    metadata = {
        WORKING_DIR: str(tmp_path / "code"),
        PY_MODULES: json.dumps([str(tmp_path / "lib/one"), str(tmp_path / "lib/two")]),
    }
    runtime_env = {
        "working_dir": "gcs://_ray_pkg_aa.zip",
        "py_modules": ["gcs://_ray_pkg_bb.zip", "gcs://_ray_pkg_cc.zip"],
    }
    job = Job("j", None, "RUNNING", "python x.py", "", None, 0.0, None, metadata, runtime_env)
    foreign = Job("k", None, "RUNNING", "python x.py", "", None, 0.0, None, {}, {})
    return PathMap.of([job, foreign])


@pytest.mark.parametrize(
    ("remote", "local"),
    [
        ("working_dir_files/_ray_pkg_aa/app/main.py", "code/app/main.py"),
        ("py_modules_files/_ray_pkg_bb/one/__init__.py", "lib/one/__init__.py"),
        ("py_modules_files/_ray_pkg_cc/two/deep/x.py", "lib/two/deep/x.py"),
    ],
)
def test_each_package_leads_back_to_its_folder(
    paths: PathMap, tmp_path: Path, remote: str, local: str
) -> None:
    assert paths.local(f"{SESSION}/{remote}") == str(tmp_path / local)


@pytest.mark.parametrize(
    "remote",
    [
        f"{SESSION}/working_dir_files/_ray_pkg_aa/gone.py",
        f"{SESSION}/working_dir_files/_ray_pkg_dd/app/main.py",
        "/usr/lib/python3/json/__init__.py",
        "<string>",
    ],
)
def test_what_was_not_sent_from_here_maps_nowhere(paths: PathMap, remote: str) -> None:
    assert paths.local(remote) is None
