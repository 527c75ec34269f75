"""Carries byte streams to ports of pods, over the port-forward WebSocket of the Kubernetes API.

Channels and their prefixes are those of `v4.channel.k8s.io`, as the kubelet serves them
(k8s.io/kubelet, pkg/cri/streaming/portforward/websocket.go). A message's first byte is its channel.
This protocol has no half-close: a stream ends in both directions at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Iterator
from typing import Any

import aiohttp

from bootstrap.errors import ClusterUnreachable, NotRunning, PodFailed
from bootstrap.kube.api import CORE, Kube

# TLS connections need so many seconds to say goodbye once they are closed
# (https://docs.aiohttp.org/en/stable/client_advanced.html#graceful-shutdown).
GOODBYE = 0.25

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
                await self._web.send_bytes(bytes([_DATA]) + data)
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


# --- the API -----------------------------------------------------------------------------


async def open_session(kube: Kube) -> aiohttp.ClientSession:
    """Returns a client of that API, with the kubeconfig's credentials; for paths such as `api/v1/nodes`.

    Raises ClusterUnreachable where the kubeconfig leads nowhere.
    """
    # It runs in a thread: importing the Kubernetes client takes 0.6 s.
    url, headers, context = await asyncio.to_thread(_credentials, kube)
    return aiohttp.ClientSession(
        url,
        headers=headers,
        connector=aiohttp.TCPConnector(ssl=context, limit=0),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_TIMEOUT),
    )


def _credentials(kube: Kube) -> tuple[str, dict[str, str], ssl.SSLContext]:
    configuration = kube.client.configuration
    try:
        context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
        if configuration.cert_file:
            context.load_cert_chain(configuration.cert_file, configuration.key_file)
    except OSError as error:  # ssl.SSLError is one of them.
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
    """Returns the newest running pod with these labels that is not on its way out.

    Raises ClusterUnreachable, NotRunning.
    """
    with _explained():
        answer = await session.get(
            _pods(namespace),
            params={"labelSelector": selector, "fieldSelector": "status.phase=Running"},
            timeout=aiohttp.ClientTimeout(total=_ANSWER_TIMEOUT, sock_connect=_CONNECT_TIMEOUT),
            raise_for_status=True,
        )
        pods: list[dict[str, Any]] = (await answer.json())["items"]
    staying = [pod["metadata"] for pod in pods if "deletionTimestamp" not in pod["metadata"]]
    if not staying:
        raise NotRunning(f"no pod {selector} runs", hint="./invokew status shows what is ready")
    return str(max(staying, key=lambda metadata: metadata["creationTimestamp"])["name"])


async def open_port(session: aiohttp.ClientSession, namespace: str, pod: str, port: int) -> Tunnel:
    """Returns a stream to a port that listens on 127.0.0.1, or every address, in the pod.

    Whether something listens there shows only later, when `carry` or `read` raises PodFailed.
    Raises ClusterUnreachable, PodFailed where there is no such pod.
    """
    name = f"port {port} of pod {pod}"
    with _explained(name):
        # It has no heartbeat: while a pod or a client takes nothing, pings are not answered either.
        dial = session.ws_connect(
            f"{_pods(namespace)}/{pod}/portforward",
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
    """Turns aiohttp's errors into ours; `name` is what in a pod was asked for."""
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
