"""Tests the relay as a real process: beside a real Ray, and by itself where Ray is not well."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import psutil
import pytest

from bootstrap.settings import ROOT
from rayside.dap.client import Client
from rayside.dap.framing import encode
from rayside.dap.one_request import ask
from rayside.debugger_files import DEBUGGER
from rayside.errors import DebuggerGone, RequestFailed
from rayside.ports import port_holder
from rayside.relay.config import Config
from rayside.system import marks, processes
from tests.at_once import AT_ONCE
from tests.http_servers import answering, says
from tests.integration.conftest import Rayside, free_ports, of_each
from tests.integration.relay_debuggees import Session
from tests.integration.relay_port import answers, initialize, until
from tests.patience import PATIENCE
from tests.targets import local_target

pytestmark = pytest.mark.gate


def python() -> str:
    """Returns Ray's own Python, which the process runs on."""
    return str(local_target().environment.programs / "python")


# --- by itself ---------------------------------------------------------------------------


class Process:
    """A relay started by hand, in a folder with nothing but its own code."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_ports()[0]
        for file in DEBUGGER:
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / file, folder / file)
        self.token = folder / "token"
        self.config = folder / "relay.json"
        # Nothing listens on port 1: a Ray that is not there yet.
        config = Config("127.0.0.1", self.port, "http://127.0.0.1:1", self.token, shared_files=False)
        self.config.write_text(config.document())
        self.log = folder / "log"
        self.running: subprocess.Popen[bytes] | None = None

    def start(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            self.running = subprocess.Popen(
                [python(), "-B", "-m", "rayside.relay", "--config", str(self.config)],
                cwd=self.folder,
                env={"PATH": os.defpath},
                stdout=log,
                stderr=log,
            )
        return self.running


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    started = Process(tmp_path)
    yield started
    if started.running is not None:
        started.running.kill()
        started.running.wait()


def test_it_needs_only_the_files_that_the_image_has_and_starts_at_once(process: Process) -> None:
    process.token.write_text("secret\n")
    began = time.monotonic()
    running = process.start()
    until(lambda: answers(process.port) or running.poll() is not None)
    assert running.poll() is None, process.log.read_text()
    assert time.monotonic() - began < 20.0  # It compiles its modules, on a busy machine.
    assert initialize(process.port)["supportsConfigurationDoneRequest"] is True
    memory = psutil.Process(running.pid).memory_info().rss / 2**20
    assert memory < 64, f"{memory:.0f} MiB"
    assert "secret" not in process.log.read_text()


def test_it_imports_nothing_that_it_does_not_need(process: Process) -> None:
    unwanted = ("ray", "rich", "docker", "kubernetes", "aiohttp", "psutil", "yaml", "invoke")
    code = f"import sys, rayside.relay.__main__; print([name for name in {unwanted} if name in sys.modules])"
    done = subprocess.run(
        [python(), "-B", "-c", code],
        cwd=process.folder,
        env={"PATH": os.defpath},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_at_once_when_told_and_says_so(process: Process, number: signal.Signals) -> None:
    process.token.write_text("secret")
    running = process.start()
    until(lambda: answers(process.port))
    with socket.create_connection(("127.0.0.1", process.port)):  # an editor that says nothing
        began = time.monotonic()
        running.send_signal(number)
        assert running.wait(10) == 0
        assert time.monotonic() - began < AT_ONCE
    assert "ending" in process.log.read_text()


def test_it_waits_for_its_token_and_can_be_ended_meanwhile(process: Process) -> None:
    running = process.start()
    until(lambda: "waiting for the token" in process.log.read_text())
    with pytest.raises(DebuggerGone):
        initialize(process.port)
    process.token.write_text("secret")
    until(lambda: answers(process.port))
    assert running.poll() is None
    process.token.unlink()
    running.terminate()
    assert running.wait(10) == 0
    restarted = process.start()
    until(lambda: process.log.read_text().count("waiting for the token") == 2)
    restarted.terminate()
    assert restarted.wait(10) == 0


def test_a_port_that_is_taken_is_said(process: Process) -> None:
    process.token.write_text("secret")
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", process.port))
        holder.listen()
        assert process.start().wait(10) == 3
    assert f"error[port-taken]: port {process.port} is taken" in process.log.read_text()


def test_without_ray_it_attaches_nothing_and_answers_all_the_same(process: Process) -> None:
    process.token.write_text("secret")
    process.start()
    until(lambda: answers(process.port))
    answer = ask(process.port, "pausedTasks", {"token": "secret"})
    assert answer["tasks"] == []
    assert "no Ray dashboard answers" in answer["problem"]
    for wrong_token in ("", "secre", "secret2"):
        with pytest.raises(RequestFailed) as caught:
            ask(process.port, "pausedTasks", {"token": wrong_token})
        assert "secret" not in caught.value.message.replace(wrong_token or "secret2", "")


@asynccontextmanager
async def attached(port: int, **options: str) -> AsyncIterator[Session]:
    client = await Client.connect("127.0.0.1", port)
    await client.attach(options=options, no_delay=False)
    yield Session(client)
    client.close()
    await asyncio.wait_for(client.closed.wait(), PATIENCE)


async def test_ray_is_asked_only_while_an_editor_is_there_and_is_found_again(process: Process) -> None:
    process.token.write_text("secret")
    port = free_ports()[1]
    config = replace(Config.read(process.config), dashboard=f"http://127.0.0.1:{port}")
    process.config.write_text(config.document())
    process.start()
    until(lambda: answers(process.port))
    requests: list[tuple[str, str]] = []

    def answer(request: BaseHTTPRequestHandler) -> None:
        """Plays a Ray without workers."""
        requests.append((request.path.partition("?")[0], request.headers["Authorization"]))
        jobs = request.path.startswith("/api/jobs")
        says(request, 200, json.dumps([] if jobs else {"data": {"result": {"result": []}}}).encode())

    async with attached(process.port, token="secret") as editor:
        # The editor is there before Ray is.
        with answering(answer, port):
            until(lambda: len(requests) >= 5)
            assert set(requests) == {(path, "Bearer secret") for path in ("/api/v0/workers", "/api/jobs/")}
            await editor.request("disconnect")
            until(lambda: quiet(requests))


def quiet(requests: list[Any]) -> bool:
    before = len(requests)
    time.sleep(1)
    return len(requests) == before


# --- one request and its answer ----------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"", "nothing listens behind it"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "gets no answer of a debugger"),
        (None, "nothing that answers within 0.3 s"),
        (encode({"type": "event", "event": "output"}), "nothing listens behind it"),
    ],
)
def test_what_is_no_answer_is_told(answer: bytes | None, why: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        if answer is None:
            with pytest.raises(DebuggerGone, match=why):
                ask(port, "initialize", {}, timeout=0.3)
            return

        def serve(answer: bytes = answer) -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(DebuggerGone, match=why):
            ask(port, "initialize", {}, timeout=PATIENCE)
        thread.join()


# --- beside a real Ray -------------------------------------------------------------------


@pytest.fixture(scope="module")
def up(rayside: Rayside) -> Rayside:
    done = rayside.run("up")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"tcp://127.0.0.1:{rayside.settings.relay_port}" in done.stdout
    assert str(rayside.folder / "token") in done.stdout
    return rayside


def relay(rayside: Rayside) -> psutil.Process:
    (process,) = processes.marked(marks.RELAY, str(rayside.folder))
    return process


def token_of(rayside: Rayside) -> str:
    return (rayside.folder / "token").read_text()


def condition(rayside: Rayside) -> dict[str, str]:
    steps = {step["name"]: step for step in rayside.json("status")["steps"]}
    return dict(steps["relay"])


def test_up_has_started_it_and_finds_it_again(up: Rayside) -> None:
    before = relay(up).pid
    assert up.is_ready()
    done = up.run("up")
    assert done.returncode == 0
    assert "Nothing to change" in done.stdout
    assert relay(up).pid == before
    assert initialize(up.settings.relay_port)


def test_it_listens_on_loopback_and_its_token_is_rays(up: Rayside) -> None:
    process = relay(up)
    listening = [
        (connection.laddr.ip, connection.laddr.port)
        for connection in process.net_connections(kind="tcp")
        if connection.status == psutil.CONN_LISTEN
    ]
    assert listening == [("127.0.0.1", up.settings.relay_port)]
    assert token_of(up) not in " ".join(process.cmdline())
    assert token_of(up) not in " ".join(process.environ().values())
    with pytest.raises(RequestFailed):
        ask(up.settings.relay_port, "pausedTasks", {"token": "wrong"})
    answer = ask(up.settings.relay_port, "pausedTasks", {"token": token_of(up)})
    assert ([task["held"] for task in answer["tasks"]], answer["problem"]) == ([False], "")
    for name in ("relay.json", "relay-process.json", "relay.log"):
        file = up.folder / name
        assert file.stat().st_mode & 0o077 == 0
        assert token_of(up) not in file.read_text()


async def test_breakpoints_lists_a_task_once_whoever_holds_it(up: Rayside) -> None:
    (waiting,) = up.json("breakpoints")
    async with attached(up.settings.relay_port, token=token_of(up)) as editor:
        assert (await editor.event("stopped"))["reason"]
        (listed,) = up.json("breakpoints")
        assert (listed["worker_id"], listed["task"]) == (waiting["worker_id"], "estimate")
        assert set(listed) == set(waiting)
    # The editor has gone: within 2 s all goes on.
    until(lambda: up.json("breakpoints") == [])


def test_killed_it_is_missing_and_up_repairs_it_alone(up: Rayside) -> None:
    head = (up.folder / "ray.json").read_text()
    before = relay(up)
    before.kill()
    before.wait(10)
    step = condition(up)
    assert step["condition"] == "missing"
    assert "has ended" in step["detail"]
    error = up.json("breakpoints", code=4)["error"]
    assert (error["id"], error["hint"]) == ("not-running", "./invokew up repairs it")
    assert up.run("up", "--no-example").returncode == 0
    assert relay(up).pid != before.pid
    assert condition(up)["condition"] == "ready"
    assert (up.folder / "ray.json").read_text() == head


def test_a_relay_that_hangs_is_pending(up: Rayside) -> None:
    process = relay(up)
    process.suspend()
    try:
        step = condition(up)
        assert (step["condition"], "nothing that answers" in step["detail"]) == ("pending", True)
    finally:
        process.resume()
    assert condition(up)["condition"] == "ready"


def test_a_port_that_is_taken_is_said_with_who_has_it(up: Rayside) -> None:
    port = up.settings.relay_port
    relay(up).kill()
    until(lambda: port_holder(port) is None)
    with socket.create_server(("127.0.0.1", port)):
        done = up.run("up", "--no-example")
        assert done.returncode == 3
        assert f"(pid {os.getpid()})" in done.stderr
        assert f"INVOKE_RAYSIDE_RELAY_PORT={port + 1}" in done.stderr
        finding = next(each for each in findings(up) if each["id"] == "relay-port")
        assert finding["ok"] is True, "of a cluster that is up the ports are its own"
    assert up.run("up", "--no-example").returncode == 0


def findings(rayside: Rayside) -> list[dict[str, Any]]:
    done = rayside.run("doctor", "--target", "local", "--json")
    return list(json.loads(done.stdout)["findings"])


def test_with_another_head_comes_another_relay(up: Rayside) -> None:
    before = relay(up).pid
    of_each(up.processes(), psutil.Process.kill)
    assert relay(up).pid == before, "the relay lives without its Ray"
    assert initialize(up.settings.relay_port)
    assert up.run("up", "--no-example").returncode == 0
    assert relay(up).pid != before
    assert condition(up)["condition"] == "ready"


def test_down_ends_it_and_frees_its_port(up: Rayside) -> None:
    process = relay(up)
    assert up.run("down").returncode == 0
    assert not process.is_running()
    assert processes.marked(marks.RELAY, str(up.folder)) == []
    assert not up.settings.state_folder.exists()
    with socket.create_server(("127.0.0.1", up.settings.relay_port)):
        finding = next(each for each in findings(up) if each["id"] == "relay-port")
        assert finding["ok"] is False
        assert f"(pid {os.getpid()})" in finding["detail"]
