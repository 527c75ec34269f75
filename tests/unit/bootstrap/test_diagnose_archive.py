"""Tests the archive: whole, private, never over another file, and with a list of what it holds."""

from __future__ import annotations

import json
import os
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from bootstrap.diagnosis import cleaned, report_file
from bootstrap.diagnosis.explain import findings
from bootstrap.diagnosis.gather import Gathered
from rayside.errors import InvalidArgument
from tests.unit.diagnosed import job, seen

SECRET = "tG7xZq9LmN2pRsTuVw"


def written(file: Path) -> dict[str, str]:
    """The archive's files; it is of a job that prints the secret, and of whose name a path could be made."""
    row = job("../../x", code=5, runtime_env={"env_vars": {"DB_PASSWORD": "hunter2hunter2"}})
    logs = {"../../x": f"begin\nRay's token is {SECRET}\n"}
    evidence = seen([row], logs=logs, unread=[f"actors: no answer with {SECRET}"])
    documents: dict[str, Any] = {
        "jobs": [row],
        "output of jobs": logs,
        "head's log": "head",
        "raylets' errors": "no such extra",
        "logs of pods": {"p/c": "y"},
        "pods": [],
    }
    found = findings(evidence)
    count = report_file.write(
        file, Gathered(documents, evidence), found, {"ray": "2.60.0"}, {"name": "rayside"}, [SECRET]
    )
    assert count == 4
    return read(file)


def read(file: Path) -> dict[str, str]:
    """The texts in an archive, in their order."""
    if file.name.endswith(".zip"):
        with zipfile.ZipFile(file) as opened:
            return {name: opened.read(name).decode() for name in opened.namelist()}
    with tarfile.open(file) as tar:
        return {member.name: tar.extractfile(member).read().decode() for member in tar}  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["diagnosis.tar.gz", "diagnosis.tgz", "diagnosis.zip"])
def test_an_archive_holds_what_its_manifest_says_and_no_secret(name: str, tmp_path: Path) -> None:
    file = tmp_path / name
    files = written(file)
    assert file.stat().st_mode & 0o777 == 0o600
    assert next(iter(files)) == "MANIFEST.txt"
    assert {
        *("MANIFEST.txt", "findings.json", "versions.json", "settings.json", "ray/jobs.json"),
        *(
            "kubernetes/pods.json",
            "logs/job-..%2F..%2Fx.log",
            "logs/head.log",
            "logs/raylets.log",
            "logs/pod-p%2Fc.log",
        ),
    } == set(files)
    manifest = files["MANIFEST.txt"]
    assert [line for line in files if line != "MANIFEST.txt" and f"{line}: " not in manifest] == []
    assert "Taken out as secrets: 4: 3 x known value, 1 x value with a secret's name." in manifest
    for text in files.values():
        assert SECRET not in text
        assert "hunter2hunter2" not in text
    assert json.loads(files["findings.json"])["findings"][0]["id"] == "job-failed"
    assert files["logs/job-..%2F..%2Fx.log"] == "begin\nRay's token is <redacted>\n"


def test_an_archive_is_never_written_over_a_file(tmp_path: Path) -> None:
    file = tmp_path / "d.zip"
    file.write_text("mine")
    with pytest.raises(InvalidArgument, match=r"d\.zip is there already"):
        report_file.require_new(file)
    with pytest.raises(InvalidArgument, match="can't be written: File exists"):
        written(file)
    assert file.read_text() == "mine"
    link = tmp_path / "link.zip"
    link.symlink_to(tmp_path / "elsewhere.zip")
    with pytest.raises(InvalidArgument, match="is there already"):
        report_file.require_new(link)


def test_an_archive_that_cannot_be_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="no ending that says what it is"):
        report_file.require_new(tmp_path / "d.txt")
    with pytest.raises(InvalidArgument, match="there is no folder"):
        report_file.require_new(tmp_path / "none" / "d.zip")
    report_file.require_new(tmp_path / "d.tar.gz")


