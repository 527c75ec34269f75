"""Tests the process that forwards ports, and its step, when something around it really fails."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from bootstrap import processes
from bootstrap.dap.framing import Decoder, encode
from bootstrap.errors import Forbidden, NotRunning, PortTaken
from bootstrap.kube import forwarder
from bootstrap.kube.forwarder import Forward, document, forwarded
from bootstrap.settings import ROOT
from bootstrap.shell import Shell
from bootstrap.step import Condition, Step, until, up
from bootstrap.steps.forwards import Forwards
from tests.integration.conftest import free_ports
from tests.integration.scripted_api import SELECTOR, Pod, ScriptedApi, scripted_api
from tests.patience import PATIENCE

# The process is meant to outlive the object that started it.
pytestmark = [
    pytest.mark.gate,
    pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning"),
]

OTHER = "ray.io/originated-from-cr-name=job,ray.io/node-type=head"


class Quiet:
    """Is progress that nobody looks at."""

    def started(self, name: str, title: str) -> None: ...
    def note(self, name: str, text: str) -> None: ...
    def finished(self, name: str, title: str, outcome: str, detail: str) -> None: ...


def nothing(text: str) -> None: ...


@pytest.fixture
def api(tmp_path: Path) -> Iterator[ScriptedApi]:
    with scripted_api(tmp_path) as scripted:
        serve(scripted, "head-1")
        yield scripted


@pytest.fixture
def step(api: ScriptedApi, tmp_path: Path) -> Iterator[Forwards]:
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    dashboard, workspace = free_ports()
    ports = (Forward("dashboard", dashboard, 8265), Forward("workspace", workspace, 8443))
    forwards = Forwards(Shell(), api.kube, folder, ports, SELECTOR)
    yield forwards
    forwards.undo(nothing)
    assert forwards.leftovers() == []


@pytest.fixture
def running(step: Forwards) -> Forwards:
    make(step)
    return step


def make(step: Step) -> None:
    up([replace(step, needs=())], Quiet())  # type: ignore[type-var]


def serve(api: ScriptedApi, pod: str) -> None:
    """Serves real HTTP behind 8265 and 8443, and a port that answers only when the client has finished."""

    async def http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 401 Unauthorized\r\nConnection: close\r\n\r\n" + pod.encode())
        await writer.drain()

    for port in (8265, 8443):
        api.serve(pod, port, http)


def get(port: int, timeout: float = 20) -> str:
    """Returns the last line of the whole HTTP answer; empty if the connection ends before."""
    with socket.create_connection(("127.0.0.1", port), timeout=timeout) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        answer = b""
        with contextlib.suppress(ConnectionResetError):
            while data := connection.recv(65536):
                answer += data
        return answer.decode().split("\r\n")[-1]


def pid(step: Forwards) -> int:
    (process,) = step.leftovers()
    return process.pid


def ends_within(number: int, within: float) -> bool:
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        if not processes.alive(number, processes.created(number)):
            return True
        time.sleep(0.01)
    return False


# --- the step ----------------------------------------------------------------------------


def test_up_starts_it_and_down_leaves_nothing(step: Forwards) -> None:
    assert step.check().condition is Condition.MISSING
    make(step)
    assert step.check().condition is Condition.READY
    assert [get(port.local) for port in step.ports] == ["head-1", "head-1"]
    first = pid(step)
    assert str(first) in step.check().detail
    assert {file.stat().st_mode & 0o777 for file in step.folder.iterdir()} == {0o600}
    make(step)
    assert pid(step) == first
    assert sum(file.stat().st_size for file in step.folder.glob("*.log")) < 1000
    for connection in psutil.Process(first).net_connections(kind="tcp"):
        assert connection.laddr.ip == "127.0.0.1"
    reported: list[str] = []
    step.undo(reported.append)
    assert reported == [f"ending process {first}"]
    assert list(step.folder.iterdir()) == []
    assert not processes.alive(first, processes.created(first))
    step.undo(reported.append)
    assert len(reported) == 1


def test_it_works_from_any_folder(step: Forwards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make(step)
    assert get(step.ports[0].local) == "head-1"


def test_a_killed_one_is_started_again(running: Forwards) -> None:
    first = pid(running)
    os.kill(first, signal.SIGKILL)
    assert ends_within(first, 5)
    status = running.check()
    assert status.condition is Condition.MISSING
    assert f"process {first} has ended" in status.detail
    make(running)
    assert pid(running) != first


def test_one_whose_record_is_lost_is_replaced_and_not_left_behind(running: Forwards) -> None:
    first = pid(running)
    running.process.record.forget()
    assert running.check().condition is Condition.MISSING
    make(running)
    assert pid(running) != first


def test_another_process_that_has_its_number_is_not_taken_for_it_and_not_ended(step: Forwards) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as stranger:
        record = {"pid": stranger.pid, "created": processes.created(stranger.pid) - 60}
        step.process.record.file.write_text(json.dumps(record))
        assert step.check().detail.startswith(f"its process {stranger.pid} has ended")
        with pytest.raises(NotRunning):
            step.retarget()
        step.undo(nothing)
        assert stranger.poll() is None
        assert stranger.stdin is not None
        stranger.stdin.write(b"\n")
    assert stranger.returncode == 0


def test_other_ports_than_wanted_are_replaced(running: Forwards) -> None:
    first = pid(running)
    changed = replace(running, ports=(replace(running.ports[0], pod=8443), running.ports[1]))
    status = changed.check()
    assert status.condition is Condition.MISSING
    assert "something else than wanted" in status.detail
    make(changed)
    assert pid(changed) != first


def test_a_port_that_leads_nowhere_is_not_ready(api: ScriptedApi, running: Forwards) -> None:
    del api.pods["head-1"].ports[8443]
    status = running.check()
    assert status.condition is Condition.PENDING
    assert f"port {running.ports[1].local} (workspace)" in status.detail
    api.pods.clear()
    status = running.check()
    assert status.condition is Condition.PENDING
    assert "nothing that answers within 2 s" in status.detail


@pytest.mark.parametrize(
    ("right", "minor"),
    [("list pods", "34"), ("get pods/portforward", "34"), ("create pods/portforward", "35+")],
)
def test_a_right_that_is_lacking_is_said_and_not_waited_for(
    api: ScriptedApi, step: Forwards, right: str, minor: str
) -> None:
    api.lacking, api.minor = {right}, minor
    api.pods.clear()
    began = time.monotonic()
    with pytest.raises(Forbidden, match=f"{right} in namespace ns"):
        make(step)
    assert time.monotonic() - began < 10


def test_a_debug_adapter_is_asked_in_its_own_language(api: ScriptedApi, step: Forwards) -> None:
    commands: list[str] = []

    async def adapter(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        (request,) = Decoder().feed(await reader.read(65536))
        commands.append(request["command"])
        writer.write(encode({"type": "response", "request_seq": request["seq"], "success": True}))
        await writer.drain()

    api.serve("head-1", 5678, adapter)
    relay = Forward("relay", free_ports()[0], 5678, speaks="dap")
    forwards = replace(step, ports=(relay,))
    make(forwards)
    status = forwards.check()
    assert status.condition is Condition.READY
    assert f"relay at tcp://127.0.0.1:{relay.local}" in status.detail
    assert set(commands) == {"initialize"}
    # One that speaks HTTP is no relay.
    api.pods["head-1"].ports[5678] = api.pods["head-1"].ports[8265]
    status = forwards.check()
    assert status.condition is Condition.PENDING
    assert f"port {relay.local} (relay) gets no answer of a debugger" in status.detail
    del api.pods["head-1"].ports[5678]
    assert forwards.check().condition is Condition.PENDING


def test_a_port_that_is_taken_is_named_with_its_holder_and_setting(step: Forwards) -> None:
    port = step.ports[1].local
    with (
        socket.create_server(("127.0.0.1", port)),
        pytest.raises(PortTaken, match=rf"port {port} is taken by .*pid {os.getpid()}") as caught,
    ):
        make(step)
    assert "INVOKE_RAYSIDE_WORKSPACE_PORT" in caught.value.hint
    assert step.leftovers() == []


def test_a_port_that_is_taken_at_the_last_moment_ends_the_process(step: Forwards) -> None:
    step.config_file.write_text(step.config_text)
    port = step.ports[1].local
    with socket.create_server(("127.0.0.1", port)):
        done = subprocess.run(
            step.command(),
            env=step.process.environment(),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
    assert done.returncode == PortTaken.exit_code
    assert f"port {port} (workspace) is taken by" in done.stderr
    assert f"(pid {os.getpid()})" in done.stderr
    assert "Traceback" not in done.stderr


# --- the process -------------------------------------------------------------------------


def test_fifty_at_once(api: ScriptedApi, running: Forwards) -> None:
    before = api.lists()
    with ThreadPoolExecutor(50) as pool:
        ports = [port.local for port in running.ports] * 25
        assert list(pool.map(get, ports)) == ["head-1"] * 50
    assert api.lists() == before


def test_nothing_is_asked_while_nobody_connects(api: ScriptedApi, running: Forwards) -> None:
    for port in running.ports:
        get(port.local)
    requests_before, process = len(api.requests), psutil.Process(pid(running))
    used = process.cpu_times()
    time.sleep(2)
    assert len(api.requests) == requests_before
    now = process.cpu_times()
    assert (now.user + now.system) - (used.user + used.system) < 0.05
    get(running.ports[0].local)
    assert len(api.requests) == requests_before + 1  # the tunnel alone: the pod is known


def test_a_pod_that_is_replaced_is_found_by_its_labels(api: ScriptedApi, running: Forwards) -> None:
    assert get(running.ports[0].local) == "head-1"
    api.pods["head-2"] = Pod()
    serve(api, "head-2")
    del api.pods["head-1"]
    assert [get(port.local) for port in running.ports] == ["head-2", "head-2"]


def test_who_comes_while_there_is_no_pod_waits_for_it(api: ScriptedApi, running: Forwards) -> None:
    old = api.pods.pop("head-1")
    answers: list[str] = []
    clients = [
        threading.Thread(target=lambda: answers.append(get(running.ports[0].local))) for _ in range(20)
    ]
    before = api.lists()
    for client in clients:
        client.start()
    time.sleep(1.5)
    assert answers == []
    # Twenty wait, and one asks: after 0.1 s, 0.2, 0.4, 0.8 and then every second.
    assert 2 <= api.lists() - before <= 8
    api.pods["head-3"] = old
    for client in clients:
        client.join(10)
    assert answers == ["head-1"] * 20


def test_who_waits_too_long_is_sent_away_and_the_port_stays_open(api: ScriptedApi, running: Forwards) -> None:
    old = api.pods.pop("head-1")
    began = time.monotonic()
    assert get(running.ports[0].local) == ""
    assert forwarder.PATIENCE - 0.5 < time.monotonic() - began < forwarder.PATIENCE + 15
    api.pods["head-1"] = old
    assert get(running.ports[0].local) == "head-1"


def test_an_api_that_goes_away_and_comes_back_is_used_again(api: ScriptedApi, running: Forwards) -> None:
    api.down()
    later = threading.Timer(1.5, api.up)
    later.start()
    assert get(running.ports[0].local) == "head-1"
    later.join()
    assert until(lambda: running.check().condition, lambda now: now is Condition.READY, 60) is Condition.READY


def test_a_cluster_that_was_made_anew_is_found_through_its_kubeconfig(
    api: ScriptedApi, running: Forwards, tmp_path: Path
) -> None:
    assert get(running.ports[0].local) == "head-1"
    folder = tmp_path / "other"
    folder.mkdir()
    with scripted_api(folder) as other:
        other.pods["head-9"] = other.pods.pop("head-1")
        serve(other, "head-9")
        api.kube.kubeconfig.write_text(other.kube.kubeconfig.read_text())
        api.down()
        assert get(running.ports[0].local) == "head-9"
        api.up()


def test_a_client_that_closes_its_half_still_gets_the_answer(api: ScriptedApi, running: Forwards) -> None:
    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(8)
        for _ in range(3):
            await asyncio.sleep(0.5)
            writer.write(b"a" * 1000)
        await writer.drain()

    api.serve("head-1", 8443, slow)
    with socket.create_connection(("127.0.0.1", running.ports[1].local), timeout=PATIENCE) as connection:
        connection.sendall(b"question")
        connection.shutdown(socket.SHUT_WR)
        answer = b""
        while data := connection.recv(65536):
            answer += data
    assert len(answer) == 3000


def test_a_client_that_has_gone_is_let_go_in_the_pod_too(api: ScriptedApi, running: Forwards) -> None:
    ended = threading.Event()

    async def patient(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        await reader.read()
        ended.set()

    api.serve("head-1", 8443, patient)
    with socket.create_connection(("127.0.0.1", running.ports[1].local), timeout=PATIENCE) as connection:
        assert connection.recv(5) == b"hello"
    assert ended.wait(forwarder.LINGER + 5)


def test_an_answer_that_breaks_off_is_not_taken_for_a_whole_one(api: ScriptedApi, running: Forwards) -> None:
    async def half(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"half")
        await reader.read()

    api.serve("head-1", 8443, half)
    with socket.create_connection(("127.0.0.1", running.ports[1].local), timeout=PATIENCE) as connection:
        assert connection.recv(4) == b"half"
        api.down()
        with pytest.raises(ConnectionResetError):
            connection.recv(1)
    api.up()


def test_twenty_megabytes_each_way(api: ScriptedApi, running: Forwards) -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()

    api.serve("head-1", 8443, echo)
    data = os.urandom(20 * 2**20)
    with socket.create_connection(("127.0.0.1", running.ports[1].local), timeout=PATIENCE) as connection:
        sender = threading.Thread(target=connection.sendall, args=(data,))
        sender.start()
        received = bytearray()
        while len(received) < len(data):
            received += connection.recv(2**20)
        sender.join()
    assert bytes(received) == data


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_soon_with_connections_open(
    api: ScriptedApi, running: Forwards, number: signal.Signals
) -> None:
    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(bytes(65536))
            await writer.drain()

    api.serve("head-1", 8443, endless)
    with contextlib.ExitStack() as stack:
        for _ in range(10):
            address = ("127.0.0.1", running.ports[1].local)
            connection = stack.enter_context(socket.create_connection(address, timeout=PATIENCE))
            connection.recv(1)
        process = psutil.Process(pid(running))
        process.send_signal(number)
        # Of itself, however long the connections would last.
        assert ends_within(process.pid, 5.0)
    assert "Traceback" not in running.log.read_text()


def test_it_is_pointed_at_another_pod_while_it_runs(api: ScriptedApi, running: Forwards) -> None:
    api.pods["job-head"] = Pod(labels=OTHER)
    serve(api, "job-head")

    async def patient(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        await reader.read()

    api.serve("head-1", 8443, patient)
    first = pid(running)
    with socket.create_connection(("127.0.0.1", running.ports[1].local), timeout=PATIENCE) as connection:
        assert connection.recv(5) == b"hello"
        replace(running, selector=OTHER).retarget()
        with contextlib.suppress(ConnectionResetError):
            assert connection.recv(1) == b""  # to the pod before: ended
    assert get(running.ports[0].local) == "job-head"
    assert pid(running) == first
    assert replace(running, selector=OTHER).check().condition is Condition.READY
    assert running.check().condition is Condition.MISSING


def test_who_comes_right_after_it_was_pointed_elsewhere_gets_the_new_pod(
    api: ScriptedApi, running: Forwards
) -> None:
    api.pods["job-head"] = Pod(labels=OTHER)
    serve(api, "job-head")
    for selector, name in [(OTHER, "job-head"), (SELECTOR, "head-1")] * 10:
        replace(running, selector=selector).retarget()
        assert get(running.ports[0].local) == name


def test_a_broken_config_is_said_and_the_old_one_kept(running: Forwards) -> None:
    running.config_file.write_text("{")
    os.kill(pid(running), signal.SIGHUP)
    deadline = time.monotonic() + 10
    while "is kept as it was" not in running.log.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert get(running.ports[0].local) == "head-1"


# --- in this process ---------------------------------------------------------------------


def test_a_forward_for_a_while_needs_no_process_and_leaves_no_thread(api: ScriptedApi) -> None:
    api.pods["job-head"] = Pod(labels=OTHER)
    serve(api, "job-head")
    before = set(threading.enumerate())
    with forwarded(api.kube, OTHER, 8265) as port:
        assert [get(port), get(port)] == ["job-head", "job-head"]
    assert set(threading.enumerate()) == before
    with pytest.raises(ConnectionRefusedError):
        get(port)


def test_the_document_is_what_the_process_reads(api: ScriptedApi, tmp_path: Path) -> None:
    """The process gets nothing but the file: no environment of ours, another folder, an ephemeral port."""
    file = tmp_path / "config.json"
    port = free_ports()[0]
    file.write_text(document(api.kube, SELECTOR, [Forward("dashboard", port, 8265)]))
    words = [sys.executable, "-m", "bootstrap.kube.forwarder", str(file)]
    with subprocess.Popen(words, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert f"forwarding {port} to 8265 (dashboard)" in process.stderr.readline()
        assert get(port) == "head-1"
        process.terminate()
    assert process.returncode == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="makes what only root, as Docker is, can make")
def test_a_port_that_is_this_users_alone_lets_in_nobody_else(step: Forwards) -> None:
    shared, own = (replace(port, own_clients=port.name == "workspace") for port in step.ports)
    make(replace(step, ports=(shared, own)))
    code = "import socket, sys; c = socket.create_connection(('127.0.0.1', int(sys.argv[1])))\n"
    code += "try:\n  c.sendall(b'GET / HTTP/1.1\\r\\n\\r\\n'); print(c.recv(99))\nexcept OSError: pass"
    for port, is_let_in in ((shared, True), (own, False)):
        stranger = subprocess.run(
            ["/usr/bin/python3", "-c", code, str(port.local)],
            user=65534,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert ("401 Unauthorized" in stranger.stdout) is is_let_in, stranger
        assert get(port.local) == "head-1"
