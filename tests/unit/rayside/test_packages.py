"""Tests packages of local folders and files: what is in them, their names, and what is sent of them."""

from __future__ import annotations

import os
import socket
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from rayside.errors import SubmissionFailed
from rayside.ray import packages
from rayside.ray.state import Dashboard
from tests.unit.scripted_jobs_api import JobsApi, jobs_api


@pytest.fixture
def ray() -> Iterator[JobsApi]:
    with jobs_api() as api:
        yield api


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path / "code", "train.py", "data/big.bin", "data/keep.txt", "model/__init__.py")


def write(folder: Path, *names: str, **texts: str) -> Path:
    for name in (*names, *texts):
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(texts.get(name, name))
    return folder


def working_dir(ray: JobsApi, folder: Path, *excludes: str) -> list[str]:
    """Returns the names in the package of a job's working_dir."""
    sent = packages.uploaded(ray.dashboard(), {"working_dir": str(folder), "excludes": list(excludes)})
    return ray.names(sent["working_dir"])


# --- what is in a package ----------------------------------------------------------------


def test_a_working_dir_is_its_content_and_a_py_module_is_its_folder(ray: JobsApi, folder: Path) -> None:
    (folder / "model" / "weights").mkdir()  # An empty folder is kept.
    module = folder / "model"
    sent = packages.uploaded(ray.dashboard(), {"working_dir": str(folder), "py_modules": [str(module)]})
    inside = ["model/__init__.py", "model/weights/"]
    assert ray.names(sent["working_dir"]) == ["data/big.bin", "data/keep.txt", *inside, "train.py"]
    assert ray.names(sent["py_modules"][0]) == inside
    assert zipfile.ZipFile(ray.file(sent["working_dir"])).read("train.py") == b"train.py"
    assert ray.tokens == {"Bearer token"}


@pytest.mark.parametrize("name", [".gitignore", ".rayignore"])
def test_patterns_hold_from_their_folder_on(ray: JobsApi, folder: Path, name: str) -> None:
    (folder / name).write_text("*.bin\n!keep.bin\n/train.py\n# a comment\n\nmodel/\n")
    (folder / "data" / name).write_text("keep.txt\n")
    write(folder, "data/keep.bin", "keep.txt", "lib/train.py")
    expected = [name, f"data/{name}", "data/keep.bin", "keep.txt", "lib/train.py"]
    assert working_dir(ray, folder) == expected


def test_a_folder_whose_own_file_leaves_out_everything_is_left_out(ray: JobsApi, folder: Path) -> None:
    write(folder, "env/lib.py", **{"env/.gitignore": "*\n!lib.py\n"})
    assert not [name for name in working_dir(ray, folder) if name.startswith("env")]


def test_a_line_that_is_no_pattern_leaves_nothing_out(ray: JobsApi, folder: Path) -> None:
    (folder / ".gitignore").write_bytes(b"!\ntrain.py\\\n/\n\xff*\n*.bin\n")  # It need not be UTF-8.
    assert working_dir(ray, folder) == [".gitignore", "data/keep.txt", "model/__init__.py", "train.py"]


def test_patterns_mean_what_git_means(ray: JobsApi, folder: Path) -> None:
    (folder / ".gitignore").write_text("da*\n!data\n\\*\n")
    assert {"data/keep.txt", "train.py"} < set(working_dir(ray, folder))


def test_git_may_ignore_what_ray_is_to_have(
    ray: JobsApi, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder, **{".gitignore": "*.bin", ".rayignore": "keep.txt"})
    monkeypatch.setenv("RAY_RUNTIME_ENV_IGNORE_GITIGNORE", "1")
    assert "data/big.bin" in working_dir(ray, folder)
    assert "data/keep.txt" not in working_dir(ray, folder)
    monkeypatch.setenv("RAY_RUNTIME_ENV_IGNORE_GITIGNORE", "0")
    assert "data/big.bin" not in working_dir(ray, folder)


