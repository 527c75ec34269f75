"""Plays a server that can go away and come back: a TCP proxy on this machine."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator


class Proxy:
    """Listens on its own `port`, and connects to another one; it is up from the start."""

    def __init__(self, to: int) -> None:
        self._to = to
        self._connections: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._serve()

    def down(self) -> None:
        """Stops listening, and ends the connections."""
        # Closing alone does not wake the thread that waits in accept.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        while self._connections:
            connection = self._connections.pop()
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def up(self) -> None:
        """Listens again, on the same port."""
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self._serve()

    def _serve(self) -> None:
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                server = socket.create_connection(("127.0.0.1", self._to))
                self._connections += [client, server]
                for source, other in ((client, server), (server, client)):
                    threading.Thread(target=self._copy, args=(source, other), daemon=True).start()

    def _copy(self, source: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                other.sendall(data)
        with contextlib.suppress(OSError):
            other.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def proxy(to: int) -> Iterator[Proxy]:
    """Provides a running proxy, and ends it afterwards."""
    running = Proxy(to)
    try:
        yield running
    finally:
        running.down()
