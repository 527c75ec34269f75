"""Fake Kubernetes API on loopback that only answers access reviews.

Any other request is an error, and the fixture fails then.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from weakref import WeakSet

from aiohttp import web

from bootstrap.kube.api import Kube
from rayside.event_loop import Call, background_loop

TOKEN = "scripted-token"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


@dataclass
class ScriptedApi:
    """Fake API; its methods may be called from any thread except its loop's own."""

    call: Call
    folder: Path
    tls: ssl.SSLContext | None = None
    requests: list[str] = field(default_factory=list)
    # More fields of the cluster in each kubeconfig.
    cluster: dict[str, Any] = field(default_factory=dict)
    # Required token over TLS, unless it requires a client certificate; any other token gets 401.
    # Over plain HTTP, where everybody can read it, no request may contain a token.
    token: str = TOKEN
    # Accepted client certificate, in DER; any other one that its TLS trusts gets 401.
    certificate: bytes = b""
    unscripted: list[str] = field(default_factory=list)
    port: int = 0
    _runner: web.AppRunner | None = None
    _transports: WeakSet[asyncio.BaseTransport] = field(default_factory=WeakSet)

    @property
    def kube(self) -> Kube:
        return Kube(self.folder / "kubeconfig", "scripted", "ns")

    def write_kubeconfig(self, cluster_too: Mapping[str, Any] | None = None, **user: Any) -> None:
        scheme = "https" if self.tls else "http"
        cluster = {"server": f"{scheme}://127.0.0.1:{self.port}"}
        if self.tls:
            cluster["certificate-authority"] = str(self.folder / "ca.crt")
        cluster.update({**self.cluster, **(cluster_too or {})})
        kubeconfig = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "one", "cluster": cluster}],
            "users": [{"name": "me", "user": user or {"token": TOKEN}}],
            "contexts": [{"name": "scripted", "context": {"cluster": "one", "user": "me"}}],
        }
        self.kube.kubeconfig.write_text(json.dumps(kubeconfig))

    def up(self) -> None:
        async def up() -> None:
            application = web.Application()
            application.router.add_route("*", "/{path:.*}", self._answer)
            self._runner = web.AppRunner(application, shutdown_timeout=0.1)
            await self._runner.setup()
            self._watch_connections()
            site = web.TCPSite(self._runner, "127.0.0.1", self.port, ssl_context=self.tls)
            await site.start()
            self.port = self._runner.addresses[0][1]

        self.call(up())

    def _watch_connections(self) -> None:
        """Records every connection: aiohttp forgets connections accepted during its end, which stay open."""
        assert self._runner is not None
        server: Any = self._runner.server
        made = server.connection_made

        def connection_made(handler: Any, transport: asyncio.BaseTransport) -> None:
            self._transports.add(transport)
            made(handler, transport)

        server.connection_made = connection_made

    def _reset(self) -> None:
        for transport in [each for each in self._transports if not each.is_closing()]:
            transport.abort()  # type: ignore[attr-defined]

    def down(self) -> None:
        """Ends as if the engine were killed: connections are reset, and new ones refused."""

        async def down() -> None:
            assert self._runner is not None
            self._reset()
            await self._runner.cleanup()
            self._reset()

        self.call(down())

    def close(self) -> None:
        self.down()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request.path)
        if self.tls is None:
            assert "Authorization" not in request.headers
        elif self.tls.verify_mode is ssl.CERT_NONE and (
            request.headers.get("Authorization") != f"Bearer {self.token}"
        ):
            raise web.HTTPUnauthorized
        if self.certificate:
            assert request.transport
            peer = request.transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
            if peer != self.certificate:
                raise web.HTTPUnauthorized
        if request.path == REVIEWS and request.method == "POST":
            return web.json_response({"status": {"allowed": True}})
        self.unscripted.append(f"{request.method} {request.path_qs}")
        raise web.HTTPNotImplemented


@contextmanager
def scripted_api(folder: Path, tls: ssl.SSLContext | None = None) -> Iterator[ScriptedApi]:
    """Runs the API, with a kubeconfig for it."""
    with background_loop() as call:
        api = ScriptedApi(call, folder, tls)
        api.up()
        api.write_kubeconfig()
        try:
            yield api
        finally:
            api.close()
        assert api.unscripted == []
