"""On the real cluster: forwards and tunnels into the head pod that is up. Changes nothing in it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import aiohttp
import pytest
import requests

from bootstrap.errors import DebuggerGone, PodFailed
from bootstrap.kube.api import Kube, head_selector
from bootstrap.kube.forwarder import Forward, forwarded
from bootstrap.kube.tunnel import (
    close_session,
    connect_through,
    open_session,
    running_pod,
    through_pod,
    to_pod_port,
)
from bootstrap.shell import Shell
from bootstrap.step import Condition
from bootstrap.steps.forwards import Forwards
from tests.e2e.conftest import target
from tests.integration.conftest import Rayside, free_ports

# The process is meant to outlive the object that started it.
pytestmark = pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")

HEAD = head_selector("rayside")
CONTAINER = "ray-head"


@pytest.fixture(scope="module")
def kube(up: Rayside) -> Kube:
    return target(up).kube


@pytest.fixture
def forwards(kube: Kube, tmp_path: Path) -> Iterator[Forwards]:
    dashboard, workspace = free_ports()
    ports = (Forward("dashboard", dashboard, 8265), Forward("workspace", workspace, 8443))
    one = Forwards(Shell(), kube, tmp_path, ports, HEAD)
    yield one
    one.undo(lambda _: None)
    assert one.leftovers() == []


def status(port: int, path: str) -> int:
    url = f"http://127.0.0.1:{port}{path}"
    return requests.get(url, timeout=20, allow_redirects=False).status_code


def test_the_step_leads_to_the_dashboard_and_the_workspace(forwards: Forwards) -> None:
    forwards.apply(lambda _: None)
    deadline = time.monotonic() + forwards.patience
    while (seen := forwards.check()).condition is Condition.PENDING and time.monotonic() < deadline:
        time.sleep(0.2)
    assert seen.condition is Condition.READY, seen.detail
    dashboard, workspace = (port.local for port in forwards.ports)
    assert status(dashboard, "/api/version") == 401
    assert status(workspace, "/healthz") == 200
    with ThreadPoolExecutor(50) as pool:
        assert set(pool.map(lambda _: status(workspace, "/healthz"), range(50))) == {200}


def test_a_forward_for_a_while(kube: Kube) -> None:
    with forwarded(kube, HEAD, 8265) as port:
        assert status(port, "/api/version") == 401


def test_ports_and_addresses_of_the_pod_are_reached_and_its_refusals_told(kube: Kube) -> None:
    async def http(streams: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> bytes:
        reader, writer = streams
        writer.write(b"GET /api/version HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        return (await reader.read(-1)).split(b"\r\n")[0]

    async def work(session: aiohttp.ClientSession) -> None:
        pod = await running_pod(session, kube.namespace, HEAD)
        async with to_pod_port(session, kube.namespace, pod, 8265) as streams:
            assert b" 401 " in await http(streams)
        async with through_pod(session, kube.namespace, pod, CONTAINER, "127.0.0.1", 8265) as streams:
            assert b" 401 " in await http(streams)
        async with to_pod_port(session, kube.namespace, pod, 1) as (reader, _):
            with pytest.raises(ConnectionResetError, match="refused"):
                await reader.read()
        with pytest.raises(PodFailed, match="refused"):
            async with through_pod(session, kube.namespace, pod, CONTAINER, "127.0.0.1", 1):
                raise AssertionError("nothing listens there")

    async def whole() -> None:
        session = await open_session(kube)
        try:
            await asyncio.wait_for(work(session), 60)
        finally:
            await close_session(session)

    asyncio.run(whole())


def test_a_debuggee_that_is_not_there_is_said(kube: Kube) -> None:
    with pytest.raises(DebuggerGone, match="refused"):
        asyncio.run(_connect(kube))


async def _connect(kube: Kube) -> None:
    await connect_through(kube, HEAD, CONTAINER)("127.0.0.1", 1)
