"""Tests the ports that lead to a host, with a real OpenSSH server: who gets in, and what when ssh ends."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from bootstrap.settings import ROOT
from rayside.errors import MissingProgram, SshFailed
from rayside.reach.programs import Ssh
from rayside.reach.supervisor import Forward, document, forwarded
from rayside.system.processes import alive
from rayside.waiting import until
from tests.integration.conftest import free_ports
from tests.integration.sshd import HOST, Sshd, sshd
from tests.patience import PATIENCE

pytestmark = pytest.mark.gate

STRANGER = 65534


@pytest.fixture(scope="module")
def server() -> Iterator[Sshd]:
    with sshd() as running:
        yield running


@pytest.fixture(autouse=True)
def path(server: Sshd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", server.environment["PATH"])


@pytest.fixture
def echo() -> Iterator[int]:
    """Provides a port of the host that sends back what it gets."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:
                    return
                with client:
                    client.sendall(client.recv(100))

        threading.Thread(target=serve, daemon=True).start()
        yield int(listener.getsockname()[1])
        listener.shutdown(socket.SHUT_RDWR)


def answer(port: int) -> bytes:
    """Returns what comes back through the port; empty where it leads nowhere."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as client:
            client.sendall(b"hello")
            return client.recv(100)
    except OSError:
        return b""


@pytest.fixture
def process(echo: int, tmp_path: Path) -> Iterator[tuple[psutil.Process, int]]:
    """Provides the process that forwards, and its port."""
    (local,) = free_ports(1)
    file = tmp_path / "forward.json"
    file.write_text(document(Ssh(HOST), [Forward("dashboard", local, echo, own_clients=True)]))
    command = [sys.executable, "-m", "rayside.reach.supervisor", str(file)]
    with (tmp_path / "log").open("wb") as log, subprocess.Popen(command, cwd=ROOT, stderr=log) as started:
        assert until(lambda: answer(local) == b"hello", bool, 60), (tmp_path / "log").read_text()
        yield psutil.Process(started.pid), local
        if started.poll() is None:
            started.terminate()


def test_a_port_leads_to_the_host_meanwhile_and_nothing_is_left(echo: int) -> None:
    with forwarded(Ssh(HOST), echo, at_once=True) as port:
        assert answer(port) == b"hello"
        (ssh,) = (child for child in psutil.Process().children() if child.name() == "ssh")
    assert not ssh.is_running()
    assert answer(port) == b""


def test_a_host_that_is_none_is_said_in_sshs_words() -> None:
    nowhere = forwarded(Ssh("no-such-host.invalid"), 1, at_once=True)
    with pytest.raises(SshFailed, match="no-such-host") as raised, nowhere:
        pass
    assert "ssh -o BatchMode=yes no-such-host.invalid true" in raised.value.hint


def test_a_machine_without_ssh_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingProgram, match="ssh is not on this machine"), forwarded(Ssh(HOST), 1):
        pass


def test_when_ssh_ends_the_port_stays_ours_and_leads_there_again(
    process: tuple[psutil.Process, int],
) -> None:
    supervisor, port = process
    (ssh,) = supervisor.children()
    ssh.kill()
    with pytest.raises(OSError, match="in use"), socket.create_server(("127.0.0.1", port)):
        pass
    assert until(lambda: answer(port) == b"hello", bool, 60)
    assert supervisor.children() != [ssh]


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel ends it there alone")
def test_ssh_does_not_outlive_a_supervisor_that_is_killed(process: tuple[psutil.Process, int]) -> None:
    supervisor, _ = process
    (ssh,) = supervisor.children()
    supervisor.send_signal(signal.SIGKILL)
    began = ssh.create_time()
    assert until(lambda: not alive(ssh.pid, began), bool, PATIENCE)


@pytest.mark.skipif(os.geteuid() != 0, reason="makes what only root, as Docker is, can make")
def test_another_user_of_this_machine_is_sent_away(process: tuple[psutil.Process, int]) -> None:
    _, port = process
    connects = f"import socket; client = socket.create_connection(('127.0.0.1', {port}))"
    code = f"{connects}; client.sendall(b'hello'); print(client.recv(9))"
    done = subprocess.run(
        ["/usr/bin/python3", "-c", code],
        user=STRANGER,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert "hello" not in done.stdout, done.stdout
    assert answer(port) == b"hello"
