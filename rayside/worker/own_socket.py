"""Has sockets that are never taken for others.

A program may close all descriptors, as daemons do, and open its own with the same numbers.
"""

from __future__ import annotations

import os
import socket
from typing import Any


class OwnSocket(socket.socket):
    """Ends where somebody else has closed its descriptor, before it reads, writes or closes another's."""

    __slots__ = ("_file",)

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._file = self._now()

    def _now(self) -> tuple[int, int] | None:
        try:
            status = os.fstat(self.fileno())
        except OSError:
            return None
        return status.st_dev, status.st_ino

    def _check(self) -> None:
        if self.fileno() >= 0 and self._now() != self._file:
            self.detach()
            raise ConnectionAbortedError("the program has closed this socket")

    def accept(self) -> tuple[OwnSocket, Any]:
        self._check()
        descriptor, address = self._accept()  # type: ignore[attr-defined]
        return OwnSocket(fileno=descriptor), address

    def recv(self, *arguments: Any) -> bytes:
        self._check()
        return super().recv(*arguments)

    def send(self, *arguments: Any) -> int:
        self._check()
        return super().send(*arguments)

    def sendall(self, *arguments: Any) -> None:
        self._check()
        super().sendall(*arguments)

    def shutdown(self, how: int) -> None:
        self._check()
        super().shutdown(how)

    def close(self) -> None:
        try:
            self._check()
        except ConnectionAbortedError:
            return
        super().close()
