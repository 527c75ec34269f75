"""Tests what `diagnose` says of failures that are produced on purpose, side by side on one real Ray."""

from __future__ import annotations

import json
import tarfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import requests

from bootstrap.ray.state import ENDED
from tests.integration.conftest import Rayside

PLANTED = "hunter2hunter2hunter2"
# Each is a program that fails, or gets stuck, in its own way, and what has to be said of it. Those that only
# ask for what a task needs to run have no CPU, for two CPUs would make them wait for each other.
BEGIN = (
    "import os, signal, threading, time, ray\nray.init()\nremote = ray.remote(num_cpus=0, max_retries=0)\n"
)
PROGRAMS = {
    "raises": "@remote\ndef parse(row):\n    return int(row)\nray.get(parse.remote('seven'))\n",
    "lacks": "@remote\ndef load():\n    import mylib\nray.get(load.remote())\n",
    "captures": "guard = threading.Lock()\n@remote\ndef f():\n    return guard\nray.get(f.remote())\n",
    "crashes": "@remote\ndef crash():\n    os.kill(os.getpid(), signal.SIGSEGV)\nray.get(crash.remote())\n",
    "builds": (
        "@ray.remote(num_cpus=0)\nclass Model:\n    def __init__(self):\n        open('/no/weights.bin')\n"
        "    def run(self):\n        pass\nray.get(Model.remote().run.remote())\n"
    ),
    "kills": (
        "@ray.remote(num_cpus=0)\nclass Counter:\n    def get(self):\n        return 1\n"
        "c = Counter.remote()\nray.get(c.get.remote())\nray.kill(c)\ntime.sleep(1)\nray.get(c.get.remote())\n"
    ),
    "waits": "@remote\ndef slow():\n    time.sleep(600)\nray.get(slow.remote(), timeout=1)\n",
    "catches": (
        "@remote\ndef part():\n    raise KeyError('caught')\ntry:\n    ray.get(part.remote())\n"
        "except KeyError:\n    pass\ntime.sleep(600)\n"
    ),
    "asks": "@ray.remote(num_gpus=1)\ndef train():\n    pass\nray.get(train.remote())\n",
    "pauses": (
        "@remote\ndef look():\n    breakpoint()\n@remote\ndef after(n):\n    pass\n"
        "ray.get(after.remote(look.remote()))\n"
    ),
}
# What is said: the id, and words of what, where or why.
SAID = {
    "raises": ("task-raised", "task parse raised ValueError", "raises.py:6, in parse", "'seven'"),
    "lacks": ("module-not-found", "task load can't import mylib", "lacks.py:6, in load", "'mylib'"),
    "captures": ("not-serializable", "can't be sent to a worker", "captures.py:8", "the variable guard"),
    "crashes": ("worker-died", "the worker process of task crash died", "crashes.py:7", ""),
    "builds": ("actor-init-raised", "actor Model could not be made", "in __init__", "/no/weights.bin"),
    "kills": ("actor-killed", "actor Counter was used after it had been killed", "kills.py:12", "ray.kill"),
    "waits": ("get-timed-out", "the driver waited in ray.get", "waits.py:7", "slow"),
    "catches": ("task-raised", "task part raised KeyError", "catches.py:6, in part", "'caught'"),
    "asks": ("task-infeasible", "task train waits for 1 GPU", "for", "no node has any GPU"),
    "pauses": ("paused-others-wait", "task look of job pauses waits", "process", "waiting: after (1 in all)"),
    "missing": ("entrypoint-not-found", "its program nosuchprog was not found", "", "nosuchprog --x"),
    "killed": ("job-killed", "its program was killed", "", "SIGKILL"),
}
STUCK = ("catches", "asks", "pauses")


