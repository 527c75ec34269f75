"""Tests the ports that kubectl leads to pods, and their step, when something around them really fails."""

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
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil
import pytest

from bootstrap.kube.api import Kube
from bootstrap.steps.forwards import Forwards
from rayside.connection.heads import forbidden
from rayside.dap.framing import Decoder, encode
from rayside.errors import ClusterUnreachable, Forbidden, NotRunning, PortTaken
from rayside.event_loop import background_loop
from rayside.reach import run, supervisor
from rayside.reach.programs import Kubectl
from rayside.reach.supervisor import Forward, Port, forwarded
from rayside.steps.graph import up
from rayside.steps.step import Condition, Step
from rayside.system import processes
from rayside.system.shell import Shell
from rayside.waiting import until
from tests.integration.conftest import free_ports
from tests.integration.scripted_kubectl import SELECTOR, Pod, ScriptedKubectl, scripted_kubectl
from tests.patience import PATIENCE

# The process is meant to outlive the object that started it.
pytestmark = [
    pytest.mark.gate,
    pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning"),
]

OTHER = "ray.io/originated-from-cr-name=job,ray.io/node-type=head"


class Quiet:
    """Progress that nobody looks at."""

    def started(self, name: str, title: str) -> None: ...
    def note(self, name: str, text: str) -> None: ...
    def finished(self, name: str, title: str, outcome: str, detail: str) -> None: ...


@dataclass(frozen=True)
class Rights(Kube):
    """An API that is asked for nothing but rights."""

    lacking: set[str] = field(default_factory=set)

    def require(self, verb: str, resource: str) -> None:
        if f"{verb} {resource}" in self.lacking:
            raise forbidden(verb, resource, "", self.namespace)


def nothing(text: str) -> None: ...


@pytest.fixture
def kubectl(tmp_path: Path) -> Iterator[ScriptedKubectl]:
    with scripted_kubectl(tmp_path / "kubectl") as scripted:
        serve(scripted, "head-1")
        yield scripted


@pytest.fixture
def step(kubectl: ScriptedKubectl, tmp_path: Path) -> Iterator[Forwards]:
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    dashboard, workspace = free_ports()
    ports = (Forward("dashboard", dashboard, 8265), Forward("workspace", workspace, 8443))
    kube = Rights(kubectl.kubeconfig, "scripted", "ns")
    forwards = Forwards(Shell(), kube, folder, ports, SELECTOR, kubectl.program)
    yield forwards
    forwards.undo(nothing)
    assert forwards.leftovers() == []


@pytest.fixture
def running(step: Forwards) -> Forwards:
    make(step)
    return step


def make(step: Step) -> None:
    up([replace(step, needs=())], Quiet())  # type: ignore[type-var]


def serve(kubectl: ScriptedKubectl, pod: str) -> None:
    """Serves real HTTP behind 8265 and 8443 of a pod; it answers with the pod's name."""

    async def http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 401 Unauthorized\r\nConnection: close\r\n\r\n" + pod.encode())
        await writer.drain()

    for port in (8265, 8443):
        kubectl.serve(pod, port, http)


def replaced(kubectl: ScriptedKubectl, pod: str, by: str) -> None:
    kubectl.pods[by] = Pod(created="2026-01-01T00:00:01Z")
    serve(kubectl, by)
    del kubectl.pods[pod]
    kubectl.tell()


def get(port: int, timeout: float = 20) -> str:
    """Returns the last line of the whole HTTP answer; empty if the connection ends before."""
    with socket.create_connection(("127.0.0.1", port), timeout=timeout) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        answer = b""
        with contextlib.suppress(ConnectionResetError):
            while data := connection.recv(65536):
                answer += data
        return answer.decode().split("\r\n")[-1]


def get_soon(port: int) -> str:
    """Returns the answer of the first request that gets one."""
    return until(lambda: get(port), bool, PATIENCE)


def pid(step: Forwards) -> int:
    """Returns the supervisor's pid."""
    (number,) = (process.pid for process in step.leftovers() if process.pid == step.process.pid)
    return number


def ends_within(number: int, within: float) -> bool:
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        if not processes.alive(number, processes.created(number)):
            return True
        time.sleep(0.01)
    return False


