"""HTTP proxy that supports only CONNECT, and connects every host name to this machine."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import quote

from rayside.event_loop import background_loop


@dataclass
class ConnectProxy:
    # The address that it listens on, and connects to.
    host: str = "127.0.0.1"
    port: int = 0
    # Required login, as in `me:secret`; with `refusal`, a status, every request is refused.
    login: str = ""
    refusal: str = ""
    # Requested targets, as in `api.test:6443`, and the credentials of the requests.
    targets: list[str] = field(default_factory=list)
    credentials: list[str] = field(default_factory=list)
    _copying: set[asyncio.Task[None]] = field(default_factory=set)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        method, target, _ = head[0].split(" ")
        assert method == "CONNECT"
        self.targets.append(target)
        headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
        self.credentials.append(headers.get("proxy-authorization", ""))
        refusal = self.refusal
        if self.login and self.credentials[-1] != self._credentials:
            refusal = "407 Proxy Authentication Required\r\nProxy-Authenticate: Basic"
        if refusal:
            writer.write(f"HTTP/1.1 {refusal}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
            writer.close()
            return
        far_reader, far_writer = await asyncio.open_connection(self.host, int(target.rpartition(":")[2]))
        writer.write(b"HTTP/1.1 200 Connected\r\n\r\n")
        copying = [asyncio.create_task(_copy(*ends)) for ends in ((reader, far_writer), (far_reader, writer))]
        self._copying.update(copying)
        await asyncio.wait(copying)
        self._copying.difference_update(copying)

    def url(self, login: str = "") -> str:
        """Returns its URL, with its own login or another one."""
        user, _, password = (login or self.login).partition(":")
        return f"http://{user}:{quote(password, safe='')}@{self.host}:{self.port}"

    @property
    def _credentials(self) -> str:
        """Returns the header value of a client with the login, in lower case, as headers are compared."""
        return f"basic {base64.b64encode(self.login.encode()).decode()}".lower()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
    finally:
        writer.close()


@contextmanager
def connect_proxy(host: str = "127.0.0.1", login: str = "") -> Iterator[ConnectProxy]:
    proxy = ConnectProxy(host, login=login)
    with background_loop() as call:
        server = call(asyncio.start_server(proxy.serve, host, 0))
        proxy.port = server.sockets[0].getsockname()[1]
        try:
            yield proxy
        finally:

            async def stop() -> None:
                server.close()
                for task in [*proxy._copying]:
                    task.cancel()
                await asyncio.gather(*proxy._copying, return_exceptions=True)
                await asyncio.sleep(0.1)  # The connections are closed in the loop's next turns.

            call(stop())
