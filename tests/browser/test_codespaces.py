"""Tests the workspace as a codespace's user has it: over TLS, at a host that the workspace never sees."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import re
import ssl
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from rayside.waiting import until
from tests.browser.conftest import brought_up
from tests.browser.stories import debug_the_example
from tests.browser.workbench import chromium
from tests.browser.workspace import Workspace
from tests.integration.self_signed import self_signed
from tests.patience import PATIENCE


class Front:
    """Serves `NAME-PORT.DOMAIN` over TLS from that port of this machine.

    It tells the port only of `localhost`, and nothing of the host that the browser asked for: the Origin that
    the browser sends is then another host's.

    Attributes:
        port: where it listens.
        upgraded: the path of every connection that became a WebSocket.
    """

    def __init__(self, name: str, domain: str, certificate: Path, key: Path) -> None:
        self.port = 0
        self.upgraded: list[str] = []
        self._host = re.compile(rf"{re.escape(name)}-(\d+)\.{re.escape(domain)}".encode())
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate, key)

    async def serve(self, listening: Future[Callable[[], object]]) -> None:
        """Serves until the function that it puts into `listening` is called, from any thread."""
        end, loop = asyncio.Event(), asyncio.get_running_loop()
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._context)
        self.port = server.sockets[0].getsockname()[1]
        listening.set_result(lambda: loop.call_soon_threadsafe(end.set))
        await end.wait()
        server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError), contextlib.closing(writer):
            request, *headers = (await reader.readuntil(b"\r\n\r\n")).removesuffix(b"\r\n\r\n").split(b"\r\n")
            fields = {
                name.lower(): value.strip()
                for name, _, value in (header.partition(b":") for header in headers)
            }
            host = self._host.fullmatch(fields[b"host"])
            assert host, fields[b"host"]
            port = int(host[1])
            fields[b"host"] = b"localhost:%d" % port
            upgrades = fields.get(b"upgrade", b"").lower() == b"websocket"
            # A request a connection: what follows its head is only carried, both ways.
            fields[b"connection"] = b"Upgrade" if upgrades else b"close"
            behind, onward = await asyncio.open_connection("127.0.0.1", port)
            with contextlib.closing(onward):
                head = [request, *(b"%b: %b" % field for field in fields.items()), b"", b""]
                onward.write(b"\r\n".join(head))
                outward = asyncio.ensure_future(_carry(reader, onward))
                answer = await behind.readline()
                writer.write(answer)
                if upgrades and answer.split()[1:2] == [b"101"]:
                    self.upgraded.append(request.split()[1].decode())
                back = asyncio.ensure_future(_carry(behind, writer))
                try:
                    await asyncio.wait({outward, back}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    outward.cancel()
                    back.cancel()


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()


@contextlib.contextmanager
def front(name: str, domain: str, folder: Path) -> Iterator[tuple[Front, list[str]]]:
    """Provides a running Front, and the options that make Chromium find it and trust its certificate."""
    certificate, key = self_signed(f"*.{domain}", folder)
    proxy = Front(name, domain, certificate, key)
    with ThreadPoolExecutor(1) as thread:
        listening: Future[Callable[[], object]] = Future()
        serving = thread.submit(asyncio.run, proxy.serve(listening))
        stop = listening.result()
        try:
            yield (
                proxy,
                [
                    f"--host-resolver-rules=MAP *.{domain}:443 127.0.0.1:{proxy.port}",
                    f"--ignore-certificate-errors-spki-list={_public_key(certificate)}",
                ],
            )
        finally:
            stop()
            serving.result()


def _public_key(certificate: Path) -> str:
    """Returns the SHA-256 of the certificate's public key, as Chromium's options name it."""
    command = ["openssl", "x509", "-in", str(certificate), "-pubkey", "-noout"]
    pem = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    key = base64.b64decode("".join(line for line in pem.splitlines() if not line.startswith("-----")))
    return base64.b64encode(hashlib.sha256(key).digest()).decode()


NAME, DOMAIN = "fuzzy-space-guide-97x", "ports.test"


@pytest.fixture(scope="module")
def codespace() -> Iterator[Workspace]:
    """Provides all that `up` starts, in an environment that says it is a codespace."""
    variables = {
        "CODESPACES": "true",
        "CODESPACE_NAME": NAME,
        "GITHUB_CODESPACES_PORT_FORWARDING_DOMAIN": DOMAIN,
    }
    with brought_up(variables) as workspace:
        yield workspace


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Front, Browser]]:
    """Provides the front of the codespace's ports, and a browser that reaches them only through it."""
    with (
        front(NAME, DOMAIN, tmp_path_factory.mktemp("front")) as (proxy, options),
        chromium(*options) as browser,
    ):
        yield proxy, browser


def test_behind_another_host_one_logs_in_has_a_terminal_and_a_task_stops(
    codespace: Workspace, outside: tuple[Front, Browser], tmp_path: Path
) -> None:
    before, browser = outside
    port = codespace.rayside.settings.workspace_port
    assert codespace.link.startswith(f"https://{NAME}-{port}.{DOMAIN}/?folder=")
    assert codespace.rayside.json("open")["url"].startswith(f"https://{NAME}-{port}.{DOMAIN}/?folder=")
    marker = tmp_path / "said"
    with codespace.open(browser, codespace.link, tmp_path / "evidence") as workbench:
        assert before.upgraded, "no WebSocket"
        workbench.type_in_terminal(f"echo here > {marker}")
        assert until(marker.exists, bool, PATIENCE)
        debug_the_example(codespace, workbench)
