"""Serves an HTTP proxy as companies have one: it leads connections on by CONNECT, and counts them."""

from __future__ import annotations

import base64
import contextlib
import select
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import quote

USER, PASSWORD = "proxy-user", "only/a proxy"
_LOGIN = f"Basic {base64.b64encode(f'{USER}:{PASSWORD}'.encode()).decode()}"


@dataclass(frozen=True)
class Proxy:
    """A proxy that runs; `led` and `refused` have the `HOST:PORT` of each connection."""

    host: str
    led: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    def url(self, password: str = PASSWORD) -> str:
        """Returns its address, with a login."""
        return f"http://{USER}:{quote(password, safe='')}@{self.host}"


@contextlib.contextmanager
def proxy(*, refuses: bool = False) -> Iterator[Proxy]:
    """Runs a proxy on loopback for one user alone; one that `refuses` answers that user with 403."""
    led: list[str] = []
    refused: list[str] = []

    class Connecting(BaseHTTPRequestHandler):
        # A name that can't be resolved, and nobody at a port, are 502 as with other proxies.
        def do_CONNECT(self) -> None:
            if self.headers["Proxy-Authorization"] != _LOGIN:
                self._refuse(407)
                return
            if refuses:
                self._refuse(403)
                return
            host, _, port = self.path.rpartition(":")
            try:
                there = socket.create_connection((host, int(port)), timeout=10)
            except OSError:
                self._refuse(502)
                return
            led.append(self.path)
            with there:
                self.send_response(200)
                self.end_headers()
                _join(self.connection, there)
            self.close_connection = True

        def _refuse(self, status: int) -> None:
            refused.append(self.path)
            self.send_response(status)
            self.send_header("Proxy-Authenticate", 'Basic realm="proxy"')
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Connecting) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield Proxy(f"127.0.0.1:{server.server_address[1]}", led, refused)
        server.shutdown()
        thread.join()


def _join(here: socket.socket, there: socket.socket) -> None:
    """Hands on what each of two says, until one of them ends."""
    other = {here: there, there: here}
    while True:
        for ready in select.select([here, there], [], [], 60)[0]:
            try:
                some = ready.recv(65536)
                other[ready].sendall(some)
            except OSError:
                return
            if not some:
                return
