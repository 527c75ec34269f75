"""Connects to a stranger whose answers have to come at a pace, from their first byte to their last.

It imports Requests, and so is imported only where somebody is asked.
"""

from __future__ import annotations

import io
import ssl
import time
from http.client import HTTPResponse
from typing import TYPE_CHECKING, Any

from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection

if TYPE_CHECKING:
    from bootstrap.registry.exchange import Pace


class TooSlow(OSError):
    """Less came than has to come."""


class _Arriving(io.RawIOBase):
    """What comes over a connection. Reading raises TooSlow where it comes slower than at that pace."""

    def __init__(self, connection: io.RawIOBase, pace: Pace) -> None:
        self._connection, self._pace = connection, pace
        self._has_begun, self._came, self._waited = False, 0, 0.0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        began = time.monotonic()
        count: int | None = self._connection.readinto(buffer)
        # What the reader does in between is not the sender's time. The first byte is bounded by the
        # connection's own patience: the sender may have to think.
        if self._has_begun:
            self._waited += time.monotonic() - began
        self._has_begun = True
        self._came += count or 0
        if self._came >= self._pace.size:
            self._came, self._waited = 0, 0.0
        elif count and self._waited > self._pace.seconds:
            raise TooSlow(f"it sends too slowly, {self._came} bytes in {self._waited:.0f} s")
        return count

    def close(self) -> None:
        self._connection.close()
        super().close()


def paced(pace: Pace, context: ssl.SSLContext | None = None) -> HTTPAdapter:
    """Returns what connects so; `context` says whom it trusts, where those are not this machine's.

    It is below all that reads: `stream` and the head of an answer wait for much, which may come byte by byte,
    and the connection's own patience begins anew with each.
    """

    class Response(HTTPResponse):
        def __init__(self, *args: Any, **more: Any) -> None:
            super().__init__(*args, **more)
            self.fp = io.BufferedReader(_Arriving(self.fp.detach(), pace))

    class Plain(HTTPConnection):
        response_class = Response

    class Encrypted(HTTPSConnection):
        response_class = Response

    class Paced(HTTPAdapter):
        def init_poolmanager(self, *args: Any, **more: Any) -> None:
            super().init_poolmanager(*args, ssl_context=context, **more)

        def proxy_manager_for(self, proxy: str, **more: Any) -> Any:
            return super().proxy_manager_for(proxy, ssl_context=context, **more)

        def get_connection_with_tls_context(self, *args: Any, **more: Any) -> Any:
            pool: Any = super().get_connection_with_tls_context(*args, **more)
            pool.ConnectionCls = Encrypted if pool.scheme == "https" else Plain
            return pool

    return Paced()
