"""HTTP servers on this machine that play a service for a test."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

Answer = Callable[[BaseHTTPRequestHandler], None]


@contextmanager
def answering(
    answer: Answer, port: int = 0, *, address: str = "127.0.0.1", files: tuple[Path, Path] | None = None
) -> Iterator[int]:
    """Runs a server that answers each request, with any method; yields the port.

    `files` are a certificate and its key, for TLS.
    """

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            answer(self)

        do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = do_CONNECT = do_GET  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:
            """Writes nothing to the terminal."""

    with ThreadingHTTPServer((address, port), Handler) as server:
        if files:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*files)
            # The thread does the handshake: a silent client must not block other clients.
            server.socket = context.wrap_socket(
                server.socket, server_side=True, do_handshake_on_connect=False
            )
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def body_of(request: BaseHTTPRequestHandler) -> bytes:
    return request.rfile.read(int(request.headers.get("Content-Length") or 0))


def says(request: BaseHTTPRequestHandler, status: int, body: bytes = b"", **headers: str) -> None:
    """Answers a request; the names of headers have underscores."""
    request.send_response(status)
    for name, value in {**headers, "Content-Length": str(len(body))}.items():
        request.send_header(name.replace("_", "-"), value)
    request.end_headers()
    if request.command != "HEAD":
        request.wfile.write(body)
