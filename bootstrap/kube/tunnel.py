"""Carries byte streams to ports of pods, over the port-forward WebSocket of the Kubernetes API.

Channels and their prefixes are those of `v4.channel.k8s.io`, as the kubelet serves them
(k8s.io/kubelet, pkg/cri/streaming/portforward/websocket.go). A message's first byte is its channel.
This protocol has no half-close: a stream ends in both directions at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bootstrap.errors import (
    ClusterUnreachable,
    CredentialsRefused,
    Forbidden,
    NotRunning,
    PodFailed,
    RaysideError,
)
from bootstrap.kube.api import CORE, Kube
from bootstrap.kube.refusal import forbidden

# Only at need: it is a quarter of what commands take to import, and few of them open a tunnel.
if TYPE_CHECKING:
    import aiohttp

    from bootstrap.kube.client import Client

# TLS connections need so many seconds to say goodbye once they are closed
# (https://docs.aiohttp.org/en/stable/client_advanced.html#graceful-shutdown).
GOODBYE = 0.25

# Who may `get` this resource may open tunnels.
FORWARDING = "pods/portforward"
# From this Kubernetes 1.x on, one has to be allowed to `create` it, too
# (https://github.com/kubernetes/kubernetes/pull/134577).
_CREATES_FORWARDS = 35

_PROTOCOL = "v4.channel.k8s.io"
# These are the first port's channels; each begins with the port's number in that many bytes.
_DATA, _ERROR = 0, 1
_PREFIX = 2
# The API may take so many seconds for a connection, and for an answer.
_CONNECT_TIMEOUT, _ANSWER_TIMEOUT = 3.0, 15.0
# The other side has so many seconds to agree to the end of a stream.
_CLOSE_TIMEOUT = 0.5
_CHUNK = 64 * 1024
# So many bytes of a pod's account of a failure are kept.
_LONGEST_COMPLAINT = 4096


def require_forwarding(kube: Kube) -> None:
    """Checks that we may find pods and open tunnels to them. Raises Forbidden, and as `Kube`."""
    kube.require("list", "pods")
    for verb in forwarding_verbs(kube):
        kube.require(verb, FORWARDING)


class Tunnel:
    """One open stream, made by `open_port`; `carry` it, then `close` it."""

    def __init__(self, web: aiohttp.ClientWebSocketResponse[bool], name: str) -> None:
        self.name = name
        self._web = web
        # So many bytes are still to come before each channel's data.
        self._prefix = {_DATA: _PREFIX, _ERROR: _PREFIX}
        self._data = self._complaint = b""
        self._messages = 0

    async def opened(self) -> None:
        """Waits until the far side says that the stream stands. Raises PodFailed."""
        while self._prefix[_DATA]:
            if not await self._receive():
                raise self._failed("it ended at once")

    async def carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, linger: float = 0.0
    ) -> None:
        """Copies both ways until the pod's side ends, or `linger` seconds after `reader` did.

        Those seconds count from the last bytes that came from the pod: a client that closes only its
        own half, and one that has gone, look alike. Both streams are left to the caller to close.

        Raises:
            PodFailed: the pod's side failed; the message has its account of it.
        """
        up = asyncio.create_task(self._carry_up(reader))
        down = asyncio.create_task(self._carry_down(writer))
        try:
            await asyncio.wait({up, down}, return_when=asyncio.FIRST_COMPLETED)
            if not down.done() and not up.result():
                await asyncio.wait({down})
            counted = -1
            while not down.done() and counted != self._messages:
                counted = self._messages
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
        """Returns the next bytes from the pod; empty at the end. Raises PodFailed."""
        while not self._data:
            if not await self._receive():
                return b""
        data, self._data = self._data, b""
        return data

    async def send(self, data: bytes) -> None:
        """Sends bytes to the pod. Raises ConnectionError."""
        await self._web.send_bytes(bytes([_DATA]) + data)

    async def _carry_up(self, reader: asyncio.StreamReader) -> bool:
        """Copies from `reader` to the pod; returns whether it was the client that ended the stream."""
        while True:
            try:
                data = await reader.read(_CHUNK)
            except ConnectionError:
                return True
            if not data:
                return True
            try:
                await self.send(data)
            except ConnectionError:
                return False

    async def _carry_down(self, writer: asyncio.StreamWriter) -> None:
        while data := await self.read():
            try:
                writer.write(data)
                await writer.drain()
            except ConnectionError:  # The client has gone.
                return

    async def _receive(self) -> bool:
        """Takes one message in; returns False at a good end. Raises PodFailed."""
        import aiohttp

        message = await self._web.receive()
        if message.type is not aiohttp.WSMsgType.BINARY:
            if self._complaint:
                raise self._failed(self._complaint.decode(errors="replace"))
            if message.type is not aiohttp.WSMsgType.CLOSE:
                raise self._failed("the connection to the Kubernetes API broke")
            return False
        self._messages += 1
        if not message.data:
            return True
        channel, data = message.data[0], message.data[1:]
        skip = min(self._prefix.get(channel, 0), len(data))
        if skip:
            self._prefix[channel] -= skip
            data = data[skip:]
        if channel == _DATA:
            self._data += data
        elif channel == _ERROR:
            self._complaint = (self._complaint + data)[-_LONGEST_COMPLAINT:]
        return True

    def _failed(self, why: str) -> PodFailed:
        reason = " ".join(why.split())
        return PodFailed(
            f"{self.name} can't be reached: {reason}", hint="./invokew status shows what is ready"
        )


@dataclass(frozen=True)
class Lease:
    """A tunnel that a client has for a while: a `Way` of bootstrap/carrier.

    Attributes:
        close: ends it.
        failed: takes the error by which it broke.
    """

    tunnel: Tunnel
    send: Callable[[bytes], Coroutine[Any, Any, None]]
    close: Callable[[], Coroutine[Any, Any, None]]
    failed: Callable[[RaysideError], None]

    async def read(self) -> bytes:
        """Returns the next bytes from the pod; empty at the end. Raises PodFailed."""
        try:
            return await self.tunnel.read()
        except RaysideError as error:
            self.failed(error)
            raise


# --- the API -----------------------------------------------------------------------------


def forwarding_verbs(kube: Kube) -> tuple[str, ...]:
    """Returns what one must be allowed to do with `FORWARDING` in this version of Kubernetes."""
    minor = re.match(r"\d+", (kube.get("/version") or {}).get("minor", ""))
    return ("get", "create") if minor and int(minor[0]) >= _CREATES_FORWARDS else ("get",)


@dataclass(eq=False)
class Session:
    """A client of one API, for paths such as `api/v1/nodes`; `tunnels` counts the streams that it carries."""

    http: aiohttp.ClientSession
    access: Client
    kube: Kube
    tunnels: int = 0
    refused: bool = False

    def outdated(self) -> bool:
        """Returns whether its credentials do not serve, or hardly, or its kubeconfig is another by now."""
        return self.refused or self.access.outdated()

    def refuse(self) -> CredentialsRefused:
        """Notes that the API does not take its credentials, and returns the error."""
        self.refused = True
        return self.access.refuse()

    async def close(self) -> None:
        await self.http.close()


async def open_session(kube: Kube) -> Session:
    """Returns a client with the kubeconfig's credentials, as they are now.

    Raises ClusterUnreachable where the kubeconfig leads nowhere, CredentialsRefused.
    """
    import aiohttp

    from bootstrap.kube.client import client

    # It runs in a thread: a plugin may take seconds.
    way = await asyncio.to_thread(client, kube.kubeconfig, kube.context)
    configuration = way.api.configuration
    token = configuration.api_key.get("BearerToken")
    tls = way.api.rest_client.pool_manager.connection_pool_kw.get("ssl_context")
    http = aiohttp.ClientSession(
        f"{way.url}/",
        headers={"Authorization": token} if token else {},
        connector=aiohttp.TCPConnector(ssl=tls or True, limit=0),
        proxy=configuration.proxy,
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_TIMEOUT),
    )
    return Session(http, way, kube)


async def running_pod(session: Session, namespace: str, selector: str) -> str:
    """Returns the newest running pod with these labels that is not on its way out.

    Raises ClusterUnreachable, CredentialsRefused, Forbidden, NotRunning.
    """
    import aiohttp

    with _explained(session, forbidden("list", "pods", "", namespace)):
        answer = await session.http.get(
            _pods(namespace),
            server_hostname=session.access.api.configuration.tls_server_name,
            params={"labelSelector": selector, "fieldSelector": "status.phase=Running"},
            timeout=aiohttp.ClientTimeout(total=_ANSWER_TIMEOUT, sock_connect=_CONNECT_TIMEOUT),
            raise_for_status=True,
        )
        pods: list[dict[str, Any]] = (await answer.json())["items"]
    staying = [pod["metadata"] for pod in pods if "deletionTimestamp" not in pod["metadata"]]
    if not staying:
        raise NotRunning(f"no pod {selector} runs", hint="./invokew status shows what is ready")
    return str(max(staying, key=lambda metadata: metadata["creationTimestamp"])["name"])


async def open_port(session: Session, namespace: str, pod: str, port: int) -> Tunnel:
    """Returns a stream to a port that listens on 127.0.0.1, or every address, in the pod.

    Whether something listens there shows only later, when `carry` or `read` raises PodFailed.
    Raises ClusterUnreachable, CredentialsRefused, Forbidden, PodFailed where there is no such pod.
    """
    import aiohttp

    name = f"port {port} of pod {pod}"
    right = forbidden("get", FORWARDING, "", namespace)
    with _explained(session, right, name):
        # It has no heartbeat: while a pod or a client takes nothing, pings are not answered either.
        dial = session.http.ws_connect(
            f"{_pods(namespace)}/{pod}/portforward",
            server_hostname=session.access.api.configuration.tls_server_name,
            params={"ports": str(port)},
            protocols=(_PROTOCOL,),
            timeout=aiohttp.ClientWSTimeout(ws_close=_CLOSE_TIMEOUT),
            max_msg_size=0,
        )
        web = await asyncio.wait_for(dial, _ANSWER_TIMEOUT)
    own = web.get_extra_info("socket")
    if own is not None:  # It is None where the other side has ended the connection already.
        own.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    tunnel = Tunnel(web, name)
    try:
        with _explained(session, right, name):
            await asyncio.wait_for(tunnel.opened(), _ANSWER_TIMEOUT)
    except BaseException:
        await tunnel.close()
        raise
    return tunnel


def _pods(namespace: str) -> str:
    return f"{CORE[1:]}/namespaces/{namespace}/pods"


@contextlib.contextmanager
def _explained(session: Session, right: Forbidden, name: str = "") -> Iterator[None]:
    """Turns aiohttp's errors into ours; `right` is what a 403 means, `name` what in a pod was asked for."""
    import aiohttp

    try:
        yield
    except aiohttp.ClientResponseError as error:
        if error.status == 401:
            raise session.refuse() from None
        if error.status == 403:
            raise right from None
        if name:
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
