"""Plays a Kubernetes API on loopback: it lists pods, and speaks the channel protocol of port-forward.

Pods are scripted; a port-forward connects to a real server. What is not scripted is an error, and the
fixture that made the API fails.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from weakref import WeakSet

from aiohttp import WSMsgType, web

from bootstrap.event_loop import Call, background_loop
from bootstrap.kube.api import Kube

TOKEN = "scripted-token"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
SELECTOR = "ray.io/cluster=c,ray.io/node-type=head"
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Pod:
    labels: str = SELECTOR
    phase: str = "Running"
    leaving: bool = False
    # Where the servers behind its ports really listen.
    ports: dict[int, int] = field(default_factory=dict)


@dataclass
class ScriptedApi:
    """Plays the API; its methods may be called from any thread except that of its own loop."""

    call: Call
    folder: Path
    tls: ssl.SSLContext | None = None
    pods: dict[str, Pod] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    refuse: int = 0
    # Rights that nobody has, as in `get pods/portforward`.
    lacking: set[str] = field(default_factory=set)
    # It is Kubernetes 1.x.
    minor: str = "34"
    # What each kubeconfig says of the cluster besides.
    cluster: dict[str, Any] = field(default_factory=dict)
    # Over TLS it takes this token alone, unless it asks for a certificate; a request with another is 401.
    # Over plain HTTP, where everybody sees what is sent, no request may have one.
    token: str = TOKEN
    # The client's certificate that it takes, in DER; of those that its TLS trusts, any other is 401.
    certificate: bytes = b""
    # Upgrades a port-forward and says nothing more; `farewells` is how each of those ended.
    mute: bool = False
    farewells: list[WSMsgType] = field(default_factory=list)
    unscripted: list[str] = field(default_factory=list)
    port: int = 0
    _runner: web.AppRunner | None = None
    _transports: WeakSet[asyncio.BaseTransport] = field(default_factory=WeakSet)
    _servers: list[asyncio.Server] = field(default_factory=list)

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
        """Keeps every connection: aiohttp forgets those that it takes while it ends, and they stay open."""
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
        """Ends as when the engine is killed: connections are reset, and the port refuses."""

        async def down() -> None:
            assert self._runner is not None
            self._reset()
            await self._runner.cleanup()
            self._reset()

        self.call(down())

    def serve(self, pod: str, port: int, handler: Handler) -> int:
        """Starts a real server behind a pod's port, and returns the port where it really listens."""

        async def serve() -> int:
            async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                with contextlib.suppress(ConnectionError):
                    await handler(reader, writer)
                writer.close()

            server = await asyncio.start_server(connected, "127.0.0.1", 0)
            self._servers.append(server)
            return int(server.sockets[0].getsockname()[1])

        real = self.call(serve())
        self.pods[pod].ports[port] = real
        return real

    def close(self) -> None:
        async def close() -> None:
            for server in self._servers:
                server.close()

        self.down()
        self.call(close())

    def lists(self) -> int:
        """Returns how often the pods were listed."""
        return sum(path.endswith("/pods") for path in self.requests)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request.path)
        if self.refuse:
            raise _status(self.refuse)
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
            attributes = (await request.json())["spec"]["resourceAttributes"]
            right = f"{attributes['verb']} {attributes['resource']}/{attributes['subresource']}".rstrip("/")
            return web.json_response({"status": {"allowed": right not in self.lacking}})
        if request.path == "/version":
            return web.json_response({"major": "1", "minor": self.minor})
        words = request.path.split("/")[1:]
        if words[:5] == ["api", "v1", "namespaces", "ns", "pods"]:
            if len(words) == 5:
                return web.json_response(self._list(request))
            if words[5] not in self.pods:
                raise web.HTTPNotFound
            if words[6:] == ["portforward"]:
                return await self._port_forward(request, words[5])
        self.unscripted.append(f"{request.method} {request.path_qs}")
        raise web.HTTPNotImplemented

    def _list(self, request: web.Request) -> dict[str, Any]:
        assert request.query["fieldSelector"] == "status.phase=Running"
        items = []
        for at, (name, pod) in enumerate(self.pods.items()):
            metadata: dict[str, Any] = {"name": name, "creationTimestamp": f"2026-01-01T00:00:{at:02}Z"}
            if pod.leaving:
                metadata["deletionTimestamp"] = "2026-01-01T00:01:00Z"
            if pod.labels == request.query["labelSelector"] and pod.phase == "Running":
                items.append({"metadata": metadata, "status": {"phase": pod.phase}})
        return {"items": items}

    async def _upgraded(self, request: web.Request) -> web.WebSocketResponse:
        websocket = web.WebSocketResponse(protocols=("v4.channel.k8s.io",), max_msg_size=0, timeout=0.5)
        assert "v4.channel.k8s.io" in request.headers["Sec-WebSocket-Protocol"]
        await websocket.prepare(request)
        return websocket

    async def _port_forward(self, request: web.Request, pod: str) -> web.StreamResponse:
        port = int(request.query["ports"])
        websocket = await self._upgraded(request)
        try:
            if self.mute:
                self.farewells.append((await websocket.receive()).type)
                return websocket
            for channel in (b"\0", b"\1"):
                await websocket.send_bytes(channel + port.to_bytes(2, "little"))
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", self.pods[pod].ports.get(port, 1))
            except OSError:
                refusal = f"error forwarding port {port} to pod {pod}: dial tcp4 127.0.0.1:{port}: refused"
                await websocket.send_bytes(b"\1" + refusal.encode())
                return websocket

            async def down() -> None:
                with contextlib.suppress(ConnectionError):
                    while data := await reader.read(32768):
                        await websocket.send_bytes(b"\0" + data)
                    await websocket.close()

            await _joined(websocket, writer, down())
        finally:
            await websocket.close()
        return websocket


async def _joined(websocket: web.WebSocketResponse, writer: asyncio.StreamWriter, down: Any) -> None:
    """Copies both ways until the socket ends or `down` is true; closes `writer`, as containerd does."""
    copying = asyncio.create_task(down)
    try:
        with contextlib.suppress(ConnectionError):
            async for message in websocket:
                assert message.type is WSMsgType.BINARY
                assert message.data[0] == 0
                writer.write(message.data[1:])
                await writer.drain()
    finally:
        writer.close()
        await asyncio.wait({copying}, timeout=1)
        copying.cancel()
        await asyncio.gather(copying, return_exceptions=True)


def _status(code: int) -> web.HTTPException:
    refusals = {403: web.HTTPForbidden, 503: web.HTTPServiceUnavailable}
    return refusals[code]()


@contextmanager
def scripted_api(folder: Path, tls: ssl.SSLContext | None = None) -> Iterator[ScriptedApi]:
    """Runs the API with one pod, `head-1`, and a kubeconfig."""
    with background_loop() as call:
        api = ScriptedApi(call, folder, tls)
        api.pods["head-1"] = Pod()
        api.up()
        api.write_kubeconfig()
        try:
            yield api
        finally:
            api.close()
        assert api.unscripted == []
