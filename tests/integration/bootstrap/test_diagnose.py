"""Tests what `diagnose` says of failures that are produced on purpose, side by side on one real Ray."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import tarfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
import requests

from rayside.ray.records import ENDED
from rayside.waiting import until
from tests.failures.failure import missed
from tests.failures.jobs import (
    BEGIN,
    COMMANDS,
    ENVIRONMENTS,
    FAILURES,
    OTHER,
    PLAIN,
    PROGRAMS,
    STORE,
    STUCK,
)
from tests.integration.conftest import Rayside

PLANTED = "hunter2hunter2hunter2"
# Seconds until all of them have failed, or stand; 440 were seen where 100 processes waited for two cores.
PATIENCE = 600.0
JOBS = {*PROGRAMS, *PLAIN, *COMMANDS}


@pytest.fixture(scope="module")
def up(rayside: Rayside, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rayside]:
    """Provides a cluster on which each of the failures has happened."""
    # A node whose processes were killed is dead for Ray after 3 s instead of 25.
    rayside.environment_too.update(RAY_health_check_period_ms="1000", RAY_health_check_failure_threshold="3")
    done = rayside.run("up", "--no-example")
    assert done.returncode == 0, done.stdout + done.stderr
    folder = tmp_path_factory.mktemp("programs")
    texts = {name: BEGIN + text for name, text in PROGRAMS.items()} | PLAIN
    for name, text in texts.items():
        (folder / f"{name}.py").write_text(text)
    # Of so many failed jobs `diagnose` reads the output of the newest alone; that of the first says nothing.
    commands = COMMANDS | {name: f"python {folder}/{name}.py" for name in texts}
    with _second_node(rayside) as node:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda name: _submit(rayside, name, commands[name]), commands))
        _wait(rayside, _before, "the second node has nothing to lose")
        # Without its raylet a node is dead, and its workers end.
        for process in psutil.Process(node.pid).children(recursive=True):
            if process.name() == "raylet":
                process.kill()
        _wait(rayside, _after, "not all jobs have come to their ends")
        yield rayside


@contextlib.contextmanager
def _second_node(rayside: Rayside) -> Iterator[subprocess.Popen[bytes]]:
    """Runs a second node of that Ray, with little room for objects, and yields its process."""
    head = rayside.target.head
    # Ray says it a moment after its dashboard answers.
    address = until(lambda: re.search(r"--address='([\d.:]+)'", head.log.read_text()), bool, PATIENCE)
    assert address, head.log.read_text()
    command = [
        *[str(head.programs / "ray"), "start", "--block", "--address", address[1]],
        *["--node-ip-address", "127.0.0.3", "--num-cpus", "0", "--resources", json.dumps({OTHER: 9})],
        *["--object-store-memory", str(STORE), "--dashboard-agent-listen-port", "0"],
        *["--min-worker-port", "0", "--max-worker-port", "0"],
    ]
    # What does not fit into its store may not be on its disk either.
    environment = {**head.environment(), "RAY_local_fs_capacity_threshold": "0.001"}
    log = rayside.folder / "second-node.log"
    with log.open("w") as stream:
        node = subprocess.Popen(command, env=environment, stdout=stream, stderr=subprocess.STDOUT)
    try:
        dashboard = rayside.target.access.require()
        until(lambda: node.poll() is not None or dashboard.live_nodes() == 2, bool, PATIENCE)
        assert node.returncode is None and dashboard.live_nodes() == 2, log.read_text()
        yield node
    finally:
        node.terminate()
        node.wait(timeout=60)


def _submit(rayside: Rayside, name: str, command: str) -> None:
    head = rayside.target.head
    answer = requests.post(
        f"{head.url}/api/jobs/",
        json={
            "entrypoint": command,
            "submission_id": name,
            "runtime_env": {"env_vars": {"DB_PASSWORD": PLANTED}, **ENVIRONMENTS.get(name, {})},
            "metadata": {"note": f"postgresql://joe:{PLANTED}@db/x"},
        },
        headers={"Authorization": f"Bearer {head.token.read_text()}"},
        timeout=60,
    )
    assert answer.ok, answer.text


def _wait(rayside: Rayside, lacking: Any, what: str) -> None:
    left = until(lambda: lacking(rayside), lambda left: not left, PATIENCE)
    assert not left, f"{what}: {left}"


def _before(rayside: Rayside) -> list[Any]:
    """Returns what has to be true, and is not yet, before the second node may die."""
    dashboard = rayside.target.access.require()
    tasks = {(row["name"], row["state"]) for row in dashboard.table("tasks")}
    expected = {("make", "FINISHED"), ("stay", "RUNNING"), ("fill", "FAILED"), ("rest", "FAILED")}
    return list(expected - tasks)


def _after(rayside: Rayside) -> list[Any]:
    """Returns what has to be true, and is not yet, before `diagnose` is asked."""
    dashboard = rayside.target.access.require()
    jobs = {job.submission_id: job.status for job in dashboard.jobs()}
    running = [name for name in JOBS - set(STUCK) if jobs.get(name) not in ENDED]
    tasks = {(row["name"], row["state"]) for row in dashboard.table("tasks")}
    expected = {
        *{("train", "PENDING_NODE_ASSIGNMENT"), ("after", "PENDING_ARGS_AVAIL")},
        *{(name, "FAILED") for name in ("part", "fetch", "rest", "fill", "stay", "ready", "follow")},
    }
    waiting = {task.task for task in dashboard.waiting()}
    return [*running, *(expected - tasks), *({"look", "driver"} - waiting)]


def test_each_failure_is_told_with_its_cause(up: Rayside) -> None:
    told = up.json("diagnose")
    assert told["unread"] == []
    untold = missed(FAILURES, told["findings"])
    assert not untold, untold
    # Nothing is told of what did not fail, and no failure twice.
    assert len(told["findings"]) == len(FAILURES), json.dumps(told["findings"], indent=1)
    ids = [each["id"] for each in told["findings"]]
    assert ids.index("node-dead") == 0
    assert ids.index("task-infeasible") > ids.index("worker-died")


def test_of_one_job_its_cause_is_told_in_words_after_what_all_jobs_suffer_from(up: Rayside) -> None:
    done = up.run("diagnose", "--job", "raises")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("Node 127.0.0.3 of Ray died (node ")
    (at,) = [at for at, line in enumerate(lines) if line.startswith("Job ")]
    assert lines[at].startswith("Job raises failed: task parse raised ValueError (")
    assert lines[at + 1] == "  invalid literal for int() with base 10: 'seven'"
    assert lines[at + 2].startswith("  hint: ./invokew submit --debug --post-mortem")
    assert lines[-1].startswith("Next: ./invokew status")
    job = up.target.access.require().job("raises")
    found = up.json("diagnose", "--job", str(job.job_id))["findings"]
    assert [each["id"] for each in found] == ["node-dead", "task-raised"]


def test_a_job_that_is_gone_is_an_error_with_the_newest_ids(up: Rayside) -> None:
    error = up.json("diagnose", "--job", "raisens", code=5)["error"]
    assert (error["id"], error["message"]) == ("job-not-found", "Ray has no job 'raisens', or no longer")
    assert len(set(error["hint"].removeprefix("the newest are ").split(", ")) & JOBS) == 5


def test_a_pod_is_asked_for_in_vain_where_there_is_no_kubernetes(up: Rayside) -> None:
    error = up.json("diagnose", "--pod", "x", code=2)["error"]
    assert (error["id"], error["message"]) == ("invalid-argument", "--pod needs a Kubernetes cluster")


def test_the_archive_holds_the_evidence_and_no_secret(up: Rayside, tmp_path: Path) -> None:
    file = tmp_path / "diagnosis.tar.gz"
    own = {"MY_API_KEY": "seven-of-my-own"}
    told = up.json("diagnose", "--archive", str(file), env=own)
    assert told["archive"]["file"] == str(file)
    assert told["archive"]["redacted"] >= 2 * len(JOBS)
    assert file.stat().st_mode & 0o777 == 0o600
    with tarfile.open(file) as archive:
        files = {member.name: archive.extractfile(member).read().decode() for member in archive}  # type: ignore[union-attr]
    token = up.target.head.token.read_text()
    for name, text in files.items():
        assert PLANTED not in text, name
        assert token not in text, name
        assert own["MY_API_KEY"] not in text, name
        assert name in files["MANIFEST.txt"] or name == "MANIFEST.txt"
    assert json.loads(files["findings.json"])["findings"] == told["findings"]
    assert "ValueError" in files["logs/job-raises.log"]
    jobs: list[dict[str, Any]] = json.loads(files["ray/jobs.json"])
    assert {job["runtime_env"]["env_vars"]["DB_PASSWORD"] for job in jobs} == {"<redacted>"}
    assert {job["submission_id"] for job in jobs} == JOBS
    again = up.json("diagnose", "--archive", str(file), code=2)["error"]
    assert "is there already" in again["message"]


def test_a_ray_that_is_dead_is_told_first_and_what_cannot_be_read(up: Rayside) -> None:
    (gcs,) = up.named("gcs_server")
    gcs.kill()
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and up.target.head.running():
        time.sleep(0.2)
    told = up.json("diagnose", timeout=60)
    assert told["findings"][0]["id"] in ("ray-died", "not-running")
    assert told["findings"][0]["hint"] == "./invokew up starts it again"
    assert any("jobs" in each for each in told["unread"])
    assert len(told["findings"]) == 1
