"""Tests the workflow of the repository's host: its rights, and that it runs nothing of others."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from bootstrap.settings import ROOT
from tests.go_programs import built

pytestmark = pytest.mark.gate

# YAML 1.1 reads the key `on` as a truth.
TEXT = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
WORKFLOW: dict[Any, Any] = yaml.safe_load(TEXT)
JOBS: dict[str, dict[str, Any]] = WORKFLOW["jobs"]
STEPS = [(job, step) for job, definition in JOBS.items() for step in definition["steps"]]


def test_it_may_read_the_code_and_no_more_and_every_job_ends() -> None:
    assert WORKFLOW["permissions"] == {"contents": "read"}
    assert all("permissions" not in job for job in JOBS.values())
    assert all(job["timeout-minutes"] <= 90 for job in JOBS.values())
    assert WORKFLOW["concurrency"]["group"]


def test_an_action_of_others_would_be_pinned_by_its_commit() -> None:
    for _, step in STEPS:
        assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", step.get("uses", f"none@{'0' * 40}")), step


def test_pull_requests_run_what_ci_is_and_the_night_runs_the_rest() -> None:
    assert set(WORKFLOW[True]) == {"pull_request", "schedule", "workflow_dispatch"}
    gate, pieces = JOBS["tests"]["steps"][-2:]
    assert (gate["if"], gate["run"]) == ("github.event_name == 'pull_request'", ".ci/run")
    assert pieces["if"] == "github.event_name != 'pull_request'"
    shards = re.findall(r"(\d)/(\d)", JOBS["tests"]["strategy"]["matrix"]["tests"])
    assert shards == [(str(shard), "5") for shard in range(1, 6)]
    assert pieces["run"].splitlines()[-1] == './invokew test --all --shard "$SHARD"'
    assert "--source upstream" in "".join(step["run"] for step in JOBS["upstream"]["steps"])
    assert "devcontainer up" in "".join(step["run"] for step in JOBS["devcontainer"]["steps"])


@pytest.mark.parametrize("verb", ["up", "doctor", "debug", "status", "down", "test"])
def test_its_verbs_have_the_options_that_it_gives_them(verb: str) -> None:
    code = (ROOT / "tasks.py").read_text()
    used = [words for _, step in STEPS for words in re.findall(rf"\./invokew {verb}\b([^|\n]*)", step["run"])]
    assert used
    for option in {word.lstrip("-") for words in used for word in words.split() if word.startswith("--")}:
        assert re.search(rf"\b{option.replace('-', '_')}\b", code), option


def test_the_code_is_checked_out_at_the_commit(tmp_path: Path) -> None:
    """The workflow's own lines run against a repository of this machine in place of the host's."""
    origin, checkouts = tmp_path / "somebody" / "a", tmp_path / "there"
    origin.mkdir(parents=True)
    checkouts.mkdir()
    git = ["git", "-C", str(origin), "-c", "user.name=a", "-c", "user.email=a@b.test"]
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "a"], ["rev-parse", "HEAD"]):
        commit = subprocess.run([*git, *words], check=True, capture_output=True, text=True).stdout.strip()
    environment = {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": str(tmp_path),
        "TOKEN": "secret",
        "GITHUB_SERVER_URL": f"file://{tmp_path}",
        "GITHUB_REPOSITORY": "somebody/a",
        "GITHUB_SHA": commit,
        "CHECK_OUT": WORKFLOW["env"]["CHECK_OUT"],
    }
    for job, step in STEPS:
        if step["name"] == "Check out":
            folder = checkouts / job
            folder.mkdir()
            command = ["bash", "-e", "-c", step["run"]]
            subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
            head = subprocess.run(
                ["git", "rev-parse", "HEAD"], cwd=folder, check=True, capture_output=True, text=True
            )
            assert head.stdout.strip() == commit
            assert "secret" not in (folder / ".git" / "config").read_text()


def test_every_other_step_is_a_script_that_bash_reads() -> None:
    for _, step in STEPS:
        subprocess.run(["bash", "-n", "-c", step["run"]], check=True, capture_output=True)


def test_actionlint_finds_nothing() -> None:
    lint = built("actionlint", "github.com/rhysd/actionlint/cmd/actionlint", "1.7.7")
    # Without the linters of other languages, which a machine may or may not have.
    command = [str(lint), "-no-color", "-shellcheck=", "-pyflakes="]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr
