"""Byte streams into a cluster, over the WebSocket endpoints of the Kubernetes API.

Channels and their prefixes are those of `v4.channel.k8s.io`, as the kubelet serves them
(k8s.io/kubelet, pkg/cri/streaming/portforward/websocket.go and remotecommand/websocket.go). A
message's first byte is its channel. This protocol has no half-close: a stream ends in both
directions at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp

from bootstrap.debug.client import REQUEST_TIMEOUT, Client, OnEvent
from bootstrap.debug.session import Connect
from bootstrap.errors import ClusterUnreachable, DebuggerGone, NotRunning, PodFailed, RaysideError
from bootstrap.kube.api import CORE, Kube

_PROTOCOL = "v4.channel.k8s.io"
# Seconds for a connection, and for an answer, of the API; containerd needs about 0.2 for an exec.
_CONNECT_TIMEOUT, _ANSWER_TIMEOUT = 3.0, 15.0
# Seconds that the other side has to agree to the end of a stream.
_CLOSE_TIMEOUT = 0.5
_CHUNK = 64 * 1024
# What a pod says of a failure is kept to this many bytes.
_LONGEST_COMPLAINT = 4096

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]

# Runs in a container of the cluster: joins its standard input and output with one TCP connection.
# Nothing is sent to it before it has said "+", so if its input can be read earlier, that is the end
# of it: whoever wanted the connection has gone, and a debugger's port must not be dialled in vain.
_PUMP = """
import os, select, socket, sys, threading
def up():
    while data := os.read(0, 65536): peer.sendall(data)
    peer.shutdown(socket.SHUT_WR)
    threading.Timer(5, os._exit, [0]).start()
def guarded():
    try: up()
    except OSError: pass
if select.select([0], [], [], 0)[0]: sys.exit("nobody waits for it any more")
try: peer = socket.create_connection((sys.argv[1], int(sys.argv[2])), 10)
except OSError as error: sys.exit(error.strerror or str(error))
peer.settimeout(None)
peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
data = b"+"
threading.Thread(target=guarded, daemon=True).start()
while data:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
    try: data = peer.recv(65536)
    except OSError as error: sys.exit(error.strerror or str(error))
os._exit(0)
"""


@dataclass(frozen=True)
class _Layout:
    """The channels of one kind of stream, and how many bytes come before the data of each."""

    to_pod: int
    from_pod: int
    complaint: int
    prefix: int
    complaint_prefix: int
    status: int | None = None


# Each channel of a port-forward begins with the port's number in two bytes.
_PORT_FORWARD = _Layout(to_pod=0, from_pod=0, complaint=1, prefix=2, complaint_prefix=2)
# Standard input, output and error, and the outcome as JSON; the pump's first byte says "connected".
_EXEC = _Layout(to_pod=0, from_pod=1, complaint=2, prefix=1, complaint_prefix=0, status=3)


# Seconds that TLS connections need to say goodbye once they are closed
# (https://docs.aiohttp.org/en/stable/client_advanced.html#graceful-shutdown).
GOODBYE = 0.25


class Tunnel:
    """One open stream, made by `open_port` or `open_through`; `carry` it, then `close` it."""

    def __init__(self, web: aiohttp.ClientWebSocketResponse[bool], layout: _Layout, name: str) -> None:
        self.name = name
        self._web, self._layout = web, layout
        self._prefix = {layout.from_pod: layout.prefix, layout.complaint: layout.complaint_prefix}
        self._data = self._complaint = self._status = b""
        self._messages = 0

    async def opened(self) -> None:
        """Until the far side says that the stream stands. Raises PodFailed."""
        while self._prefix[self._layout.from_pod]:
            if not await self._receive():
                raise self._failed("it ended at once")

    async def carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, linger: float = 0.0
    ) -> None:
        """Copies both ways until the pod's side ends, or `linger` seconds after `reader` did.

        Those seconds count from the last bytes that came from the pod: a client that closes only its
        own half, and one that has gone, look alike. Both streams are left to the caller to close.

        Raises:
            PodFailed: the pod's side failed; what it said of it.
        """
        up = asyncio.create_task(self._carry_up(reader))
        down = asyncio.create_task(self._carry_down(writer))
        try:
            await asyncio.wait({up, down}, return_when=asyncio.FIRST_COMPLETED)
            if not down.done() and not up.result():
                await asyncio.wait({down})
            seen = -1
            while not down.done() and seen != self._messages:
                seen = self._messages
                await asyncio.wait({down}, timeout=linger)
            if down.done():
                down.result()
        finally:
            for task in (up, down):
                task.cancel()
            await asyncio.gather(up, down, return_exceptions=True)

    async def close(self) -> None:
        await self._web.close()

    async def read(self) -> bytes:
        """The next bytes from the pod; empty at the end. Raises PodFailed."""
        while not self._data:
            if not await self._receive():
                return b""
        data, self._data = self._data, b""
        return data

    async def _carry_up(self, reader: asyncio.StreamReader) -> bool:
        """Whether it was the client that ended it."""
        while True:
            try:
                data = await reader.read(_CHUNK)
            except ConnectionError:
                return True
            if not data:
                return True
            try:
                await self._web.send_bytes(bytes([self._layout.to_pod]) + data)
            except ConnectionError:
                return False

    async def _carry_down(self, writer: asyncio.StreamWriter) -> None:
        while data := await self.read():
            try:
                writer.write(data)
                await writer.drain()
            except ConnectionError:  # the client has gone
                return

    async def _receive(self) -> bool:
        """Takes one message in; False at a good end. Raises PodFailed."""
        message = await self._web.receive()
        if message.type is not aiohttp.WSMsgType.BINARY:
            return self._ended(good=message.type is aiohttp.WSMsgType.CLOSE)
        self._messages += 1
        if not message.data:
            return True
        channel, data = message.data[0], message.data[1:]
        skip = min(self._prefix.get(channel, 0), len(data))
        if skip:
            self._prefix[channel] -= skip
            data = data[skip:]
        if channel == self._layout.from_pod:
            self._data += data
        elif channel == self._layout.complaint:
            self._complaint = (self._complaint + data)[-_LONGEST_COMPLAINT:]
        elif channel == self._layout.status:
            self._status += data
        return True

    def _ended(self, *, good: bool) -> bool:
        if self._layout.status is None:
            if self._complaint:
                raise self._failed(self._complaint.decode(errors="replace"))
            if not good:
                raise self._failed("the connection to the Kubernetes API broke")
            return False
        if not self._status:
            raise self._failed("the connection to the Kubernetes API broke")
        status = json.loads(self._status)
        if status.get("status") != "Success":
            said = self._complaint.decode(errors="replace") or status.get("message", "")
            raise self._failed(said)
        return False

    def _failed(self, why: str) -> PodFailed:
        said = " ".join(why.split())
        return PodFailed(f"{self.name} can't be reached: {said}", hint="./invokew status shows what is ready")


# --- the API -----------------------------------------------------------------------------


async def open_session(kube: Kube) -> aiohttp.ClientSession:
    """A client of that API, with the kubeconfig's credentials; for paths such as `api/v1/nodes`.

    Raises ClusterUnreachable where the kubeconfig leads nowhere.
    """
    # In a thread: importing the Kubernetes client takes 0.6 s.
    url, headers, context = await asyncio.to_thread(_credentials, kube)
    return aiohttp.ClientSession(
        url,
        headers=headers,
        connector=aiohttp.TCPConnector(ssl=context, limit=0),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_TIMEOUT),
    )


async def close_session(session: aiohttp.ClientSession) -> None:
    """Closes it with its TLS connections, which are left open where the loop ends right afterwards."""
    await session.close()
    await asyncio.sleep(GOODBYE)


def _credentials(kube: Kube) -> tuple[str, dict[str, str], ssl.SSLContext]:
    configuration = kube.client.configuration
    try:
        context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
        if configuration.cert_file:
            context.load_cert_chain(configuration.cert_file, configuration.key_file)
    except OSError as error:  # ssl.SSLError among them
        raise ClusterUnreachable(
            f"a certificate of {kube.kubeconfig} can't be used: {error}", hint="./invokew up makes it anew"
        ) from None
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    token = configuration.auth_settings().get("BearerToken")
    headers = {"Authorization": str(token["value"])} if token else {}
    return f"{kube.url.rstrip('/')}/", headers, context


async def running_pod(session: aiohttp.ClientSession, namespace: str, selector: str) -> str:
    """The newest running pod with these labels that is not on its way out.

    Raises ClusterUnreachable, NotRunning.
    """
    with _explained():
        answer = await session.get(
            _pods(namespace),
            params={"labelSelector": selector, "fieldSelector": "status.phase=Running"},
            timeout=aiohttp.ClientTimeout(total=_ANSWER_TIMEOUT, sock_connect=_CONNECT_TIMEOUT),
            raise_for_status=True,
        )
        found: list[dict[str, Any]] = (await answer.json())["items"]
    staying = [pod["metadata"] for pod in found if "deletionTimestamp" not in pod["metadata"]]
    if not staying:
        raise NotRunning(f"no pod {selector} runs", hint="./invokew status shows what is ready")
    return str(max(staying, key=lambda metadata: metadata["creationTimestamp"])["name"])


async def open_port(session: aiohttp.ClientSession, namespace: str, pod: str, port: int) -> Tunnel:
    """A stream to a port that listens on 127.0.0.1, or every address, in the pod.

    Whether something listens there shows only later, when `carry` or `read` raises PodFailed.
    Raises ClusterUnreachable, PodFailed where there is no such pod.
    """
    path = f"{_pods(namespace)}/{pod}/portforward"
    return await _open(session, path, [("ports", str(port))], _PORT_FORWARD, f"port {port} of pod {pod}")


async def open_through(
    session: aiohttp.ClientSession, namespace: str, pod: str, container: str, host: str, port: int
) -> Tunnel:
    """A stream to `host`:`port`, as that container sees it; it has to have a `python3`.

    The port is connected to once, and not at all where this was cancelled before its turn came.
    Raises ClusterUnreachable, PodFailed where the container is not there or nothing listens.
    """
    command = ["python3", "-I", "-S", "-c", _PUMP, host, str(port)]
    query = [("container", container), ("stdin", "true"), ("stdout", "true"), ("stderr", "true")]
    query += [("command", word) for word in command]
    path = f"{_pods(namespace)}/{pod}/exec"
    return await _open(session, path, query, _EXEC, f"{host}:{port} through pod {pod}")


async def _open(
    session: aiohttp.ClientSession, path: str, query: list[tuple[str, str]], layout: _Layout, name: str
) -> Tunnel:
    with _explained(name):
        # No heartbeat: while a pod or a client takes nothing, pings are not answered either.
        dial = session.ws_connect(
            path,
            params=query,
            protocols=(_PROTOCOL,),
            timeout=aiohttp.ClientWSTimeout(ws_close=_CLOSE_TIMEOUT),
            max_msg_size=0,
        )
        web = await asyncio.wait_for(dial, _ANSWER_TIMEOUT)
    own = web.get_extra_info("socket")
    if own is not None:  # None: the other side has ended the connection already
        own.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    tunnel = Tunnel(web, layout, name)
    try:
        with _explained(name):
            await asyncio.wait_for(tunnel.opened(), _ANSWER_TIMEOUT)
    except BaseException:
        await tunnel.close()
        raise
    return tunnel


def _pods(namespace: str) -> str:
    return f"{CORE[1:]}/namespaces/{namespace}/pods"


@contextlib.contextmanager
def _explained(name: str = "") -> Iterator[None]:
    """aiohttp's errors as ours; `name` is what in a pod was asked for."""
    try:
        yield
    except aiohttp.ClientResponseError as error:
        if name and error.status not in (401, 403):
            why = (
                "there is no such pod"
                if error.status == 404
                else f"the Kubernetes API answers {error.status}"
            )
            raise PodFailed(
                f"{name} can't be reached: {why}", hint="./invokew status shows what is ready"
            ) from None
        raise ClusterUnreachable(
            f"the Kubernetes API refuses: {error.status} {error.message}",
            hint="./invokew up mends the cluster",
        ) from None
    except (aiohttp.ClientError, asyncio.TimeoutError, OSError) as error:
        raise ClusterUnreachable(
            f"the Kubernetes API does not answer: {str(error) or 'no answer in time'}",
            hint="./invokew up mends the cluster",
        ) from None


# --- as streams --------------------------------------------------------------------------


@asynccontextmanager
async def to_pod_port(
    session: aiohttp.ClientSession, namespace: str, pod: str, port: int
) -> AsyncIterator[Streams]:
    """`open_port` as a reader and a writer, for the time of the context; errors as in `as_streams`."""
    async with _kept(await open_port(session, namespace, pod, port)) as streams:
        yield streams


@asynccontextmanager
async def through_pod(
    session: aiohttp.ClientSession, namespace: str, pod: str, container: str, host: str, port: int
) -> AsyncIterator[Streams]:
    """`open_through` as a reader and a writer, for the time of the context; errors as in `as_streams`."""
    async with _kept(await open_through(session, namespace, pod, container, host, port)) as streams:
        yield streams


@asynccontextmanager
async def _kept(tunnel: Tunnel) -> AsyncIterator[Streams]:
    reader, writer, carrying = await as_streams(tunnel)
    try:
        yield reader, writer
    finally:
        writer.close()
        await carrying


async def as_streams(
    tunnel: Tunnel,
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, asyncio.Task[None]]:
    """A reader and a writer, and the task that moves their bytes and closes the tunnel.

    Closing the writer, or its `write_eof`, ends the stream in both directions, and so the task. When
    the pod's side fails, the reader raises ConnectionResetError with what was said of it.
    """
    near, far = socket.socketpair()
    reader, writer = await asyncio.open_unix_connection(sock=near)
    far_reader, far_writer = await asyncio.open_unix_connection(sock=far)

    async def carry() -> None:
        try:
            await tunnel.carry(far_reader, far_writer)
        except PodFailed as error:
            reader.set_exception(ConnectionResetError(error.message))
        finally:
            far_writer.close()
            await tunnel.close()

    return reader, writer, asyncio.create_task(carry())


# --- for the debugger --------------------------------------------------------------------


def connect_through(kube: Kube, selector: str, container: str) -> Connect:
    """As `Client.connect`, for debuggees in the pod network: through the pod with these labels.

    The callable raises DebuggerGone, whatever it was that is not there.
    """
    carrying: set[asyncio.Task[None]] = set()

    async def dial(host: str, port: int) -> Streams:
        session = await open_session(kube)
        try:
            pod = await running_pod(session, kube.namespace, selector)
            tunnel = await open_through(session, kube.namespace, pod, container, host, port)
            reader, writer, task = await as_streams(tunnel)
        except BaseException:
            await close_session(session)
            raise
        kept = asyncio.create_task(_then_close(task, session))
        carrying.add(kept)
        kept.add_done_callback(carrying.discard)
        return reader, writer

    async def connect(
        host: str, port: int, *, timeout: float = REQUEST_TIMEOUT, on_event: OnEvent | None = None
    ) -> Client:
        name = f"{host}:{port}"
        try:
            reader, writer = await asyncio.wait_for(dial(host, port), timeout)
        except (RaysideError, asyncio.TimeoutError) as error:
            raise DebuggerGone(
                f"no debugger answers at {name}: {str(error) or 'no answer in time'}",
                hint="The task has probably ended; see which tasks are paused with ./invokew breakpoints.",
            ) from error
        return Client(reader, writer, name=name, on_event=on_event)

    return connect


async def _then_close(task: asyncio.Task[None], session: aiohttp.ClientSession) -> None:
    try:
        await task
    finally:
        await close_session(session)