# --- the step ----------------------------------------------------------------------------


def test_up_starts_it_and_down_leaves_nothing(
    step: Forwards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # It works from any folder.
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
    both = step.leftovers()
    assert len(both) == 3  # it, and a kubectl for each port
    for process in both:
        for connection in process.net_connections(kind="tcp"):
            assert connection.laddr.ip == "127.0.0.1"
    reported: list[str] = []
    step.undo(reported.append)
    assert [text.split()[:2] for text in reported] == [["ending", "process"]]
    assert list(step.folder.iterdir()) == []
    assert not [process for process in both if process.is_running()]
    step.undo(reported.append)
    assert len(reported) == 1


def test_a_killed_one_is_started_again(running: Forwards) -> None:
    first = pid(running)
    programs = psutil.Process(first).children()
    os.kill(first, signal.SIGKILL)
    assert ends_within(first, 5)
    assert sys.platform != "linux" or psutil.wait_procs(programs, PATIENCE)[1] == []
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
    changed = replace(running, ports=(replace(running.ports[0], remote=8443), running.ports[1]))
    status = changed.check()
    assert status.condition is Condition.MISSING
    assert "something else than wanted" in status.detail
    make(changed)
    assert pid(changed) != first


def test_a_port_that_leads_nowhere_is_not_ready(kubectl: ScriptedKubectl, running: Forwards) -> None:
    del kubectl.pods["head-1"].ports[8443]
    kubectl.tell()
    status = running.check()
    assert status.condition is Condition.PENDING
    assert f"port {running.ports[1].local} (workspace) is not open yet" in status.detail
    # The other one has a program of its own, and stays.
    assert get(running.ports[0].local) == "head-1"
    kubectl.pods.clear()
    kubectl.tell()
    status = until(running.check, lambda status: "answers within 5 s" in status.detail, PATIENCE)
    assert status.condition is Condition.PENDING


@pytest.mark.parametrize(
    "right", ["list pods", "get pods", "get pods/portforward", "create pods/portforward"]
)
def test_a_right_that_is_lacking_is_said_and_not_waited_for(
    kubectl: ScriptedKubectl, step: Forwards, right: str
) -> None:
    kubectl.pods.clear()
    kubectl.tell()
    lacking = replace(step, kube=Rights(kubectl.kubeconfig, "scripted", "ns", {right}))
    began = time.monotonic()
    with pytest.raises(Forbidden, match=f"{right} in namespace ns"):
        make(lacking)
    assert time.monotonic() - began < 10


def test_a_debug_adapter_is_asked_in_its_own_language(kubectl: ScriptedKubectl, step: Forwards) -> None:
    commands: list[str] = []

    async def adapter(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        (request,) = Decoder().feed(await reader.read(65536))
        commands.append(request["command"])
        writer.write(encode({"type": "response", "request_seq": request["seq"], "success": True}))
        await writer.drain()

    kubectl.serve("head-1", 5678, adapter)
    relay = Forward("relay", free_ports()[0], 5678, speaks="dap")
    forwards = replace(step, ports=(relay,))
    make(forwards)
    status = forwards.check()
    assert status.condition is Condition.READY
    assert f"relay at tcp://127.0.0.1:{relay.local}" in status.detail
    assert set(commands) == {"initialize"}
    # One that speaks HTTP is no relay.
    kubectl.pods["head-1"].ports[5678] = kubectl.pods["head-1"].ports[8265]
    kubectl.tell()
    status = forwards.check()
    assert status.condition is Condition.PENDING
    assert f"port {relay.local} (relay) gets no answer of a debugger" in status.detail
    del kubectl.pods["head-1"].ports[5678]
    kubectl.tell()
    assert forwards.check().condition is Condition.PENDING


def test_a_refusal_to_initialize_is_no_answer(kubectl: ScriptedKubectl, step: Forwards) -> None:
    """As what keeps an editor's connection refuses, while it looks for a way to the relay."""

    answer: dict[str, object] = {"type": "response", "success": True}

    async def adapter(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        (request,) = Decoder().feed(await reader.read(65536))
        writer.write(encode({**answer, "request_seq": request["seq"]}))
        await writer.drain()

    kubectl.serve("head-1", 5678, adapter)
    relay = Forward("relay", free_ports()[0], 5678, speaks="dap")
    forwards = replace(step, ports=(relay,))
    make(forwards)
    answer |= {"success": False, "message": "the way is lost"}
    status = forwards.check()
    assert status.condition is Condition.PENDING
    assert f"port {relay.local} (relay) refuses initialize: the way is lost" in status.detail


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


def test_fifty_at_once_take_one_program_for_each_port(kubectl: ScriptedKubectl, running: Forwards) -> None:
    with ThreadPoolExecutor(50) as pool:
        ports = [port.local for port in running.ports] * 25
        assert list(pool.map(get, ports)) == ["head-1"] * 50
    assert len(kubectl.pids) == 2


def test_nothing_is_asked_while_nobody_connects(kubectl: ScriptedKubectl, running: Forwards) -> None:
    kubectl.refusal = "no more for now"
    kubectl.tell()
    searches, process = len(kubectl.lines("searches")), psutil.Process(pid(running))
    for program in process.children():
        program.kill()
    psutil.wait_procs(process.children(), PATIENCE)
    used = process.cpu_times()
    time.sleep(2)
    assert len(kubectl.lines("searches")) == searches
    now = process.cpu_times()
    assert (now.user + now.system) - (used.user + used.system) < 0.05


def test_a_program_that_was_killed_is_started_again_and_the_port_stays_ours(
    kubectl: ScriptedKubectl, running: Forwards
) -> None:
    port, first = running.ports[0].local, kubectl.pids
    for number in first:
        os.kill(number, signal.SIGKILL)
    with pytest.raises(OSError, match="in use"), socket.create_server(("127.0.0.1", port)):
        pass
    assert get_soon(port) == "head-1"
    assert len(kubectl.pids) == len(first) + 1


async def test_a_program_that_ends_is_noticed_at_once_and_takes_what_it_started_with_it(
    tmp_path: Path,
) -> None:
    """What it started, as a plugin or a ProxyCommand, has its streams still, and ignores SIGTERM."""
    program, child = tmp_path / "kubectl", tmp_path / "child"
    program.write_text(f"#!/bin/sh\ntrap '' TERM\nsleep 600 & echo $! > {child}\nexit 3\n")
    program.chmod(0o755)
    said: list[str] = []
    kubectl = Kubectl(str(program), "/none", "c", "ns", SELECTOR)
    began = time.monotonic()
    each = run.Run(kubectl, 80, 0.0, said.append)
    assert not await each.listens()
    await each.task
    assert time.monotonic() - began < run.LET_IN
    assert ends_within(int(child.read_text()), PATIENCE)


def test_a_pod_that_is_replaced_is_found_by_its_labels(kubectl: ScriptedKubectl, running: Forwards) -> None:
    assert get(running.ports[0].local) == "head-1"
    replaced(kubectl, "head-1", by="head-2")
    # kubectl learns by a connection that fails that its pod has gone.
    assert [get_soon(port.local) for port in running.ports] == ["head-2", "head-2"]
    assert running.check().condition is Condition.READY


def test_who_comes_while_there_is_no_pod_waits_for_it(kubectl: ScriptedKubectl, running: Forwards) -> None:
    old, port = kubectl.pods.pop("head-1"), running.ports[0].local
    kubectl.tell()
    assert get(port) == ""
    before = len(kubectl.lines("searches"))
    answers: list[str] = []
    clients = [threading.Thread(target=lambda: answers.append(get(port))) for _ in range(20)]
    for client in clients:
        client.start()
    until(lambda: len(kubectl.lines("searches")) - before, lambda count: count >= 2, PATIENCE)
    assert answers == []
    # Twenty wait, and one program asks for them.
    assert len(kubectl.lines("searches")) - before < 8
    kubectl.pods["head-3"] = old
    kubectl.tell()
    for client in clients:
        client.join(PATIENCE)
    assert answers == ["head-1"] * 20


def test_an_api_that_refuses_for_a_while_is_used_again(kubectl: ScriptedKubectl, running: Forwards) -> None:
    kubectl.down()
    kubectl.refusal = "Unable to connect: \x1b[31mbearer abcdefgh12345678\x1b[0m" + "x" * 5000
    kubectl.tell()
    assert running.check().condition is Condition.PENDING

    def told() -> int:
        for port in running.ports:
            socket.create_connection(("127.0.0.1", port.local), timeout=PATIENCE).close()
        return running.log.read_text().count("Unable to connect:")

    assert until(told, lambda count: count == len(running.ports), PATIENCE) == len(running.ports)
    # What it printed is in the log: once for each port, in short lines, without controls and secrets.
    until(lambda: kubectl.lines("attempts"), lambda lines: len(lines) > 6, PATIENCE)
    assert told() == len(running.ports)
    said = running.log.read_text()
    assert "\x1b" not in said
    assert "abcdefgh12345678" not in said
    assert max(map(len, said.splitlines())) < 400
    kubectl.up()
    assert until(lambda: running.check().condition, lambda now: now is Condition.READY, 60) is Condition.READY


def test_a_client_that_closes_its_half_still_gets_the_answer(
    kubectl: ScriptedKubectl, running: Forwards
) -> None:
    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.read() == b"question"
        for _ in range(3):
            await asyncio.sleep(0.2)
            writer.write(b"a" * 1000)
        await writer.drain()

    kubectl.serve("head-1", 8443, slow)
    with socket.create_connection(("127.0.0.1", running.ports[1].local), timeout=PATIENCE) as connection:
        connection.sendall(b"question")
        connection.shutdown(socket.SHUT_WR)
        answer = b""
        while data := connection.recv(65536):
            answer += data
    assert len(answer) == 3000


def test_a_client_that_has_gone_is_let_go_in_the_pod_and_no_other_with_it(
    kubectl: ScriptedKubectl, running: Forwards
) -> None:
    ended = threading.Event()

    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        await reader.read()
        ended.set()
        with contextlib.suppress(ConnectionError):
            for _ in range(20):
                writer.write(bytes(65536))
                await writer.drain()

    kubectl.serve("head-1", 8443, endless)
    address, programs = ("127.0.0.1", running.ports[1].local), len(kubectl.pids)
    with socket.create_connection(address, timeout=PATIENCE) as stays:
        assert stays.recv(5) == b"hello"
        with socket.create_connection(address, timeout=PATIENCE) as connection:
            assert connection.recv(5) == b"hello"
        assert ended.wait(PATIENCE)
        stays.settimeout(0.5)
        with pytest.raises(TimeoutError):
            stays.recv(1)
    assert len(kubectl.pids) == programs


def test_twenty_megabytes_each_way(kubectl: ScriptedKubectl, running: Forwards) -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()

    kubectl.serve("head-1", 8443, echo)
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
def test_it_ends_soon_with_connections_open_and_takes_its_programs_along(
    kubectl: ScriptedKubectl, running: Forwards, number: signal.Signals
) -> None:
    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(bytes(65536))
            await writer.drain()

    kubectl.serve("head-1", 8443, endless)
    with contextlib.ExitStack() as stack:
        for _ in range(10):
            address = ("127.0.0.1", running.ports[1].local)
            connection = stack.enter_context(socket.create_connection(address, timeout=PATIENCE))
            connection.recv(1)
        process = psutil.Process(pid(running))
        programs = process.children()
        process.send_signal(number)
        # Of itself, however long the connections would last.
        assert ends_within(process.pid, 5.0)
        assert len(programs) == 2
        assert not [program for program in programs if program.is_running()]
    assert "Traceback" not in running.log.read_text()


def test_it_is_pointed_at_another_pod_while_it_runs(kubectl: ScriptedKubectl, running: Forwards) -> None:
    kubectl.pods["job-head"] = Pod(labels=OTHER)
    serve(kubectl, "job-head")

    async def patient(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        await reader.read()

    kubectl.serve("head-1", 8443, patient)
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


def test_a_broken_config_is_said_and_the_old_one_kept(running: Forwards) -> None:
    running.config_file.write_text("{")
    os.kill(pid(running), signal.SIGHUP)
    assert until(running.log.read_text, lambda text: "is kept as it was" in text, PATIENCE)
    assert get(running.ports[0].local) == "head-1"


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


# --- in this process ---------------------------------------------------------------------


@contextlib.contextmanager
def port_to(program: Kubectl, remote: int = 8265) -> Iterator[int]:
    with background_loop() as call:

        async def made() -> Port:
            return Port(Forward("dashboard", 0, remote), program)

        port = call(made())
        yield call(port.start())
        call(port.stop())


def test_who_waits_too_long_is_sent_away_and_the_port_stays_open(
    kubectl: ScriptedKubectl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "PATIENCE", 0.5)
    old = kubectl.pods.pop("head-1")
    kubectl.tell()
    with port_to(kubectl.to()) as port:
        assert get(port) == ""
        kubectl.pods["head-1"] = old
        kubectl.tell()
        monkeypatch.setattr(supervisor, "PATIENCE", PATIENCE)
        assert get(port) == "head-1"


def test_one_that_nobody_uses_ends_so_that_a_pod_which_was_replaced_is_found_at_once(
    kubectl: ScriptedKubectl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "IDLE", 0.1)
    with port_to(kubectl.to()) as port:
        assert get(port) == "head-1"
        (number,) = kubectl.pids
        assert until(lambda: psutil.pid_exists(number), lambda exists: not exists, PATIENCE) is False
        replaced(kubectl, "head-1", by="head-2")
        assert get(port) == "head-2"


def test_one_that_leads_nowhere_any_more_is_started_again_once_somebody_has_waited_in_vain(
    kubectl: ScriptedKubectl,
) -> None:
    with port_to(kubectl.to()) as port:
        kubectl.mute = True
        kubectl.tell()
        with socket.create_connection(("127.0.0.1", port), timeout=2) as client:
            client.sendall(b"GET / HTTP/1.1\r\n\r\n")
            with pytest.raises(TimeoutError):
                client.recv(1)
        kubectl.mute = False
        kubectl.tell()
        assert until(lambda: get(port), bool, PATIENCE) == "head-1"
        assert len(kubectl.pids) == 2


@pytest.mark.skipif(os.geteuid() != 0, reason="makes what only root, as Docker is, can make")
def test_another_users_program_at_kubectls_port_is_sent_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "PATIENCE", 2.0)
    listens = (
        "import socket; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True)"
    )
    code = f"{listens}\nwhile True: print(s.accept()[0].recv(99), flush=True)"
    words = ["/usr/bin/python3", "-c", code]
    with subprocess.Popen(words, user=65534, stdout=subprocess.PIPE, text=True) as stranger:
        assert stranger.stdout
        number = int(stranger.stdout.readline())
        program = tmp_path / "kubectl"
        program.write_text(
            f"#!/bin/sh\ncase \"$*\" in *port-forward*) echo 'Forwarding from 127.0.0.1:{number} -> 8265';"
            " exec sleep 60;; *) echo '2026 head-1 ';; esac\n"
        )
        program.chmod(0o755)
        with port_to(Kubectl(str(program), "x", "x", "x", SELECTOR)) as port:
            assert get(port) == ""
        stranger.terminate()
        assert set(stranger.stdout.read().splitlines()) <= {"b''"}


def test_a_forward_for_a_while_needs_no_process_and_leaves_nothing(kubectl: ScriptedKubectl) -> None:
    kubectl.pods["job-head"] = Pod(labels=OTHER)
    serve(kubectl, "job-head")
    before = set(threading.enumerate())
    with forwarded(kubectl.to(OTHER), 8265) as port:
        assert [get(port), get(port)] == ["job-head", "job-head"]
    assert {thread for thread in threading.enumerate() if "waitpid" not in thread.name} == before
    assert not psutil.Process().children()
    with pytest.raises(ConnectionRefusedError):
        get(port)


def test_a_forward_that_leads_nowhere_is_said_where_it_has_to_lead_at_once(kubectl: ScriptedKubectl) -> None:
    with pytest.raises(NotRunning, match="no pod a=b runs"), forwarded(kubectl.to("a=b"), 1, at_once=True):
        pass
    kubectl.refusal = "error: You must be logged in to the server (Unauthorized)"
    kubectl.tell()
    expected = pytest.raises(ClusterUnreachable, match="You must be logged in")
    with expected as caught, forwarded(kubectl.to(), 1, at_once=True):
        pass
    assert "kubeconfig --context scripted --namespace ns get pods -l" in caught.value.hint