def test_excludes_hold_in_every_folder_and_the_default_ones_in_working_dir(
    ray: JobsApi, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder, ".git/HEAD", "model/__pycache__/a.pyc", "venv/lib.py")
    assert working_dir(ray, folder, "data", "*.py") == []
    module = str(folder / "model")
    (sent,) = packages.uploaded(ray.dashboard(), {"py_modules": [module], "excludes": ["*.py"]})["py_modules"]
    assert ray.names(sent) == ["model/__pycache__/a.pyc"]
    assert not [name for name in working_dir(ray, folder) if "HEAD" in name or "pyc" in name]
    monkeypatch.setenv("RAY_OVERRIDE_RUNTIME_ENV_DEFAULT_EXCLUDES", " venv, data ,")
    expected = [".git/HEAD", "model/__init__.py", "model/__pycache__/a.pyc", "train.py"]
    assert working_dir(ray, folder) == expected


def test_symlinks_are_followed_but_not_in_a_circle(ray: JobsApi, folder: Path, tmp_path: Path) -> None:
    write(tmp_path / "shared", "lib.py")
    (folder / "shared").symlink_to(tmp_path / "shared")
    (folder / "main.py").symlink_to("train.py")
    (folder / "gone.py").symlink_to("nothing.py")
    (tmp_path / "shared" / "back").symlink_to(folder)
    (folder / "data" / "here").symlink_to(".")
    names = working_dir(ray, folder)
    assert {"shared/lib.py", "main.py"} < set(names)
    assert not [name for name in names if "gone" in name or "back" in name or "here" in name]


def test_symlinks_to_processes_and_devices_of_this_machine_are_left_out(ray: JobsApi, folder: Path) -> None:
    (folder / "environ").symlink_to("/proc/self/environ")
    (folder / "self").symlink_to("/proc/self")
    (folder / "zero").symlink_to("/dev/zero")
    assert working_dir(ray, folder) == ["data/big.bin", "data/keep.txt", "model/__init__.py", "train.py"]


