"""Tests that Ray's token goes to no other user's program, whatever port it holds, and to no proxy."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from bootstrap.instance import configured
from bootstrap.kube.api import Kube
from rayside import loopback
from rayside.dap.client import Client
from rayside.dap.one_request import ask
from rayside.errors import ClusterUnreachable, StrangerListens
from rayside.event_loop import background_loop
from rayside.own_folder import make_own
from rayside.ray import jobs
from rayside.ray.state import Dashboard
from rayside.system import processes
from tests.http_servers import answering, says
from tests.integration.conftest import Rayside, apart, free_ports
from tests.targets import local_target

pytestmark = pytest.mark.gate

STRANGER = 65534
TOKEN = "a-token-that-nobody-else-may-have"
as_root = pytest.mark.skipif(os.getuid() != 0, reason="becomes another user, which only root may")

# Listens as another user, believes everything, and writes down what it is sent.
LISTEN = """
import os, socket, sys, threading
os.setgid(int(sys.argv[1])); os.setuid(int(sys.argv[1]))
server = socket.create_server(("127.0.0.1", int(sys.argv[2])), backlog=50)
print("listening", flush=True)
def take(connection):
    while data := connection.recv(65536):
        sys.stdout.buffer.write(data); sys.stdout.flush()
        connection.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\n{}")
while True:
    threading.Thread(target=take, args=server.accept()[:1], daemon=True).start()
"""


@contextlib.contextmanager
def stranger(port: int) -> Iterator[Callable[[], str]]:
    """Runs another user's program on that port; its function returns, after the end, all that it was sent."""
    with tempfile.TemporaryFile() as output:
        command = [sys.executable, "-I", "-c", LISTEN, str(STRANGER), str(port)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"listening\n"
            copying = threading.Thread(target=lambda: output.write(process.stdout.read()))  # type: ignore[union-attr]
            copying.start()

            def sent() -> str:
                process.kill()
                copying.join()
                output.seek(0)
                return output.read().decode(errors="replace")

            try:
                yield sent
            finally:
                process.kill()
                copying.join()


ROWS: dict[str, Any] = {"data": {"result": {"result": []}}}


@contextlib.contextmanager
def recording(port: int = 0) -> Iterator[tuple[int, list[str]]]:
    """Plays a dashboard, or a proxy, and yields its port and the requests to it."""
    requests: list[str] = []

    def record(request: BaseHTTPRequestHandler) -> None:
        requests.append(f"{request.requestline}\n{request.headers}")
        answers = {"/api/version": {"ray_version": "0"}, "/api/jobs/": []}
        says(request, 200, json.dumps(answers.get(request.path, ROWS)).encode())

    with answering(record, port) as at:
        yield at, requests


@pytest.fixture
def folders() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="rs-", dir="/tmp") as folder:
        yield Path(folder, "s")


def cluster(base: Path, target: str) -> Rayside:
    """Makes what a cluster of that target leaves on this machine, with free ports."""
    rayside = Rayside(apart(base, target=target, workspace=False, name=f"rs-{os.getpid()}"))
    instance = configured(rayside.settings, target)
    make_own(instance.folder)
    instance.record.write_text(instance.document())
    instance.token_file.write_text(TOKEN)
    if target == "local":
        this_process = {"pid": os.getpid(), "created": processes.created(os.getpid())}
        record = {**this_process, "spec": rayside.target.head.spec}
        (instance.folder / "ray.json").write_text(json.dumps(record))
    return rayside


VERBS = (
    ["status"],
    ["submit"],
    ["breakpoints"],
    ["debug", "--json", "--timeout", "5"],
    ["debug"],
    ["open", "--no-browser"],
    ["logs"],
    ["logs", "--follow"],
    ["doctor"],
)


