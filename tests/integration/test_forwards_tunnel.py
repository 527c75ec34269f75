"""Tests tunnels into pods: every byte, end and failure; over a scripted API, with real servers behind it."""

from __future__ import annotations

import asyncio
import hashlib
import os
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import WSMsgType

from bootstrap.errors import ClusterUnreachable, Forbidden, NotRunning, PodFailed
from bootstrap.kube import tunnel
from bootstrap.kube.client import client
from bootstrap.kube.tunnel import GOODBYE, Session, open_port, open_session, running_pod
from bootstrap.settings import ROOT
from tests.integration.scripted_api import SELECTOR, Pod, ScriptedApi, scripted_api
from tests.patience import PATIENCE

pytestmark = pytest.mark.gate

LARGE = 20 * 2**20


@pytest.fixture
def api(tmp_path: Path) -> Iterator[ScriptedApi]:
    with scripted_api(tmp_path) as scripted:
        yield scripted


def run(api: ScriptedApi, work: Callable[[Session], Awaitable[None]]) -> None:
    """Runs `work` with a session, and fails if it leaves a task."""

    async def whole() -> None:
        session = await open_session(api.kube)
        try:
            await asyncio.wait_for(work(session), 5 * PATIENCE)
        finally:
            await session.close()
            await asyncio.sleep(GOODBYE)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert left == set()

    asyncio.run(whole())


