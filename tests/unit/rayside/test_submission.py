"""Tests submission from beside the cluster: its options, and the cluster file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rayside import submission
from rayside.errors import (
    InvalidArgument,
    InvalidSetting,
    MissingEntrypoint,
    MissingWorkingDir,
    NotAPackage,
    NotRunning,
)
from rayside.ray import jobs
from rayside.ray.debug import Debug
from rayside.submission import CLUSTER_FILE, Cluster, parsed, prepare

# --- the options -------------------------------------------------------------------------


def test_every_option_reaches_the_job(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(program)
    (program / "env.yaml").write_text("env_vars: {A: b}")
    words = ["--working-dir", ".", "--py-modules", "model", "--py-modules", str(program / "model")]
    words += ["--entrypoint", "python train.py --json", "--runtime-env", "env.yaml"]
    words += ["--debug", "--post-mortem", "--attach-timeout", "2.5", "--json"]
    assert prepare(parsed(words)) == jobs.Submission(
        "python train.py --json",
        str(program),
        (str(program / "model"), str(program / "model")),
        {"env_vars": {"A": "b"}},
        debug=Debug(attach_timeout=2.5, post_mortem=True, record_failures=True),
    )
    assert parsed(words).json is True


def test_without_options_it_is_this_folder_undebugged(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(program)
    arguments = parsed(["--entrypoint", "python train.py"])
    assert prepare(arguments) == jobs.Submission("python train.py", str(program))
    assert arguments.json is False


@pytest.mark.parametrize(
    ("words", "message_part"),
    [
        (["--job", "mine.yaml"], "unknown: --job mine.yaml"),
        (["train.py"], "unknown: train.py"),
        (["--debu"], "unknown: --debu"),
        (["--entrypoint"], "expected one argument"),
        (["--debug=yes"], "explicit argument"),
    ],
)
def test_a_wrong_command_is_an_error_like_any_other(words: list[str], message_part: str) -> None:
    with pytest.raises(InvalidArgument, match=message_part):
        parsed(words)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ([], MissingEntrypoint),
        (["--entrypoint", "python train.py", "--working-dir", "nowhere"], MissingWorkingDir),
        (["--entrypoint", "python train.py", "--py-modules", "nowhere"], NotAPackage),
        (["--entrypoint", "python train.py", "--post-mortem"], InvalidArgument),
        (["--entrypoint", "python train.py", "--attach-timeout", "5"], InvalidArgument),
        (["--entrypoint", "python train.py", "--record-failures"], InvalidArgument),
        (["--entrypoint", "x", "--debug", "--record-failures", "--no-record-failures"], InvalidArgument),
        *(
            (["--entrypoint", "python train.py", "--debug", "--attach-timeout", seconds], InvalidArgument)
            for seconds in ("soon", "-1", "nan")
        ),
    ],
)
def test_what_can_not_work_is_refused(
    program: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], error: type[Exception]
) -> None:
    monkeypatch.chdir(program)
    with pytest.raises(error):
        prepare(parsed(words))


def test_a_refusal_is_the_document_and_the_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["submission", "--entrypoint", " ", "--json"])
    assert submission.main() == 2
    shown = capsys.readouterr()
    assert json.loads(shown.out)["error"]["id"] == "missing-entrypoint"
    assert shown.err == ""
    monkeypatch.setattr("sys.argv", ["submission", "--entrypoint", " "])
    assert submission.main() == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("error[missing-entrypoint]: ")
    assert "\n hint: " in shown.err


# --- the cluster file --------------------------------------------------------------------


def cluster_file(folder: Path, **changed: Any) -> dict[str, str]:
    """Returns an environment that names a cluster file."""
    (folder / "token").write_text("secret\n")
    cluster = {"dashboard": "http://127.0.0.1:8265", "token_file": str(folder / "token"), "target": "kind"}
    file = folder / "cluster.json"
    file.write_text(json.dumps({**cluster, "shared_files": True, **changed}))
    return {CLUSTER_FILE: str(file)}


def test_the_cluster_is_the_one_whose_file_is_named_and_there_is_no_other(tmp_path: Path) -> None:
    cluster = Cluster.read(cluster_file(tmp_path))
    assert cluster == Cluster("http://127.0.0.1:8265", "secret", "kind")
    assert "secret" not in repr(cluster)
    # KubeRay's name of the cluster is used where there is one.
    environment = {**cluster_file(tmp_path), "RAY_CLUSTER_NAME": "mine-x7k2p"}
    assert Cluster.read(environment).name == "mine-x7k2p"
    with pytest.raises(InvalidSetting, match="RAYSIDE_CLUSTER_FILE is not set"):
        Cluster.read({})


def test_a_cluster_that_is_gone_is_not_running(tmp_path: Path) -> None:
    environment = cluster_file(tmp_path)
    (tmp_path / "token").unlink()
    with pytest.raises(NotRunning, match="token can't be read: No such file"):
        Cluster.read(environment)
    (tmp_path / "cluster.json").unlink()
    with pytest.raises(NotRunning, match=r"cluster\.json can't be read: No such file"):
        Cluster.read(environment)


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", '{"dashboard": "http://127.0.0.1:8265"}'])
def test_no_other_file_is_taken(tmp_path: Path, text: str) -> None:
    environment = cluster_file(tmp_path)
    (tmp_path / "cluster.json").write_text(text)
    with pytest.raises(InvalidSetting, match="not a cluster file"):
        Cluster.read(environment)