@as_root
@pytest.mark.parametrize("target", ["local", "kind"])
def test_no_verb_sends_a_byte_of_the_token_to_a_stranger_at_the_dashboards_port(
    folders: Path, target: str
) -> None:
    rayside = cluster(folders, target)
    with stranger(rayside.settings.dashboard_port) as sent:
        for words in VERBS:
            done = rayside.run(*words, timeout=60)
            output = done.stdout + done.stderr
            assert "Traceback" not in output
            if words[0] not in ("status", "doctor"):
                assert done.returncode == 4, output
                assert (
                    f"error[stranger-listens]: port {rayside.settings.dashboard_port} is held by" in output
                    or ('"id": "stranger-listens"' in output)
                )
        received = sent()
    # A probe whether a forward answers, which has no token, is all that there may be.
    assert TOKEN not in received
    assert "Bearer" not in received


@as_root
@pytest.mark.parametrize(
    "words", [["breakpoints"], ["debug", "--json", "--timeout", "5"], ["debug"]], ids=" ".join
)
def test_no_verb_sends_a_byte_to_a_stranger_at_the_relays_port(folders: Path, words: list[str]) -> None:
    rayside = cluster(folders, "kind")
    settings = rayside.settings
    with recording(settings.dashboard_port), stranger(settings.relay_port) as sent:
        done = rayside.run(*words, timeout=60)
        assert sent() == ""
    assert done.returncode == 4, done.stdout + done.stderr
    assert "stranger-listens" in done.stdout + done.stderr


@as_root
def test_a_job_is_not_sent_to_a_stranger_either(folders: Path, tmp_path: Path) -> None:
    rayside = cluster(folders, "local")
    target = rayside.target
    job = jobs.Submission("true", str(tmp_path), (), {})
    with stranger(rayside.settings.dashboard_port) as sent:
        with pytest.raises(StrangerListens):
            target.access.submit(job, "a-job")
        assert sent() == ""


# --- who is behind a connection, without being root --------------------------------------


