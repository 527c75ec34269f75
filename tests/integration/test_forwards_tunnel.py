"""Tunnels into pods: every byte, every end, every failure; a scripted API, real servers behind it."""

from __future__ import annotations

import asyncio
import hashlib
import os
import socket
import ssl
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import aiohttp
import pytest

from bootstrap.errors import ClusterUnreachable, DebuggerGone, NotRunning, PodFailed
from bootstrap.kube import tunnel
from bootstrap.kube.tunnel import (
    close_session,
    connect_through,
    open_session,
    running_pod,
    through_pod,
    to_pod_port,
)
from tests.integration.real_debuggee import TASK, RealJob
from tests.integration.scripted_api import SELECTOR, Pod, ScriptedApi, scripted_api

LARGE = 20 * 2**20


@pytest.fixture
def api(tmp_path: Path) -> Iterator[ScriptedApi]:
    with scripted_api(tmp_path) as one:
        yield one


def run(api: ScriptedApi, work: Callable[[aiohttp.ClientSession], Awaitable[None]]) -> None:
    """`work` with a session; no task may be left over by it."""

    async def whole() -> None:
        session = await open_session(api.kube)
        try:
            await asyncio.wait_for(work(session), 60)
        finally:
            await close_session(session)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert left == set()

    asyncio.run(whole())


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()


