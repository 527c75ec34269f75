"""Tests the way from a worker's file to the local file that it was sent from."""

import json
import re
from pathlib import Path

import pytest

from bootstrap.settings import ROOT
from rayside.ray import jobs
from rayside.ray.job_folders import RESOURCES, PathMap, unpacked
from rayside.ray.metadata import LOCAL_ROOTS, PY_MODULES, WORKING_DIR
from rayside.ray.records import Job


def sent(metadata: dict[str, str], working_dir: str = "gcs://_ray_pkg_aa.zip", *modules: str) -> Job:
    """Returns a job with this metadata, of these packages."""
    environment = {"working_dir": working_dir, "py_modules": list(modules)}
    return Job("j", None, "RUNNING", "python x.py", "", None, 0.0, metadata, environment)


def test_every_package_has_its_folders(tmp_path: Path) -> None:
    for file in ("code/app/main.py", "lib/one/__init__.py", "lib/two/deep/x.py"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("")
    metadata = {
        WORKING_DIR: str(tmp_path / "code"),
        PY_MODULES: json.dumps([str(tmp_path / "lib/one"), str(tmp_path / "lib/two")]),
    }
    modules = ("gcs://_ray_pkg_bb.zip", "gcs://_ray_pkg_cc.zip")
    foreign = Job("k", None, "RUNNING", "python x.py", "", None, 0.0, {}, {})
    paths = PathMap.of([sent(metadata, "gcs://_ray_pkg_aa.zip", *modules), foreign])
    lib, code = str(tmp_path / "lib"), str(tmp_path / "code")
    assert paths.local_roots() == {"_ray_pkg_aa": [code], "_ray_pkg_bb": [lib], "_ray_pkg_cc": [lib]}


def test_a_package_that_was_sent_from_no_folder_has_none() -> None:
    package = "gcs://_ray_pkg_bb.zip"
    job = sent({PY_MODULES: json.dumps([package])}, "gcs://_ray_pkg_aa.tar.gz", package)
    assert PathMap.of([job]).local_roots() == {}
    assert unpacked(job) == f"{RESOURCES}/working_dir_files/_ray_pkg_aa"


def test_the_same_package_from_two_folders_is_shown_where_it_was_sent_from_last(tmp_path: Path) -> None:
    first, second = tmp_path / "one", tmp_path / "other"
    jobs = [sent({WORKING_DIR: str(folder)}) for folder in (first, second, first)]
    assert PathMap.of(jobs[:2]).local_roots() == {"_ray_pkg_aa": [str(second), str(first)]}
    assert PathMap.of(jobs).local_roots() == {"_ray_pkg_aa": [str(first), str(second)]}


def test_what_was_sent_through_a_symlink_is_shown_as_it_was_written() -> None:
    metadata = {
        WORKING_DIR: "/disk/code",
        PY_MODULES: json.dumps(["/disk/lib/one", "/disk/lib/two", "/disk/lib/three"]),
        # The name of a module is that of its real folder: nothing lies at /home/x/other/two/...
        LOCAL_ROOTS: json.dumps(
            {"/disk/code": "/home/x/code", "/disk/lib/one": "/home/x/one", "/disk/lib/two": "/home/x/other"}
        ),
    }
    modules = [f"gcs://_ray_pkg_{name}.zip" for name in ("bb", "cc", "dd", "ee")]
    job = sent(metadata, "gcs://_ray_pkg_aa.zip", *modules)
    assert PathMap.of([job]).local_roots() == {
        "_ray_pkg_aa": ["/home/x/code", "/disk/code"],
        "_ray_pkg_bb": ["/home/x", "/disk/lib"],
        "_ray_pkg_cc": ["/disk/lib"],
        "_ray_pkg_dd": ["/disk/lib"],
    }


def test_what_symlinks_in_a_package_lead_to_is_found_in_the_package(tmp_path: Path) -> None:
    code, outside = tmp_path / "code", tmp_path / "outside"
    for folder in (code / "pkg", outside):
        folder.mkdir(parents=True)
    (outside / "single.py").write_text("")
    (outside / "data.bin").write_text("")
    (code / "shared").symlink_to("../outside")
    (code / "single.py").symlink_to("../outside/single.py")
    (code / "data.bin").symlink_to("../outside/data.bin")
    (code / "pkg" / "shared").symlink_to(outside)
    # Ray packs none of these.
    (code / ".venv").symlink_to(tmp_path)
    (code / "venv").mkdir()
    (code / "venv" / "python").symlink_to(tmp_path)
    job = jobs.prepare(working_dir=str(code), py_modules=[], entrypoint="python -m x")
    linked = {str(outside): str(code / "shared"), str(outside / "single.py"): str(code / "single.py")}
    assert job.local_roots == linked

    def roots(written: dict[str, str]) -> dict[str, list[str]]:
        metadata = {**job.all_metadata(), PY_MODULES: json.dumps([str(code / "pkg")])}
        metadata[LOCAL_ROOTS] = json.dumps(written)
        packages = ("gcs://_ray_pkg_aa.zip", "gcs://_ray_pkg_bb.zip")
        return PathMap.of([sent(metadata, *packages)]).local_roots()

    packages = {"_ray_pkg_aa": [str(code)], "_ray_pkg_bb": [str(code)]}
    inner = {"/x": str(code / "pkg" / "shared")}
    assert roots(inner) == {**packages, "_ray_pkg_aa/pkg/shared": ["/x"], "_ray_pkg_bb/pkg/shared": ["/x"]}
    assert roots({"/x": f"{code}/../../etc", "/y": "/elsewhere/link"}) == packages


@pytest.mark.parametrize("written", ["x", "[]", '{"/x": 1}', '{"/x": null}', '{"/": "/code/all"}'])
def test_a_job_whose_metadata_is_none_of_ours_takes_nothing_from_others(written: str) -> None:
    environment = {"working_dir": "gcs://_ray_pkg_aa.zip"}
    jobs = [
        Job("j", None, "RUNNING", "python x.py", "", None, 0.0, {WORKING_DIR: folder, **more}, environment)
        for folder, more in (("/mine", {}), ("/code", {LOCAL_ROOTS: written}))
    ]
    roots = PathMap.of(jobs).local_roots()
    assert set(roots) == {"_ray_pkg_aa"}
    assert "/mine" in roots["_ray_pkg_aa"]


def test_the_names_of_what_is_kept_with_a_job_are_those_that_submit_writes_and_the_extension_reads() -> None:
    job = jobs.Submission("python x.py", "/code", ("/lib",), local_roots={"/code": "/link"})
    assert list(job.all_metadata()) == [WORKING_DIR, PY_MODULES, LOCAL_ROOTS]
    extension = (ROOT / "vscode/src/submission.js").read_text()
    assert {WORKING_DIR, PY_MODULES} == set(re.findall(r'metadata\["([^"]+)"\]', extension))
