"""Tests submission from beside the cluster: with its own files alone, on Ray's Python, to a real Ray."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pathspec
import pytest

from bootstrap.settings import ROOT
from rayside.debugger_files import DEBUGGER
from rayside.ray.records import Job
from rayside.ray.state import Dashboard
from rayside.submission import CLUSTER_FILE
from rayside.waiting import until
from tests.integration.conftest import Rayside, free_ports

PROGRAM = """\
import os, sys, ray, one
@ray.remote
def add(*values):
    return sum(values) + one.VALUE
print(f"sum {ray.get(add.remote(*map(int, sys.argv[1:])))} {os.environ.get('WORD')}")
"""


@dataclass(frozen=True)
class Beside:
    """A folder with those files and a cluster file, as the workspace's container has them."""

    up: Rayside
    folder: Path
    dashboard: Dashboard

    def run(
        self, *arguments: str, cwd: Path, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.folder / "submit"), *arguments],
            cwd=cwd,
            env={
                "PATH": f"{self.up.target.environment.programs}{os.pathsep}{os.defpath}",
                CLUSTER_FILE: str(self.folder / "cluster.json"),
                **(env or {}),
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def json(self, *arguments: str, code: int = 0, **how: Any) -> Any:
        """Returns the document, which must be all that it prints."""
        done = self.run(*arguments, "--json", **how)
        assert done.returncode == code, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return json.loads(done.stdout)

    def job(self, submission_id: str) -> Job:
        return self.dashboard.job(submission_id)

    def printed(self, submission_id: str) -> str:
        """Returns all that the job printed, once it has succeeded."""
        job = until(lambda: self.job(submission_id), lambda job: job.ended, patience=180)
        printed = self.dashboard.output(submission_id)
        assert job.status == "SUCCEEDED", job.message + printed
        return printed


def copied(folder: Path) -> Path:
    for file in DEBUGGER:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / file, folder / file)
    shutil.copy(ROOT / "image" / "workspace" / "submit", folder)
    # Of the verbs' packages it needs what Ray's Python lacks.
    shutil.copytree(Path(pathspec.__file__).parent, folder.parent / "workspace" / "verbs" / "pathspec")
    return folder


@pytest.fixture(scope="module")
def beside(rayside: Rayside, tmp_path_factory: pytest.TempPathFactory) -> Beside:
    done = rayside.run("up", "--no-example")
    assert done.returncode == 0, done.stdout + done.stderr
    folder = copied(tmp_path_factory.mktemp("beside") / "rayside")
    head = rayside.target.head
    cluster = {"dashboard": head.url, "token_file": str(head.token), "target": "local"}
    (folder / "cluster.json").write_text(json.dumps(cluster))
    return Beside(rayside, folder, rayside.target.access.require())


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """Provides a user's folder with a space in its path: a program, and a package beside it."""
    folder = tmp_path / "my code"
    (folder / "one").mkdir(parents=True)
    (folder / "one" / "__init__.py").write_text("VALUE = 1\n")
    (folder / "program").mkdir()
    (folder / "program" / "good.py").write_text(PROGRAM)
    return folder


def test_help_needs_only_its_own_files_and_no_ray(beside: Beside, tmp_path: Path) -> None:
    done = beside.run("--help", cwd=tmp_path, env={CLUSTER_FILE: "/nowhere"})
    assert done.returncode == 0, done.stderr
    assert "--attach-timeout" in done.stdout
    assert done.stderr == ""


