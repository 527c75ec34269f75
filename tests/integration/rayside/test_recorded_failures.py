"""Tests recorded failures on a real Ray: nobody debugs a job, and its failure is looked at and run later."""

from __future__ import annotations

import json
import pickle
import re
import subprocess
import zipfile
from pathlib import Path

import pytest

from tests.integration.conftest import Rayside
from tests.patience import PATIENCE

PROGRAM = """\
import ray

FACTOR = 2


@ray.remote(num_cpus=0.1)
def half(rows, password, by=0):
    rows.append("changed")
    scaled = [FACTOR * row for row in rows[:2]]
    return scaled[0] / by


@ray.remote(num_cpus=0.1)
class Shelf:
    def __init__(self):
        self.books = {"one": 1}

    async def book(self, name):
        return self.books[name]


shelf = Shelf.remote()
failed = [half.remote([1, 2], "correct horse"), shelf.book.remote("two")]
for each in failed:
    try:
        ray.get(each)
    except Exception as error:
        print("seen", type(error).__name__, flush=True)
"""


@pytest.fixture(scope="module")
def up(rayside: Rayside) -> Rayside:
    done = rayside.run("up", "--no-example")
    assert done.returncode == 0, done.stdout + done.stderr
    return rayside


def test_a_failure_that_nobody_debugs_is_recorded_opened_and_run(
    up: Rayside, python: Path, tmp_path: Path
) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "main.py").write_text(PROGRAM)
    options = ["--working-dir", str(code), "--entrypoint", "python main.py", "--wait"]
    done = up.run("submit", "--debug", "--record-failures", "--attach-timeout", "0", *options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "half failed, and nobody debugged it: `rayside failures --get " in done.stdout
    assert (
        "seen RayTaskError(ZeroDivisionError)" in done.stdout and "seen RayTaskError(KeyError)" in done.stdout
    )

    rows = up.json("failures")
    by_task = {row["task"]: row for row in rows}
    assert set(by_task) == {"half", "Shelf.book"}
    row = by_task["half"]
    assert set(row) == {"id", "job", "task", "error", "node", "when", "bytes", "user"}
    assert row["error"] == "ZeroDivisionError: division by zero" and row["job"].startswith("main-")
    assert up.json("failures", "--job", "another") == []

    file = tmp_path / "half.capsule"
    fetched = up.run("failures", "--get", row["id"], "--to", str(file))
    assert fetched.returncode == 0, fetched.stdout + fetched.stderr
    assert "left out: password: its name is a secret's" in fetched.stdout
    assert file.stat().st_size == row["bytes"] and file.stat().st_mode & 0o777 == 0o600
    assert b"correct horse" not in file.read_bytes()
    # It is as it was before the call.
    with zipfile.ZipFile(file) as members:
        assert pickle.loads(members.read("inputs/0.pickle")) == [1, 2]
    again = up.run("failures", "--get", row["id"], "--to", str(file))
    assert again.returncode == 2 and "is not overwritten" in again.stderr

    # It needs no cluster.
    apart = tmp_path / "elsewhere"
    apart.mkdir()
    typed = "where\nlocals\np FACTOR\np rows[0]\nup\nnext\nquit\n"
    opened = up.run("replay", str(file), cwd=apart, typed=typed)
    assert opened.returncode == 0, opened.stdout + opened.stderr
    text = opened.stdout + opened.stderr
    assert re.search(r"half · \d+@\S+ stopped \(exception: ZeroDivisionError: division by zero\)", text)
    assert "return scaled[0] / by" in text
    assert re.search(r"rows +\= \[1, 2, 'changed'\]  \(size 3\)", text)
    assert re.search(r"password += <redacted>", text)
    assert "only names are looked up here" in text and "nothing of it runs" in text
    lacking = up.run("replay", str(file), "--run", "--yes", cwd=apart)
    assert lacking.returncode == 2 and "lacks password: its name is a secret's" in lacking.stderr

    book = tmp_path / "book.capsule"
    assert up.run("failures", "--get", by_task["Shelf.book"]["id"], "--to", str(book)).returncode == 0
    unasked = up.run("replay", str(book), "--run", cwd=code)
    assert unasked.returncode == 2 and "this runs pickled code of job main-" in unasked.stderr

    # Today's source is run: here it is changed.
    (code / "main.py").write_text(PROGRAM.replace("self.books[name]", "self.books.get(name, FACTOR)"))
    command = [str(python.with_name("rayside")), "replay", str(book), "--run", "--yes"]
    ran = subprocess.run(
        command, cwd=code, env=up.environment, input="", capture_output=True, text=True, timeout=PATIENCE
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "Shelf.book returned 2" in ran.stderr and "main.py: as it is here now" in ran.stderr

    submitted = up.run("replay", str(book), "--submit", "--yes", cwd=code)
    assert submitted.returncode == 0, submitted.stdout + submitted.stderr
    output = up.run("logs", "--follow", "--job", up.target.access.require().jobs()[-1].submission_id).stdout
    assert "Shelf.book returned 2" in output and "main.py: as it is here now" in output

    archive = tmp_path / "diagnosis.zip"
    assert up.run("diagnose", "--archive", str(archive)).returncode == 0
    with zipfile.ZipFile(archive) as files:
        recorded = json.loads(files.read("ray/failures.json"))
    assert {each["task"] for each in recorded} == {"half", "Shelf.book"}