@asynccontextmanager
async def carried(
    session: Session, port: int
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Provides a client's end of a connection that a tunnel to that port of head-1 carries.

    What became of the tunnel shows at the end: PodFailed where the pod's side failed.
    """
    stream = await open_port(session, "ns", "head-1", port)
    near, far = socket.socketpair()
    reader, writer = await asyncio.open_unix_connection(sock=near)
    far_reader, far_writer = await asyncio.open_unix_connection(sock=far)

    async def carry() -> None:
        try:
            await stream.carry(far_reader, far_writer)
        finally:
            far_writer.close()
            await stream.close()

    carrying = asyncio.create_task(carry())
    try:
        yield reader, writer
    finally:
        writer.close()
        await carrying


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
    received = await reader.readexactly(len(data))
    await sending
    assert hashlib.sha256(received).digest() == hashlib.sha256(data).digest()


def test_twenty_megabytes_through_a_port_forward_and_back_are_the_same_bytes(api: ScriptedApi) -> None:
    api.serve("head-1", 8265, echo)

    async def work(session: Session) -> None:
        async with carried(session, 8265) as (reader, writer):
            await there_and_back(reader, writer, LARGE)

    run(api, work)


def test_the_end_of_a_stream_goes_both_ways(api: ScriptedApi) -> None:
    ended = asyncio.Queue[bytes]()

    async def hello(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        question = await reader.read()  # until we have closed
        await ended.put(question)

    async def bye(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"x" * 300_000)
        await writer.drain()

    api.serve("head-1", 1001, hello)
    api.serve("head-1", 1002, bye)

    async def work(session: Session) -> None:
        async with carried(session, 1001) as (reader, writer):
            assert await reader.readexactly(5) == b"hello"
            writer.write(b"ciao")
            await writer.drain()
            await asyncio.sleep(0.2)
        async with carried(session, 1002) as (reader, _):
            assert await reader.read(-1) == b"x" * 300_000

    run(api, work)
    assert api.call(asyncio.wait_for(ended.get(), PATIENCE)) == b"ciao"


def test_a_port_that_nothing_listens_on_is_a_clear_error(api: ScriptedApi) -> None:
    async def work(session: Session) -> None:
        with pytest.raises(PodFailed, match=r"port 9999 of pod head-1 .*refused"):
            async with carried(session, 9999) as (reader, _):
                assert await reader.read() == b""

    run(api, work)


def test_a_pod_that_is_gone_and_one_that_is_not_served_are_clear_errors(api: ScriptedApi) -> None:
    async def work(session: Session) -> None:
        with pytest.raises(PodFailed, match="port 1 of pod head-9 can't be reached: there is no such pod"):
            await open_port(session, "ns", "head-9", 1)
        api.refuse = 503
        with pytest.raises(PodFailed, match=r"port 1 of pod head-1 .*: the Kubernetes API answers 503"):
            await open_port(session, "ns", "head-1", 1)

    run(api, work)


def test_an_open_that_is_given_up_leaves_nothing_open_in_the_api(
    api: ScriptedApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.mute = True

    async def work(session: Session) -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(open_port(session, "ns", "head-1", 8265), 0.5)
        monkeypatch.setattr(tunnel, "_ANSWER_TIMEOUT", 0.5)
        with pytest.raises(ClusterUnreachable, match="no answer in time"):
            await asyncio.wait_for(open_port(session, "ns", "head-1", 8265), PATIENCE)
        while len(api.farewells) < 2:
            await asyncio.sleep(0.01)

    run(api, work)
    assert api.farewells == [WSMsgType.CLOSE, WSMsgType.CLOSE]


def test_an_api_that_refuses_or_is_gone_is_told_from_a_pod_that_is(api: ScriptedApi) -> None:
    async def work(session: Session) -> None:
        with pytest.raises(Forbidden, match="lack a right in Kubernetes: list pods in namespace ns"):
            await running_pod(session, "ns", SELECTOR)
        with pytest.raises(Forbidden, match="get pods/portforward in namespace ns"):
            await open_port(session, "ns", "head-1", 1)
        await asyncio.to_thread(api.down)
        for look in (running_pod(session, "ns", SELECTOR), open_port(session, "ns", "head-1", 1)):
            with pytest.raises(ClusterUnreachable, match="does not answer"):
                await look
        await asyncio.to_thread(api.up)

    api.refuse = 403
    run(api, work)


def test_an_api_that_goes_away_breaks_the_stream_with_an_error(api: ScriptedApi) -> None:
    api.serve("head-1", 8265, echo)

    async def work(session: Session) -> None:
        with pytest.raises(PodFailed, match="the connection to the Kubernetes API broke"):
            async with carried(session, 8265) as (reader, writer):
                writer.write(b"x")
                assert await reader.read(1) == b"x"
                await asyncio.to_thread(api.down)
                assert await reader.read() == b""
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

    async def work(session: Session) -> None:
        async with carried(session, 8265) as (reader, _):
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

    async def work(session: Session) -> None:
        assert await running_pod(session, "ns", SELECTOR) == "head-2"
        with pytest.raises(NotRunning, match="no pod app=none runs"):
            await running_pod(session, "ns", "app=none")

    run(api, work)


# --- the API's certificates --------------------------------------------------------------


@pytest.fixture
def tls(tmp_path: Path) -> Iterator[ScriptedApi]:
    """Provides an API that requires a client certificate, and an authority that it does not know."""

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
    with scripted_api(tmp_path, context) as scripted:
        yield scripted


def test_a_client_certificate_and_the_clusters_own_authority_are_used(tls: ScriptedApi) -> None:
    tls.serve("head-1", 8265, echo)
    certificate: dict[str, Any] = {
        name: str(tls.folder / f"client.{end}")
        for name, end in (("client-certificate", "crt"), ("client-key", "key"))
    }
    tls.write_kubeconfig(**certificate)

    async def work(session: Session) -> None:
        async with carried(session, 8265) as (reader, writer):
            await there_and_back(reader, writer, 2**20)

    run(tls, work)
    (tls.folder / "ca.crt").write_bytes((tls.folder / "other.crt").read_bytes())
    client(tls.kube.kubeconfig, "scripted").refuse()  # The next one is made of these files.

    async def distrusts(session: Session) -> None:
        with pytest.raises(ClusterUnreachable, match=r"does not answer.*certificate"):
            await running_pod(session, "ns", SELECTOR)

    run(tls, distrusts)


def test_commands_that_open_no_tunnel_do_not_wait_for_the_client_of_web_sockets() -> None:
    code = "import sys, bootstrap.targets.choice; sys.exit('aiohttp' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