@pytest.fixture
def as_another_user(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Makes what this process listens for, from the call on, look like another user's."""
    own_uid = os.geteuid()
    return lambda: monkeypatch.setattr(os, "geteuid", lambda: own_uid + 1)


@pytest.fixture(params=["asked", "by its table"])
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes Linux tell whose a socket is in one of its two ways."""
    if request.param == "by its table":
        monkeypatch.setattr(loopback, "_ask_kernel", _untold)
    else:
        monkeypatch.setattr(loopback, "_sockets", _unread)


def _untold(*_: object) -> tuple[int, int, int]:
    raise FileNotFoundError


def _unread() -> list[str]:
    pytest.fail("the table of all sockets was read")


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
@pytest.mark.parametrize("accepted", [False, True])
def test_the_owner_of_a_connection_is_known_before_it_is_accepted_and_after(
    as_another_user: Callable[[], None], family: socket.AddressFamily, accepted: bool
) -> None:
    address = "127.0.0.1" if family == socket.AF_INET else "::1"
    with (
        socket.create_server((address, 0), family=family) as server,
        socket.create_connection((address, server.getsockname()[1])) as connection,
        server.accept()[0] if accepted else contextlib.nullcontext(),
    ):
        loopback.require_own(connection)
        own_uid = os.geteuid()
        as_another_user()
        with pytest.raises(StrangerListens, match=f"port {server.getsockname()[1]} "):
            loopback.require_own(connection)
        loopback.require_own(connection, trusted=[own_uid])


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("dual", [False, True], ids=["every IPv4 address", "every address"])
def test_who_listens_on_every_address_is_known_too(as_another_user: Callable[[], None], dual: bool) -> None:
    server = (
        socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
        if dual
        else socket.create_server(("0.0.0.0", 0))
    )
    with server, socket.create_connection(("127.0.0.1", server.getsockname()[1])) as connection:
        loopback.require_own(connection)
        as_another_user()
        with pytest.raises(StrangerListens):
            loopback.require_own(connection)


@pytest.mark.usefixtures("kernel")
def test_a_connection_whose_listener_has_gone_is_known_by_who_took_it() -> None:
    """The program that accepted the connection may have left the port to us meanwhile."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as connection:
            accepted_connection, _ = server.accept()
            server.close()
            with accepted_connection:
                ends = connection.getpeername(), connection.getsockname()
                owners = loopback._owners(*map(loopback._end, ends))
                assert owners == {os.geteuid()}


def test_where_the_system_does_not_tell_only_what_a_process_of_ours_listens_for_is_ours(
    as_another_user: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def untold() -> list[str]:
        raise FileNotFoundError

    monkeypatch.setattr(loopback, "_ask_kernel", _untold)
    monkeypatch.setattr(loopback, "_sockets", untold)
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as connection,
    ):
        loopback.require_own(connection)
        as_another_user()
        with pytest.raises(StrangerListens):
            loopback.require_own(connection)


def test_every_client_of_ours_asks_who_listens(as_another_user: Callable[[], None]) -> None:
    with recording() as (port, requests):
        dashboard = Dashboard(f"http://127.0.0.1:{port}", TOKEN)
        dashboard.version()
        as_another_user()
        # The one connection that is known already may be used on.
        for request in (Dashboard(dashboard.url, TOKEN).version, lambda: list(dashboard.follow("a-job"))):
            with pytest.raises(StrangerListens):
                request()
        with pytest.raises(StrangerListens):
            ask(port, "pausedTasks", {"token": TOKEN})
        with background_loop() as call, pytest.raises(StrangerListens):
            call(Client.connect("127.0.0.1", port))
        assert len(requests) == 1


# --- proxies -----------------------------------------------------------------------------


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Provides a proxy that the environment names for everything, and the requests to it."""
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with recording() as (port, requests):
        for name in ("http_proxy", "https_proxy", "all_proxy", "ws_proxy"):
            address = f"http://127.0.0.1:{port}"
            monkeypatch.setenv(name, address)
            monkeypatch.setenv(name.upper(), address)
        yield requests


def test_a_jobs_output_does_not_come_through_a_proxy(proxy: list[str]) -> None:
    from aiohttp import web

    tokens: list[str] = []

    async def tail(request: web.Request) -> web.WebSocketResponse:
        tokens.append(request.headers["Authorization"])
        stream = web.WebSocketResponse()
        await stream.prepare(request)
        await stream.send_str("pi is about 3\n")
        await stream.close()
        return stream

    (port,) = free_ports(1)
    with background_loop() as call:

        async def serve() -> web.AppRunner:
            application = web.Application()
            application.router.add_get("/api/jobs/a-job/logs/tail", tail)
            runner = web.AppRunner(application)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", port).start()
            return runner

        runner = call(serve())
        try:
            assert list(Dashboard(f"http://127.0.0.1:{port}", TOKEN).follow("a-job")) == ["pi is about 3\n"]
        finally:
            call(runner.cleanup())
    assert tokens == [f"Bearer {TOKEN}"]
    assert proxy == []


def test_a_job_is_submitted_without_a_proxy(proxy: list[str], folders: Path, tmp_path: Path) -> None:
    rayside = cluster(folders, "local")
    with recording(rayside.settings.dashboard_port) as (_, requests):
        target = rayside.target
        with contextlib.suppress(Exception):  # what it is answered is no dashboard's answer
            target.access.submit(jobs.Submission("true", str(tmp_path), (), {}), "a-job")
        assert any("/api/" in request for request in requests)
    assert proxy == []


def test_kubernetes_on_this_machine_is_not_asked_through_a_proxy(proxy: list[str], tmp_path: Path) -> None:
    (port,) = free_ports(1)
    kubeconfig = tmp_path / "kubeconfig"
    document = {
        "clusters": [{"name": "c", "cluster": {"server": f"https://127.0.0.1:{port}"}}],
        "users": [{"name": "u", "user": {"token": TOKEN}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    }
    kubeconfig.write_text(json.dumps(document))
    with pytest.raises(ClusterUnreachable):
        Kube(kubeconfig, "c").get("/api/v1/nodes")
    assert proxy == []


def test_what_the_users_environment_excludes_from_its_proxy_stays_excluded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("no_proxy", "intern.example")
    head = local_target().head
    assert head.environment()["no_proxy"].split(",") == ["intern.example", "127.0.0.1", "localhost"]
