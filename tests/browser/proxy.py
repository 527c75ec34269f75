"""A TCP proxy of this machine that can go away and come back, as what is behind it could."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator


class Proxy:
    """Listens on a port of its own, `port`, and leads to another one; up from the start."""

    def __init__(self, to: int) -> None:
        self._to = to
        self._connections: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._serve()

    def down(self) -> None:
        """Nobody answers any more, and who was connected is not any more."""
        # Closing alone does not wake the thread that waits in accept.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        while self._connections:
            one = self._connections.pop()
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def up(self) -> None:
        """It answers again, on the same port."""
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self._serve()

    def _serve(self) -> None:
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                here, _ = listener.accept()
                there = socket.create_connection(("127.0.0.1", self._to))
                self._connections += [here, there]
                for one, other in ((here, there), (there, here)):
                    threading.Thread(target=self._copy, args=(one, other), daemon=True).start()

    def _copy(self, one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(65536):
                other.sendall(data)
        with contextlib.suppress(OSError):
            other.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def proxy(to: int) -> Iterator[Proxy]:
    """One that is gone afterwards."""
    one = Proxy(to)
    try:
        yield one
    finally:
        one.down()
