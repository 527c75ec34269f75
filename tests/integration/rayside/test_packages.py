"""Tests that Ray is sent what its own client sends: the files of its packages, and the job."""

from __future__ import annotations

import json
import os
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest

from rayside.ray import jobs
from tests.patience import PATIENCE
from tests.targets import local_target
from tests.unit.scripted_jobs_api import JobsApi, jobs_api

# What `ray job submit` does.
SUBMITS = """\
import json, sys
from ray.job_submission import JobSubmissionClient
url, given = json.load(sys.stdin)
JobSubmissionClient._check_connection_and_version = lambda *_, **__: None
JobSubmissionClient(url).submit_job(**given)
"""
# What the head makes of a runtime_env that it is sent.
COMPLETES = """\
import json, sys
from ray.runtime_env import RuntimeEnv
print(json.dumps(RuntimeEnv(**json.load(sys.stdin)).to_dict()))
"""
# Patterns in which an implementation of Git's rules may err.
IGNORED = [
    "*.log",
    "!kept.log",
    "/anchored",
    "folder/",
    "a/**/z",
    "*.py[co]",
    "# no",
    "\\#yes",
    "sp ace ",
    "**/deep",
]


@pytest.fixture
def nasty(tmp_path: Path) -> Path:
    """Provides a folder with all that a package may have, or must not have."""
    folder, shared = tmp_path / "my code", tmp_path / "shared"
    names = [
        *(
            "a.log",
            "kept.log",
            "anchored",
            "sub/anchored",
            "folder/x",
            "sub/folder/y",
            "a/b/c/z",
            "a/z",
            "x.pyc",
        ),
        *(
            "#yes",
            "sp ace",
            "sp ace2",
            "x/deep/y",
            "deep",
            ".hidden",
            "ünï.py",
            "train.py",
            ".git/HEAD",
            "venv/a",
        ),
        *(
            "sub/.git/HEAD",
            "sub/__pycache__/a.pyc",
            "own/kept.txt",
            "own/sub/more",
            "all/a",
            "data/1.bin",
            "data/2",
        ),
        *("nested/a.log", "nested/b.log", "excluded/a", "sub/excluded/b", "only/these/c", "back\\slash"),
    ]
    for file in (*(folder / name for name in names), shared / "lib.py", shared / "in" / "er.log"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(file.name)
    for empty in ("empty", "sub/empty/er", "folder2", "data/excluded"):
        (folder / empty).mkdir(parents=True)
    (folder / ".gitignore").write_text("\n".join(IGNORED))
    (folder / ".rayignore").write_text("data/*\n!data/2\n/only/*/c\n")
    (folder / "own" / ".gitignore").write_text("*\n!kept.txt\n")
    (folder / "all" / ".rayignore").write_text("*")
    (folder / "nested" / ".gitignore").write_text("!a.log\nb*\n")
    (folder / "link").symlink_to(shared)
    (folder / "link.py").symlink_to(shared / "lib.py")
    (folder / "broken").symlink_to("nothing")
    (folder / "train.py").chmod(0o755)
    return folder


def by_ray(code: str, given: Any) -> str:
    """Returns what a program for Ray's Python prints."""
    done = subprocess.run(
        [str(local_target().environment.programs / "python"), "-c", code],
        input=json.dumps(given),
        env={**os.environ, "RAY_AUTH_MODE": "disabled"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def contents(ray: JobsApi, address: str) -> list[tuple[str, int]]:
    """Returns the names and the modes of what is in a package."""
    infos = zipfile.ZipFile(ray.file(address)).infolist()
    return sorted((info.filename, info.external_attr >> 16) for info in infos)


@pytest.mark.parametrize(
    "variables", [{}, {"RAY_RUNTIME_ENV_IGNORE_GITIGNORE": "1"}], ids=["", "without Git's"]
)
def test_ray_is_sent_what_its_own_client_sends(
    nasty: Path, variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    (nasty.parent / "requirements.txt").write_text("numpy\nrequests==2\n")
    runtime_env = {
        "excludes": ["excluded", "*.bin"],
        "env_vars": {"A": "b"},
        "pip": str(nasty.parent / "requirements.txt"),
        "config": {"setup_timeout_seconds": 7},
    }
    modules = (str(nasty / "sub"), str(nasty / "link"), "https://host/mine.zip")
    job = jobs.Submission(
        "python train.py > out",
        str(nasty),
        modules,
        runtime_env,
        {"mine": "yes"},
        {"entrypoint_num_cpus": 0.5, "entrypoint_resources": {"TPU": 1.0}},
    )
    given = {
        "submission_id": "a-1",
        "entrypoint": "sh -c 'python train.py > out'",
        "runtime_env": {**job.environment(), "working_dir": str(nasty)},
        "metadata": job.all_metadata(),
        **job.reserved,
    }
    with jobs_api() as ours, jobs_api() as theirs:
        jobs.submit(ours.dashboard(), job, "a-1")
        by_ray(SUBMITS, [theirs.url, given])
    (our_job,), (their_job,) = ours.jobs, theirs.jobs
    our_env, their_env = our_job.pop("runtime_env"), their_job.pop("runtime_env")
    assert our_job == their_job
    for our, their in zip(
        [our_env.pop("working_dir"), *our_env.pop("py_modules")],
        [their_env.pop("working_dir"), *their_env.pop("py_modules")],
        strict=True,
    ):
        if our.startswith("gcs://"):
            assert contents(ours, our) == contents(theirs, their)
        else:
            assert our == their
    # The head's Ray completes what is left out, as the client does.
    assert json.loads(by_ray(COMPLETES, our_env)) == their_env