async def there_and_back(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, size: int) -> None:
    """Sends `size` random bytes while it reads them back, and compares."""
    data = os.urandom(2**20) * (size // 2**20)

    async def send() -> None:
        writer.write(data)
        await writer.drain()

    sending = asyncio.create_task(send())
    came = await reader.readexactly(len(data))
    await sending
    assert hashlib.sha256(came).digest() == hashlib.sha256(data).digest()


def test_twenty_megabytes_through_a_port_forward_and_back_are_the_same_bytes(api: ScriptedApi) -> None:
    api.serve("head-1", 8265, echo)

    async def work(session: aiohttp.ClientSession) -> None:
        async with to_pod_port(session, "ns", "head-1", 8265) as (reader, writer):
            await there_and_back(reader, writer, LARGE)

    run(api, work)


def test_twenty_megabytes_through_a_container_and_back_are_the_same_bytes(api: ScriptedApi) -> None:
    port = api.serve("head-1", 5000, echo)

    async def work(session: aiohttp.ClientSession) -> None:
        async with through_pod(session, "ns", "head-1", "ray-head", "127.0.0.1", port) as (reader, writer):
            await there_and_back(reader, writer, LARGE)

    run(api, work)


@pytest.mark.parametrize("through", [False, True])
def test_the_end_of_a_stream_goes_both_ways(api: ScriptedApi, through: bool) -> None:
    ended = asyncio.Queue[bytes]()

    async def hello(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        said = await reader.read()  # until we have closed
        await ended.put(said)

    async def bye(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"x" * 300_000)
        await writer.drain()

    ports = {"hello": api.serve("head-1", 1001, hello), "bye": api.serve("head-1", 1002, bye)}

    async def work(session: aiohttp.ClientSession) -> None:
        for port, name in ((1001, "hello"), (1002, "bye")):
            if through:
                streams = through_pod(session, "ns", "head-1", "ray-head", "127.0.0.1", ports[name])
            else:
                streams = to_pod_port(session, "ns", "head-1", port)
            async with streams as (reader, writer):
                if name == "hello":
                    assert await reader.readexactly(5) == b"hello"
                    writer.write(b"ciao")
                    await writer.drain()
                    await asyncio.sleep(0.2)
                else:
                    assert await reader.read(-1) == b"x" * 300_000

    run(api, work)
    assert api.call(asyncio.wait_for(ended.get(), 10)) == b"ciao"


def test_a_port_that_nothing_listens_on_is_a_clear_error(api: ScriptedApi) -> None:
    async def work(session: aiohttp.ClientSession) -> None:
        async with to_pod_port(session, "ns", "head-1", 9999) as (reader, _):
            with pytest.raises(ConnectionResetError, match=r"port 9999 of pod head-1 .*refused"):
                await reader.read()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            with pytest.raises(PodFailed, match="through pod head-1 can't be reached: Connection refused"):
                async with through_pod(
                    session, "ns", "head-1", "ray-head", "127.0.0.1", free.getsockname()[1]
                ):
                    raise AssertionError("nothing listens there")

    run(api, work)


def test_a_pod_and_a_container_that_are_gone_are_clear_errors(api: ScriptedApi) -> None:
    async def work(session: aiohttp.ClientSession) -> None:
        with pytest.raises(PodFailed, match="port 1 of pod head-9 can't be reached: there is no such pod"):
            async with to_pod_port(session, "ns", "head-9", 1):
                raise AssertionError("no such pod")
        with pytest.raises(PodFailed, match="the Kubernetes API answers 400"):
            async with through_pod(session, "ns", "head-1", "other", "127.0.0.1", 1):
                raise AssertionError("no such container")

    run(api, work)
    assert api.dials == 0


def test_an_api_that_refuses_or_is_gone_is_told_from_a_pod_that_is(api: ScriptedApi) -> None:
    async def work(session: aiohttp.ClientSession) -> None:
        for look in (running_pod(session, "ns", SELECTOR), tunnel.open_port(session, "ns", "head-1", 1)):
            with pytest.raises(ClusterUnreachable, match="refuses: 403"):
                await look
        await asyncio.to_thread(api.down)
        for look in (running_pod(session, "ns", SELECTOR), tunnel.open_port(session, "ns", "head-1", 1)):
            with pytest.raises(ClusterUnreachable, match="does not answer"):
                await look
        await asyncio.to_thread(api.up)

    api.refuse = 403
    run(api, work)


def test_an_api_that_goes_away_breaks_the_stream_with_an_error(api: ScriptedApi) -> None:
    api.serve("head-1", 8265, echo)

    async def work(session: aiohttp.ClientSession) -> None:
        async with to_pod_port(session, "ns", "head-1", 8265) as (reader, writer):
            writer.write(b"x")
            assert await reader.read(1) == b"x"
            await asyncio.to_thread(api.down)
            with pytest.raises(ConnectionResetError, match="the connection to the Kubernetes API broke"):
                await reader.read()
        await asyncio.to_thread(api.up)

    run(api, work)


def test_what_is_not_read_is_not_fetched(api: ScriptedApi) -> None:
    sent = 0

    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        while True:
            writer.write(bytes(65536))
            await writer.drain()
            sent += 65536

    api.serve("head-1", 8265, endless)

    async def work(session: aiohttp.ClientSession) -> None:
        async with to_pod_port(session, "ns", "head-1", 8265) as (reader, _):
            await reader.readexactly(1)
            before = -1
            while before != sent:
                before = sent
                # More than the kernel keeps in the four sockets on the way (32 MiB at most each).
                assert sent < 2**28
                await asyncio.sleep(0.3)
            await reader.readexactly(LARGE)

    run(api, work)


def test_the_newest_pod_that_stays_is_chosen(api: ScriptedApi) -> None:
    api.pods["head-2"] = Pod()
    api.pods["head-3"] = Pod(leaving=True)
    api.pods["head-4"] = Pod(phase="Pending")
    api.pods["worker"] = Pod(labels="ray.io/node-type=worker")

    async def work(session: aiohttp.ClientSession) -> None:
        assert await running_pod(session, "ns", SELECTOR) == "head-2"
        with pytest.raises(NotRunning, match="no pod app=none runs"):
            await running_pod(session, "ns", "app=none")

    run(api, work)


# --- the API's certificates --------------------------------------------------------------


@pytest.fixture
def tls(tmp_path: Path) -> Iterator[ScriptedApi]:
    """An API that wants a client certificate, and `other.crt`, an authority that it does not know."""

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=tmp_path, check=True, capture_output=True)

    (tmp_path / "san").write_text("subjectAltName=IP:127.0.0.1")
    for name in ("ca", "other"):
        subject = ["-subj", f"/CN={name}", "-days", "2"]
        openssl(
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-keyout",
            f"{name}.key",
            "-out",
            f"{name}.crt",
            *subject,
        )
    for name in ("server", "client"):
        subject = ["-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr"]
        openssl("req", "-newkey", "rsa:2048", "-nodes", *subject)
        signed = ["-in", f"{name}.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial"]
        openssl("x509", "-req", *signed, "-out", f"{name}.crt", "-days", "2", "-extfile", "san")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(tmp_path / "ca.crt"))
    context.load_cert_chain(tmp_path / "server.crt", tmp_path / "server.key")
    context.verify_mode = ssl.CERT_REQUIRED
    with scripted_api(tmp_path, context) as one:
        yield one