@pytest.mark.parametrize("name", ["d.zip", "d.tar.gz"])
def test_each_log_has_a_name_of_its_own_and_makes_no_line_of_the_manifest(name: str, tmp_path: Path) -> None:
    logs = {"a.b": "one", "a-b": "two", "a/b": "three", "c\nfindings.json: nothing": "x"}
    report_file.write(tmp_path / name, Gathered({"output of jobs": logs}, seen()), [], {}, {}, [])
    files = read(tmp_path / name)
    assert [name for name in files if name.startswith("logs/job-a")] == [
        "logs/job-a.b.log",
        "logs/job-a-b.log",
        "logs/job-a%2Fb.log",
    ]
    long = {"x" * 300 + end: end for end in "ab"}
    report_file.write(tmp_path / f"long-{name}", Gathered({"output of jobs": long}, seen()), [], {}, {}, [])
    files = read(tmp_path / f"long-{name}")
    kept = {file: text for file, text in files.items() if file.startswith("logs/job-x")}
    assert sorted(kept.values()) == ["a", "b"]
    assert max(map(len, kept)) < 255
    assert "\nfindings.json: nothing" not in files["MANIFEST.txt"]


def test_a_disk_that_is_full_leaves_no_half_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int, mode: str) -> None:
        os.close(descriptor)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fdopen", full)
    with pytest.raises(InvalidArgument, match="No space left on device"):
        written(tmp_path / "d.zip")
    assert list(tmp_path.iterdir()) == []


def test_what_others_say_is_cleaned_and_bounded_wherever_it_stands() -> None:
    deep: Any = "end"
    for _ in range(100):
        deep = [deep]
    document = cleaned.document(
        {
            "a\x1b[2Jb": "x\x1b]0;title\x07y",
            "long": "z" * 100_000,
            "deep": deep,
            "rows": [1] * 5000,
            "n": None,
        }
    )
    assert document["ab"] == "xy"
    assert len(document["long"]) < 17_000
    assert "[...]" in document["long"]
    assert "[...]" in json.dumps(document["deep"])
    assert len(document["rows"]) == 2000
    assert document["n"] is None
    assert len(cleaned.document({str(number): number for number in range(5000)})) == 2000


def test_of_a_document_that_is_too_large_the_end_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleaned, "_MOST", 1000)
    cleaning = cleaned.Cleaning()
    kept = cleaning.document([{"a": "z" * 90} for _ in range(100)])
    assert len(json.dumps(kept)) < 2500
    assert (kept[0], kept[-1], cleaning.left <= 0) == ({"a": "z" * 90}, "[...]", True)


def test_what_is_cut_has_lost_its_secrets_before() -> None:
    applied = {"env": [{"name": "DB_PASSWORD", "value": "hunter2hunter2"}], "pad": "z" * 20_000}
    secret = "password: |\n" + "  hunter2hunter2\n" * 2_000
    shown = cleaned.document({"applied": json.dumps(applied), "message": secret})
    assert "hunter2" not in json.dumps(shown)
    line = json.dumps({"pad": "z" * 40_000, "password": ["hunter2hunter2" * 3000]})
    assert "hunter2" not in cleaned.log(f"{line}\nend\n")


def test_of_a_log_with_one_long_line_its_ends_stay() -> None:
    log = cleaned.log(f"begin\nfirst{'.' * 70_000}last")
    assert log.startswith("begin\nfirst.")
    assert log.endswith(".last")
    assert " [...] " in log


def test_of_a_long_log_whole_lines_of_the_end_stay() -> None:
    log = cleaned.log("".join(f"line {number}\x07\n" for number in range(20_000)))
    assert log.startswith("line ")
    assert log.endswith("line 19999\n")
    assert 50_000 < len(log) <= cleaned.LOG_TAIL
    assert cleaned.document(log) is log
