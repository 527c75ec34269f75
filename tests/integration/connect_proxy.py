"""Runs an HTTP proxy on loopback, for CONNECT alone, that leads every name to this machine."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from bootstrap.event_loop import background_loop


@dataclass
class ConnectProxy:
    port: int = 0
    # What it was asked for, as in `api.test:6443`, and by whom.
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
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", int(target.rpartition(":")[2]))
        writer.write(b"HTTP/1.1 200 Connected\r\n\r\n")
        copying = [asyncio.create_task(_copy(*ends)) for ends in ((reader, far_writer), (far_reader, writer))]
        self._copying.update(copying)
        await asyncio.wait(copying)
        self._copying.difference_update(copying)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
    finally:
        writer.close()


@contextmanager
def connect_proxy() -> Iterator[ConnectProxy]:
    proxy = ConnectProxy()
    with background_loop() as call:
        server = call(asyncio.start_server(proxy.serve, "127.0.0.1", 0))
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