def test_what_is_sent_is_what_the_verb_sends(beside: Beside, code: Path) -> None:
    (code / "env.yaml").write_text("env_vars: {WORD: hello there}\n")
    arguments = ["--working-dir", "program", "--py-modules", "one", "--entrypoint", "python good.py 10 20"]
    arguments += ["--runtime-env", "env.yaml", "--debug", "--attach-timeout", "0"]
    # Ray's own client would take them for an address, or for a way there.
    nobody = f"127.0.0.1:{free_ports(1)[0]}"
    astray = {"RAY_ADDRESS": nobody, "http_proxy": f"http://{nobody}", "RAY_CLUSTER_NAME": "mine"}
    document = beside.json(*arguments, cwd=code, env=astray)
    assert set(document) == {"submission_id", "job", "status", "cluster"}
    assert document["submission_id"].startswith("good-")
    assert document["status"] in ("PENDING", "RUNNING", "SUCCEEDED")
    assert document["cluster"] == "mine"
    verb = beside.up.json("submit", *arguments, cwd=code)
    from_beside, from_verb = beside.job(document["submission_id"]), beside.job(verb["submission_id"])
    # The hook's package has another name where Python left its __pycache__ beside it.
    for job in (from_beside, from_verb):
        assert len(job.runtime_env["py_modules"]) == 2
        job.runtime_env["py_modules"].pop()
    assert from_beside.runtime_env == from_verb.runtime_env
    assert from_beside.metadata == from_verb.metadata
    assert from_beside.entrypoint == from_verb.entrypoint
    assert json.loads(from_beside.metadata["rayside.debug"])["driver"] is True
    for submission_id in (document["submission_id"], verb["submission_id"]):
        assert "sum 31 hello there" in beside.printed(submission_id)


def test_a_working_dir_that_ray_itself_unpacked_can_be_submitted_again(beside: Beside, code: Path) -> None:
    options = ["--py-modules", str(code / "one"), "--entrypoint", "python good.py 1 2"]
    first = beside.json("--working-dir", str(code / "program"), *options, cwd=code)["submission_id"]
    assert "sum 4 None" in beside.printed(first)
    uri = beside.job(first).runtime_env["working_dir"]
    package = uri.rpartition("/")[2].removesuffix(".zip")
    session = beside.up.folder / "ray" / "session_latest"
    unpacked = session / "runtime_resources" / "working_dir_files" / package
    (module,) = (session / "runtime_resources" / "py_modules_files").glob("*/one/__init__.py")
    # As running them leaves behind.
    for folder in (unpacked, module.parent):
        (folder / "__pycache__").mkdir(exist_ok=True)
        (folder / "__pycache__" / "good.cpython-311.pyc").write_bytes(b"\0")
    options[1] = str(module.parent)

    debug = ["--debug", "--attach-timeout", "0"]
    second = beside.json("--working-dir", str(unpacked), *options, *debug, cwd=unpacked)["submission_id"]
    assert beside.job(second).runtime_env["working_dir"] == uri
    metadata = beside.job(second).metadata
    assert metadata["rayside.working_dir"] == str(unpacked.resolve())
    assert json.loads(metadata["rayside.local_roots"]) == {
        str(folder.resolve()): str(folder) for folder in (unpacked, module.parent)
    }
    assert "sum 4 None" in beside.printed(second)

    (unpacked / "good.py").write_text(PROGRAM.replace("sum {", "total {"))
    third = beside.json("--working-dir", ".", *options, cwd=unpacked)["submission_id"]
    assert beside.job(third).runtime_env["working_dir"] != uri
    assert "total 4 None" in beside.printed(third)


def test_people_are_told_in_two_lines(beside: Beside, code: Path) -> None:
    arguments = ["--py-modules", "../one", "--entrypoint", "python good.py 1"]
    done = beside.run(*arguments, cwd=code / "program")
    assert done.returncode == 0, done.stderr
    first, following = done.stdout.splitlines()
    assert first.startswith("Job good-")
    assert following == "Next: the Ray view shows its tasks where they pause"
    debug = ["--debug", "--attach-timeout", "0", "--entrypoint", "sh -c 'uv --version'"]
    done = beside.run(*debug, cwd=code / "program")
    assert done.stdout.splitlines()[1].startswith("Its tasks and actors are debugged, its driver is not")