def test_a_socket_is_no_file(ray: JobsApi, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
        os.mkfifo("pipe")
        assert not {"socket", "pipe"} & set(working_dir(ray, folder))


def test_a_program_stays_one_and_a_file_may_be_older_than_zip(ray: JobsApi, folder: Path) -> None:
    (folder / "train.py").chmod(0o755)
    os.utime(folder / "train.py", (0, 0))
    address = packages.working_dir(ray.dashboard(), folder)
    info = zipfile.ZipFile(ray.file(address)).getinfo("train.py")
    assert (info.external_attr >> 16) & 0o777 == 0o755


# --- what it is called, and when it is sent ----------------------------------------------


def test_an_unchanged_folder_is_sent_once(ray: JobsApi, folder: Path) -> None:
    first = packages.working_dir(ray.dashboard(), folder)
    assert first.startswith("gcs://_ray_pkg_")
    assert first.endswith(".zip")
    os.utime(folder / "train.py", (1, 1))
    assert packages.working_dir(ray.dashboard(), folder) == first
    assert len(ray.uploads) == 1
    # As working_dir and as one of py_modules a folder is two packages.
    assert packages.py_module(ray.dashboard(), folder) != first


@pytest.mark.parametrize("change", ["content", "name", "mode", "folder"])
def test_each_change_makes_another_package(ray: JobsApi, folder: Path, change: str) -> None:
    first = packages.working_dir(ray.dashboard(), folder)
    if change == "content":
        (folder / "train.py").write_text("other")
    elif change == "name":
        (folder / "train.py").rename(folder / "main.py")
    elif change == "mode":
        (folder / "train.py").chmod(0o755)
    else:
        (folder / "empty").mkdir()
    assert packages.working_dir(ray.dashboard(), folder) != first


def test_addresses_are_passed_on_and_nothing_is_asked() -> None:
    addresses = ["s3://b/one.zip", "local:///opt/two", "gcs://_ray_pkg_1.zip"]
    nobody = JobsApi("http://127.0.0.1:9").dashboard()
    given = {"working_dir": "https://host/code.zip", "py_modules": addresses, "pip": ["a"]}
    assert packages.uploaded(nobody, given) == given
    assert packages.uploaded(nobody, {}) == {}


def test_archives_wheels_and_single_files(ray: JobsApi, folder: Path) -> None:
    for name in ("code.zip", "one-1.0+cu12-py3-none-any.whl"):
        with zipfile.ZipFile(folder / name, "w") as archive:
            archive.writestr("one.py", "")
    for name in ("code.tar.gz", "code.tgz", "code.tar.xz"):
        with tarfile.open(folder / name, "w:xz" if name.endswith("xz") else "w:gz") as tar:
            tar.add(folder / "train.py", "train.py")
    dashboard = ray.dashboard()
    for name, suffix in (("zip", ".zip"), ("tar.gz", ".tar.gz"), ("tgz", ".tar.gz"), ("tar.xz", ".tar.xz")):
        for upload in (packages.working_dir, packages.py_module):
            address = upload(dashboard, folder / f"code.{name}")
            assert address.startswith("gcs://_ray_pkg_")
            assert address.endswith(suffix)
            assert ray.file(address).read() == (folder / f"code.{name}").read_bytes()
    wheel = packages.py_module(dashboard, folder / "one-1.0+cu12-py3-none-any.whl")
    assert wheel == "gcs://one-1.0+cu12-py3-none-any.whl"
    assert ray.names(wheel) == ["one.py"]
    assert ray.names(packages.py_module(dashboard, folder / "train.py")) == ["train.py"]


def test_a_slow_way_may_take_longer_than_an_answer(ray: JobsApi, folder: Path) -> None:
    with (folder / "train.py").open("wb") as file:
        file.truncate(16 << 20)  # It is more than buffers on the way hold.
    ray.pause = 0.3
    dashboard = Dashboard(ray.url, "token", patience=(0.1, 0.1))
    address = packages.working_dir(dashboard, folder)
    assert zipfile.ZipFile(ray.file(address)).getinfo("train.py").file_size == 16 << 20


# --- what can't be sent ------------------------------------------------------------------


@pytest.mark.parametrize("upload", [packages.working_dir, packages.py_module])
def test_another_file_is_refused(ray: JobsApi, folder: Path, upload: object) -> None:
    assert callable(upload)
    for name in ("data/keep.txt", "nothing.zip"):
        with pytest.raises(
            SubmissionFailed, match=f"job: .*{name} is neither a folder.* nor an archive"
        ) as caught:
            upload(ray.dashboard(), folder / name)
        assert ".tar.xz" in caught.value.hint


def test_a_folder_that_is_too_large_is_refused_by_its_largest_files(
    ray: JobsApi, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_max_grpc_message_size", str(3 << 20))
    for name, size in (("data/big.bin", 2 << 20), ("train.py", 1 << 20), ("data/keep.txt", 5)):
        with (folder / name).open("wb") as file:
            file.truncate(size)
    with pytest.raises(SubmissionFailed) as caught:
        packages.working_dir(ray.dashboard(), folder)
    assert f"{folder} has 3.0 MiB, and Ray takes less than 3.0 MiB in one package" in caught.value.message
    assert "largest files are data/big.bin (2.0 MiB), train.py (1.0 MiB)" in caught.value.message
    assert ".rayignore" in caught.value.hint
    assert packages.working_dir(ray.dashboard(), folder, ["train.py"])
    monkeypatch.delenv("RAY_max_grpc_message_size")
    with (folder / "data" / "big.bin").open("wb") as file:
        file.truncate(100 << 20)  # It has no blocks on the disk.
    with pytest.raises(SubmissionFailed, match=r"takes less than 100\.0 MiB"):
        packages.working_dir(ray.dashboard(), folder)


def test_a_name_that_is_no_text_is_no_traceback(ray: JobsApi, folder: Path) -> None:
    (folder / os.fsdecode(b"\xff.py")).touch()
    with pytest.raises(SubmissionFailed, match="code can't be packed"):
        packages.working_dir(ray.dashboard(), folder)


@pytest.mark.parametrize("method", ["GET", "PUT"])
def test_what_ray_does_not_store_is_told_in_its_words(ray: JobsApi, folder: Path, method: str) -> None:
    ray.refusals[method] = 500, "Traceback\n  more\nRuntimeError: no space\n"
    with pytest.raises(SubmissionFailed, match="did not take the job: RuntimeError: no space"):
        packages.working_dir(ray.dashboard(), folder)