@pytest.fixture(scope="module")
def up(rayside: Rayside, tmp_path_factory: pytest.TempPathFactory) -> Rayside:
    """Provides a cluster on which each of the failures has happened."""
    done = rayside.run("up", "--no-example")
    assert done.returncode == 0, done.stdout + done.stderr
    folder = tmp_path_factory.mktemp("programs")
    for name, text in PROGRAMS.items():
        (folder / f"{name}.py").write_text(BEGIN + text)
    commands = {name: f"python {folder}/{name}.py" for name in PROGRAMS}
    commands |= {"missing": "nosuchprog --x", "killed": "kill -9 $$"}
    with ThreadPoolExecutor(4) as pool:
        for name, command in commands.items():
            pool.submit(_submit, rayside, name, command)
    dashboard = rayside.target.access.require()
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        jobs = {job.submission_id: job for job in dashboard.jobs()}
        ended = {name for name, job in jobs.items() if job.ended}
        if set(commands) - set(STUCK) <= ended and _all_stand(rayside):
            break
        time.sleep(0.5)
    assert {name for name, job in jobs.items() if job.status in ENDED} == set(commands) - set(STUCK)
    return rayside


def _submit(rayside: Rayside, name: str, command: str) -> None:
    head = rayside.target.head
    answer = requests.post(
        f"{head.url}/api/jobs/",
        json={
            "entrypoint": command,
            "submission_id": name,
            "runtime_env": {"env_vars": {"DB_PASSWORD": PLANTED}},
            "metadata": {"note": f"postgresql://joe:{PLANTED}@db/x"},
        },
        headers={"Authorization": f"Bearer {head.token.read_text()}"},
        timeout=60,
    )
    assert answer.ok, answer.text


def _all_stand(rayside: Rayside) -> bool:
    """Whether Ray's tables have all that the stuck programs come to."""
    tasks = {(row["name"], row["state"]) for row in rayside.target.access.require().table("tasks")}
    waiting = {("train", "PENDING_NODE_ASSIGNMENT"), ("after", "PENDING_ARGS_AVAIL"), ("part", "FAILED")}
    return waiting <= tasks and bool(rayside.target.access.dashboard().waiting())


def test_each_failure_is_told_with_its_cause(up: Rayside) -> None:
    told = up.json("diagnose")
    assert told["unread"] == []
    missed = []
    for name, (identity, what, where, why) in SAID.items():
        of_it = [each for each in told["findings"] if f"job {name}" in f"{each['what']} {each['where']}"]
        if not any(
            each["id"] == identity and what in each["what"] and where in each["where"] and why in each["why"]
            for each in of_it
        ):
            missed.append((name, of_it))
    assert not missed, json.dumps(missed, indent=1)
    assert len(told["findings"]) == len(SAID)
    assert all(each["hint"] for each in told["findings"])
    ids = [each["id"] for each in told["findings"]]
    assert ids.index("task-infeasible") > ids.index("worker-died")


def test_of_one_job_its_cause_alone_is_told_in_words(up: Rayside) -> None:
    done = up.run("diagnose", "--job", "raises")
    assert done.returncode == 0, done.stdout + done.stderr
    first, why, *_ = done.stdout.splitlines()
    assert first.startswith("Job raises failed: task parse raised ValueError (")
    assert why == "  invalid literal for int() with base 10: 'seven'"
    assert done.stdout.splitlines()[-1].startswith("Next: ./invokew submit --debug --post-mortem")
    job = up.target.access.require().job("raises")
    (found,) = up.json("diagnose", "--job", str(job.job_id))["findings"]
    assert found["id"] == "task-raised"


def test_a_job_that_is_gone_is_an_error_with_the_newest_ids(up: Rayside) -> None:
    error = up.json("diagnose", "--job", "raisens", code=5)["error"]
    assert (error["id"], error["message"]) == ("job-not-found", "Ray has no job 'raisens', or no longer")
    assert len(set(error["hint"].removeprefix("the newest are ").split(", ")) & set(SAID)) == 5


def test_a_pod_is_asked_for_in_vain_where_there_is_no_kubernetes(up: Rayside) -> None:
    error = up.json("diagnose", "--pod", "x", code=2)["error"]
    assert (error["id"], error["message"]) == ("invalid-argument", "--pod needs a Kubernetes cluster")


def test_the_archive_holds_the_evidence_and_no_secret(up: Rayside, tmp_path: Path) -> None:
    file = tmp_path / "diagnosis.tar.gz"
    own = {"MY_API_KEY": "seven-of-my-own"}
    told = up.json("diagnose", "--archive", str(file), env=own)
    assert told["archive"]["file"] == str(file)
    assert told["archive"]["redacted"] >= 2 * len(SAID)
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
    assert {job["submission_id"] for job in jobs} == set(SAID)
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