def test_a_client_certificate_and_the_clusters_own_authority_are_used(tls: ScriptedApi) -> None:
    tls.serve("head-1", 8265, echo)
    certificate = {
        name: str(tls.folder / f"client.{end}")
        for name, end in (("client-certificate", "crt"), ("client-key", "key"))
    }
    tls.write_kubeconfig(**certificate)

    async def work(session: aiohttp.ClientSession) -> None:
        async with to_pod_port(session, "ns", "head-1", 8265) as (reader, writer):
            await there_and_back(reader, writer, 2**20)

    run(tls, work)
    (tls.folder / "ca.crt").write_bytes((tls.folder / "other.crt").read_bytes())

    async def distrusts(session: aiohttp.ClientSession) -> None:
        with pytest.raises(ClusterUnreachable, match=r"does not answer.*certificate"):
            await running_pod(session, "ns", SELECTOR)

    run(tls, distrusts)


# --- the debugger ------------------------------------------------------------------------


def test_a_debugger_attaches_through_a_pod_and_connects_once(api: ScriptedApi, tmp_path: Path) -> None:
    script = tmp_path / "task.py"
    script.write_text(TASK)
    job = RealJob([script])

    async def work() -> None:
        port = (await job.debuggees())[0].port
        client = await connect_through(api.kube, SELECTOR, "ray-head")("127.0.0.1", port)
        await client.attach()
        event = await client.events.get()
        while event and event["event"] != "stopped":
            event = await client.events.get()
        assert event and event["body"]["reason"]
        await client.disconnect()
        while left := asyncio.all_tasks() - {asyncio.current_task(), whole}:
            await asyncio.wait(left)

    whole: asyncio.Task[None] | None = None

    async def bounded() -> None:
        nonlocal whole
        whole = asyncio.current_task()
        await asyncio.wait_for(work(), 30)

    try:
        job.all_paused()
        asyncio.run(bounded())
        job.all_ended()
        assert job.processes[0].lines == ["result 6"]
    finally:
        job.close()
    assert api.dials == 1


def test_no_debugger_there_is_said_as_without_a_cluster(api: ScriptedApi) -> None:
    async def work() -> None:
        connect = connect_through(api.kube, SELECTOR, "ray-head")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            with pytest.raises(DebuggerGone, match=r"no debugger answers at 127.0.0.1:.*refused"):
                await connect("127.0.0.1", free.getsockname()[1])
        await asyncio.to_thread(api.down)
        with pytest.raises(DebuggerGone, match="the Kubernetes API does not answer"):
            await connect("127.0.0.1", 1)
        await asyncio.to_thread(api.up)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(work())


def test_a_dial_that_is_given_up_never_touches_the_debuggee(api: ScriptedApi) -> None:
    api.exec_delay = 1.0
    with socket.create_server(("127.0.0.1", 0)) as debuggee:

        async def work() -> None:
            connect = connect_through(api.kube, SELECTOR, "ray-head")
            with pytest.raises(DebuggerGone, match="no answer in time"):
                await connect("127.0.0.1", debuggee.getsockname()[1], timeout=0.8)

        asyncio.run(work())
        while api.dials == 0:
            os.sched_yield()
        debuggee.settimeout(1.5)
        with pytest.raises(TimeoutError):
            debuggee.accept()


def test_the_pump_that_is_alone_from_the_start_connects_to_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as debuggee:
        words = [sys.executable, "-I", "-S", "-c", tunnel._PUMP, "127.0.0.1", str(debuggee.getsockname()[1])]
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (1, "", "nobody waits for it any more\n")
        debuggee.setblocking(False)
        with pytest.raises(BlockingIOError):
            debuggee.accept()
