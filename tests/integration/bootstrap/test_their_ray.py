"""Tests the target `cluster` on a Ray that others made, with two nodes and without debugpy."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import psutil
import pytest
import requests

from bootstrap.settings import FIRST_RAY_WITH_TOKENS, OLDEST_RAY
from rayside.ray.state import Dashboard
from rayside.system import marks, processes
from rayside.waiting import until
from tests.http_servers import answering, says
from tests.integration.conftest import Rayside
from tests.integration.sshd import HOST, sshd
from tests.integration.their_ray import HEAD, PROGRAM, WORKER, TheirRay, their_ray
from tests.patience import PATIENCE

FAILS = PROGRAM.replace("(1, 2)", "(2, 0)")
# It pauses by itself, stops at a breakpoint of the editor's, and fails.
PAUSES = PROGRAM.replace("    result", "    breakpoint()\n    result").replace("(1, 2)", "(2, 0)")
# Nothing else needs that package, which came with the job.
COMPILED_IN = "'bytecode' in __import__('sys').modules"
TOKEN = "their-token-" + "x" * 20


@pytest.fixture(scope="module")
def theirs() -> Iterator[TheirRay]:
    with their_ray() as ray:
        yield ray


def program(folder: Path, text: str) -> Path:
    file = folder / "main.py"
    file.write_text(text)
    return file


def both_stop(user: Rayside, folder: Path) -> dict[str, Any]:
    """Submits PROGRAM, has it stop in unmodified code in each of its two tasks; returns what `debug` says."""
    source = program(folder, PROGRAM)
    user.json("submit", "--debug", "--working-dir", str(folder), "--entrypoint", "python main.py")
    options = ["--timeout", "200", "--break", f"{source}:6", "--evaluate", "n"]
    document: dict[str, Any] = user.json("debug", *options, timeout=240)
    stops = sorted((stop["evaluated"]["n"], stop["line"]) for stop in document["stopped"])
    assert stops == [("1", 6), ("2", 6)]
    assert document["job"]["status"] == "SUCCEEDED"
    return document


def stop_where_asked(user: Rayside, folder: Path) -> None:
    """Has a job stop for a condition alone, and another one where it fails."""
    source = program(folder, PROGRAM)
    submit = ["submit", "--debug", "--working-dir", str(folder), "--entrypoint", "python main.py"]
    debug = ["debug", "--timeout", "200"]
    user.json(*submit)
    document = user.json(*debug, "--break", f"{source}:6:n > 1", "--evaluate", "result", timeout=240)
    assert [stop["evaluated"] for stop in document["stopped"]] == [{"result": "5.0"}]
    program(folder, FAILS)
    user.json(*submit, "--post-mortem")
    document = user.json(*debug, "--evaluate", "n", timeout=240)
    assert [stop["evaluated"] for stop in document["stopped"]] == [{"n": "0"}]
    assert document["job"]["status"] == "FAILED"


def connections(mark: str, folder: Path) -> list[psutil.Process]:
    """Returns the processes of OpenSSH that forward for a cluster."""
    return [process for process in processes.marked(mark, str(folder)) if process.name() == "ssh"]


def left_behind(ray: TheirRay, token: str = "") -> dict[str, Any]:
    """Returns what a Ray has that outlives a job: actors, placement groups, nodes."""
    dashboard = Dashboard(ray.url, token)
    return {
        "actors": [row["actor_id"] for row in dashboard.table("actors", ("state", "DEAD"))],
        "placement groups": [row["placement_group_id"] for row in dashboard.table("placement_groups")],
        "nodes": sorted(dashboard.node_addresses().values()),
    }


@pytest.mark.timeout(900)
def test_tasks_of_unmodified_code_stop_on_both_nodes_and_nothing_is_left(
    theirs: TheirRay, user: Rayside, tmp_path: Path
) -> None:
    before = left_behind(theirs)
    done = user.run("up", "--target", "cluster", "--address", theirs.url, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "asks for no token: whoever reaches it can run programs there" in done.stderr
    assert "Next: ./invokew submit --help" in done.stdout
    assert Dashboard(theirs.url, "").jobs() == []
    assert "Nothing to change" in user.run("up").stdout
    status = user.json("status")
    assert (status["target"], status["ready"]) == ("cluster", True)
    assert status["urls"]["dashboard"] == theirs.url

    file = program(tmp_path, PROGRAM)
    submit = ["submit", "--debug", "--working-dir", str(tmp_path), "--entrypoint", "python main.py"]
    submitted = user.json(*submit)
    assert submitted["cluster"] == theirs.url
    evaluate = ["--evaluate", "n", "--evaluate", COMPILED_IN]
    document = user.json("debug", "--timeout", "200", "--break", f"{file}:6", *evaluate, timeout=240)
    assert document["job"] == {"submission_id": submitted["submission_id"], "status": "SUCCEEDED"}
    stops = [(stop["task"], stop["file"], stop["line"], stop["evaluated"]) for stop in document["stopped"]]
    assert sorted(stops, key=str) == [
        ("half", str(file), 6, {"n": n, COMPILED_IN: "True"}) for n in ("1", "2")
    ]
    assert len({stop["worker_id"] for stop in document["stopped"]}) == 2
    assert "[10.0, 5.0]" in user.run("logs").stdout

    stop_where_asked(user, tmp_path)
    assert user.json("diagnose")["findings"][0]["id"] == "task-raised"

    assert user.run("down").returncode == 0
    assert left_behind(theirs) == before == {"actors": [], "placement groups": [], "nodes": [HEAD, WORKER]}
    assert requests.get(f"{theirs.url}/api/version", timeout=PATIENCE).ok


@pytest.mark.gate
@pytest.mark.timeout(600)
def test_a_token_is_asked_for_checked_and_kept_private_also_by_ssh(user: Rayside, tmp_path: Path) -> None:
    with their_ray(token=TOKEN) as theirs:
        up = ["up", "--address", theirs.url]
        home = {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(Path.home() / ".cache")}
        done = user.run(*up, env=home, timeout=300)
        assert (done.returncode, "error[credentials-refused]" in done.stderr) == (4, True), done.stderr
        assert "--token-file FILE" in done.stderr
        file = tmp_path / "token"
        file.write_text("another-token-" + "y" * 20)
        done = user.run(*up, "--token-file", str(file))
        assert (done.returncode, "refuses the token" in done.stderr) == (4, True), done.stderr
        # What can't work leaves nothing behind.
        assert not user.folder.exists()
        file.write_text(f"{TOKEN}\n")
        done = user.run(*up, "--token-file", str(file), timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        assert TOKEN not in done.stdout + done.stderr
        kept = user.folder / "token"
        assert (kept.read_text(), kept.stat().st_mode & 0o777) == (TOKEN, 0o600)
        assert not any(
            TOKEN in path.read_text(errors="replace")
            for path in user.folder.rglob("*")
            if path.is_file() and path != kept
        )
        assert user.run("down").returncode == 0
        by_ssh(theirs, user, file, tmp_path)
        # A cluster that has gone is no error to `down`, which is in the middle of its work there.
        with sshd() as server:
            user.environment_too.update(server.environment)
            done = user.run(*up_by_ssh(theirs, file), timeout=300)
            assert done.returncode == 0, done.stdout + done.stderr
    assert user.run("down").returncode == 0


def up_by_ssh(theirs: TheirRay, token: Path) -> list[str]:
    address = ["--address", theirs.url.replace("localhost", "127.0.0.1")]
    return ["up", "--ssh", HOST, *address, "--token-file", str(token)]


def by_ssh(theirs: TheirRay, user: Rayside, token: Path, folder: Path) -> None:
    """Debugs a Ray whose head is reached by ssh alone; the relay is an actor there, and goes with `down`."""
    done = user.run(*up_by_ssh(theirs, token))
    assert (done.returncode, "error[ssh-failed]" in done.stderr) == (4, True), done.stderr
    assert not user.folder.exists()
    before = left_behind(theirs, TOKEN)
    with sshd() as server:
        user.environment_too.update(server.environment)
        done = user.run(*up_by_ssh(theirs, token), timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "Nothing to change" in user.run("up").stdout
        (actor,) = Dashboard(theirs.url, TOKEN).table("actors", ("state", "DEAD"))
        assert (actor["name"].startswith("rayside-relay-"), actor["ray_namespace"]) == (True, "rayside")
        assert Dashboard(theirs.url, TOKEN).jobs() == []
        both_stop(user, folder)
        stop_where_asked(user, folder)
        # The network that goes for a moment costs nothing but that moment.
        for mark in (marks.FORWARDS, marks.RELAY):
            # One that was broken off comes again by itself.
            (connection,) = until(partial(connections, mark, user.folder), bool, 60)
            connection.terminate()
        assert until(lambda: user.json("status")["ready"], bool, 60)
        assert user.run("down").returncode == 0
        assert left_behind(theirs, TOKEN) == before
        assert all(not job.submission_id.startswith("rayside") for job in Dashboard(theirs.url, TOKEN).jobs())


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("version", "token"), [(OLDEST_RAY, ""), (FIRST_RAY_WITH_TOKENS, TOKEN)])
def test_an_older_ray_is_debugged_as_this_one_is(
    version: str, token: str, user: Rayside, tmp_path: Path
) -> None:
    with their_ray(version=version, token=token) as theirs:
        before = left_behind(theirs, token)
        (tmp_path / "token").write_text(token)
        options = ["--token-file", str(tmp_path / "token")] if token else []
        done = user.run("up", "--address", theirs.url, *options, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        assert f"Ray {version}, Python" in done.stderr
        assert ("CVE-2026-27482" in done.stderr) is not bool(token)

        (tmp_path / "code").mkdir()
        file = program(tmp_path / "code", PAUSES)
        options = ["--debug", "--post-mortem", "--attach-timeout", "0", "--working-dir", str(file.parent)]
        user.json("submit", *options, "--entrypoint", "python main.py")

        def paused() -> list[str]:
            return [task["task"] for task in user.json("breakpoints")]

        # Ray's table of tasks may know of a paused one later than its table of workers.
        assert until(paused, lambda tasks: tasks == ["half", "half"], 120) == ["half", "half"]
        document = user.json("debug", "--timeout", "120", "--break", f"{file}:7", timeout=240)
        stops = sorted((stop["line"], stop["reason"], stop["task"]) for stop in document["stopped"])
        # A driver whose task has failed fails too.
        assert stops == [
            *[(6, "breakpoint", "half"), (6, "breakpoint", "half"), (6, "exception", "half")],
            *[(7, "breakpoint", "half"), (8, "exception", "driver")],
        ]
        assert document["job"]["status"] == "FAILED"
        assert user.run("down").returncode == 0
        assert left_behind(theirs, token) == before


@contextmanager
def pages_at(**pages: str | None) -> Iterator[str]:
    """Yields the address of a server; `pages` by the last part of their paths, None is not found."""
    by_path = {f"/api/{'v0/' if name == 'cluster_metadata' else ''}{name}": pages[name] for name in pages}

    def answer(request: BaseHTTPRequestHandler) -> None:
        page = by_path.get(request.path, "<html>a router's page</html>")
        says(request, 404 if page is None else 200, (page or "").encode())

    with answering(answer) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.mark.gate
def test_what_is_no_ray_is_said_before_anything_is_made(user: Rayside) -> None:
    with pages_at() as url:
        for address, error in ((url, "not-ray"), ("http://127.0.0.1:1", "not-running")):
            done = user.run("up", "--address", address)
            assert (done.returncode, f"error[{error}]" in done.stderr) == (4, True), done.stderr
            assert not user.folder.exists()


@pytest.mark.gate
def test_a_ray_that_is_too_old_is_refused_before_anything_is_made(user: Rayside) -> None:
    pages = {"authentication_mode": None, "version": json.dumps({"ray_version": "2.30.0"})}
    metadata = json.dumps({"data": {"pythonVersion": "3.11.2"}})
    with pages_at(**pages, cluster_metadata=metadata) as url:
        done = user.run("up", "--address", url)
    assert (done.returncode, "error[unsupported-ray]" in done.stderr) == (4, True), done.stderr
    assert f"is 2.30.0, and the oldest that Rayside debugs is {OLDEST_RAY}" in done.stderr
    assert not user.folder.exists()
