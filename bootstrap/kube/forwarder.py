"""Leads ports of this machine into a pod, by one process: `python -m bootstrap.kube.forwarder FILE`.

The pod is found by its labels when somebody connects, and found again after anything failed, so a
pod that is replaced and a cluster that restarts cost a client a reconnect and nothing else. While
nobody connects nothing is asked. FILE is JSON, as `document` makes it; SIGHUP reads it again.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import logging
import signal
import socket
import struct
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bootstrap import machine
from bootstrap.carrier.carrier import Carrier, Speaks
from bootstrap.carrier.patience import USUAL, Pace, Patience
from bootstrap.errors import ClusterUnreachable, PortTaken, RaysideError, StrangerListens
from bootstrap.event_loop import background_loop, within
from bootstrap.kube.api import Kube
from bootstrap.kube.tunnel import GOODBYE, Lease, Session, Tunnel, open_port, open_session, running_pod
from bootstrap.loopback import require_own

# A client is kept waiting for a pod at most so many seconds.
PATIENCE = 5.0
# The pod may still begin, or go on, to answer for so many seconds after a client closed its half.
LINGER = 5.0
# So many seconds pass between two tries to find the pod while clients wait; each failure doubles them.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 1.0
# Closing may take so many seconds; a process that is told to end has to be gone within one.
_GOODBYE = 0.7

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Forward:
    """One port of this machine and the pod's port that it leads to; `local` 0 means any free port.

    `speaks` is the protocol in which its listener is asked whether it answers; one that speaks DAP keeps
    its editors while the pod is away. `own_clients` sends other users of this machine away: what is behind
    it may let everybody in. `address` is where it listens.
    """

    name: str
    local: int
    pod: int
    speaks: Speaks = "http"
    own_clients: bool = False
    address: str = "127.0.0.1"

    @property
    def url(self) -> str:
        """Returns the address of the local port, for people."""
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"{'tcp' if self.speaks == 'dap' else self.speaks}://{host}:{self.local}"


def document(kube: Kube, selector: str, forwards: Sequence[Forward]) -> str:
    """Returns the process's configuration as JSON: kubeconfig, context, namespace, selector, forwards."""
    config = {
        "kubeconfig": str(kube.kubeconfig),
        "context": kube.context,
        "namespace": kube.namespace,
        "selector": selector,
        "forwards": [asdict(forward) for forward in forwards],
    }
    return json.dumps(config, indent=2)


def parse(text: str) -> tuple[Kube, str, list[Forward]]:
    """Parses what `document` returns. Raises ValueError, KeyError or TypeError for anything else."""
    config: dict[str, Any] = json.loads(text)
    kube = Kube(Path(config["kubeconfig"]), config["context"], config["namespace"])
    return kube, config["selector"], [Forward(**forward) for forward in config["forwards"]]


class Forwarder:
    """Listens on this machine and joins each connection with a port of the pod that has the labels."""

    def __init__(
        self, kube: Kube, selector: str, forwards: Sequence[Forward], patience: Patience = USUAL
    ) -> None:
        self._target, self._forwards = (kube, selector), tuple(forwards)
        self._patience, self._pace = patience, Pace()
        self._servers: list[asyncio.Server] = []
        self._clients: set[asyncio.Task[None]] = set()
        # These serve the clients that are joined with a pod, and don't wait for one.
        self._joined: set[asyncio.Task[None]] = set()
        self._session: Session | None = None
        self._pod: str | None = None
        self._picking = asyncio.Lock()
        self._pause, self._not_before = _FIRST_PAUSE, 0.0
        self._last_logged = ""

    async def start(self) -> list[int]:
        """Listens, and returns the local ports in the order of the forwards. Raises PortTaken."""
        try:
            for forward in self._forwards:
                self._servers.append(await self._listen(forward))
        except BaseException:
            await self.stop()
            raise
        return [server.sockets[0].getsockname()[1] for server in self._servers]

    async def retarget(self, kube: Kube, selector: str) -> None:
        """Leads to another pod from now on; connections to the earlier pod end."""
        self._target = (kube, selector)
        # A client that waits for a pod gets the new one.
        await self._drop(self._joined)

    async def stop(self) -> None:
        for server in self._servers:
            server.close()
        await self._drop(self._clients)
        await asyncio.sleep(GOODBYE)

    async def _drop(self, clients: set[asyncio.Task[None]]) -> None:
        dropped = list(clients)
        for client in dropped:
            client.cancel()
        session, self._session = self._session, None
        self._pod, self._not_before, self._pause = None, 0.0, _FIRST_PAUSE
        await asyncio.gather(*dropped, return_exceptions=True)
        if session is not None:
            await session.close()

    async def _listen(self, forward: Forward) -> asyncio.Server:
        def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            client = asyncio.create_task(self._serve(forward, reader, writer))
            self._clients.add(client)
            client.add_done_callback(self._clients.discard)

        try:
            return await asyncio.start_server(accepted, forward.address, forward.local)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            holder = machine.port_holder(forward.local)
            who = f"{holder.program} (pid {holder.pid})" if holder else "a program that has just ended"
            raise PortTaken(
                f"port {forward.local} ({forward.name}) is taken by {who}",
                hint="end that program, then ./invokew up",
            ) from None

    async def _serve(
        self, forward: Forward, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            if forward.own_clients:
                require_own(writer.get_extra_info("socket"))
            way = partial(self._way, forward.pod)
            if forward.speaks == "dap":
                carrier = Carrier(
                    reader, writer, way, log=self._tell, patience=self._patience, pace=self._pace
                )
                await carrier.run()
                return
            joined = await way()
            try:
                await joined.tunnel.carry(reader, writer, linger=LINGER)
            except RaysideError as error:
                joined.failed(error)
                _reset(writer)
            finally:
                await joined.close()
        except asyncio.TimeoutError:
            _reset(writer)
        except (StrangerListens, OSError):
            self._tell("another user of this machine was sent away")
            _reset(writer)
        finally:
            writer.close()

    async def _way(self, port: int) -> Lease:
        """Opens a way for the current task's client. Raises TimeoutError while there is none."""
        client = asyncio.current_task()
        assert client is not None
        pod, session, tunnel = await within(PATIENCE, self._open(port))
        self._joined.add(client)

        async def close() -> None:
            self._joined.discard(client)
            await tunnel.close()
            session.tunnels -= 1
            await self._close_if_left(session)

        def failed(error: RaysideError) -> None:
            self._tell(error.message)
            self._lose(pod)

        return Lease(tunnel, tunnel.send, close, failed)

    async def _open(self, port: int) -> tuple[str, Session, Tunnel]:
        while True:
            pod, session = await self._pick()
            try:
                tunnel = await open_port(session, self._target[0].namespace, pod, port)
            except RaysideError as error:
                self._tell(error.message)
                if self._lose(pod):
                    self._back_off()
                continue
            if session is self._session:
                self._pause = _FIRST_PAUSE
                session.tunnels += 1
                return pod, session, tunnel
            await tunnel.close()  # It leads to what was the target when it was begun.

    async def _pick(self) -> tuple[str, Session]:
        """Returns the pod; one client at a time asks for it."""
        loop = asyncio.get_running_loop()
        async with self._picking:
            while self._pod is None or self._session is None:
                await asyncio.sleep(self._not_before - loop.time())
                kube, selector = target = self._target
                try:
                    session = await self._renewed(kube)
                    pod = await running_pod(session, kube.namespace, selector)
                except RaysideError as error:
                    if target is self._target:
                        self._tell(error.message)
                        self._back_off()
                    continue
                if session is self._session:
                    self._pod = pod
                    self._tell(f"to pod {pod}")
            return self._pod, self._session

    async def _renewed(self, kube: Kube) -> Session:
        """Returns the session; a new one where its credentials, or its kubeconfig, are of the past."""
        if self._session is not None and not self._session.outdated():
            return self._session
        session = await open_session(kube)
        if kube is not self._target[0]:
            await session.close()
            raise ClusterUnreachable("another cluster is wanted by now", hint="./invokew status shows which")
        earlier, self._session = self._session, session
        if earlier is not None:
            await self._close_if_left(earlier)
        return session

    async def _close_if_left(self, session: Session) -> None:
        """Closes a session that is not the present one as soon as it carries no more tunnel."""
        if session is not self._session and not session.tunnels:
            await session.close()

    def _lose(self, pod: str) -> bool:
        """Forgets the pod, and returns whether it was still the one to connect to."""
        if self._pod != pod:
            return False
        self._pod = None
        return True

    def _back_off(self) -> None:
        self._not_before = asyncio.get_running_loop().time() + self._pause
        self._pause = min(self._pause * 2, _LONGEST_PAUSE)

    def _tell(self, text: str) -> None:
        """Writes it into the log, once however often it is seen."""
        if text != self._last_logged:
            self._last_logged = text
            _log.info("%s", text)


def _reset(writer: asyncio.StreamWriter) -> None:
    """Ends a connection so that the client can't take a part of the answer for all of it."""
    # SO_LINGER is on, with 0 seconds: closing sends RST (socket(7)).
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


@contextmanager
def forwarded(kube: Kube, selector: str, port: int) -> Iterator[int]:
    """Yields a free port of 127.0.0.1 that leads, meanwhile, to that port of the pod with these labels."""
    with background_loop() as call:

        async def started() -> tuple[Forwarder, int]:
            forwarder = Forwarder(kube, selector, [Forward("forward", 0, port, own_clients=True)])
            return forwarder, (await forwarder.start())[0]

        async def stopped() -> None:
            await forwarder.stop()
            await asyncio.get_running_loop().shutdown_default_executor()

        forwarder, local = call(started())
        try:
            yield local
        finally:
            call(stopped())


# --- the process -------------------------------------------------------------------------


async def serve(file: Path) -> None:
    """Forwards until SIGTERM or SIGINT. Raises PortTaken."""
    signals: asyncio.Queue[int] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, signals.put_nowait, number)
    kube, selector, forwards = parse(file.read_text())
    forwarder = Forwarder(kube, selector, forwards)
    await forwarder.start()
    _log.info(
        "forwarding %s",
        ", ".join(f"{forward.local} to {forward.pod} ({forward.name})" for forward in forwards),
    )
    while await signals.get() == signal.SIGHUP:
        try:
            kube, selector, _ = parse(file.read_text())
        except (OSError, ValueError, KeyError, TypeError) as error:
            _log.info("%s is kept as it was: %r", file, error)
        else:
            _log.info("now for %s", selector)
            await forwarder.retarget(kube, selector)
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(forwarder.stop(), _GOODBYE)


def main() -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    try:
        asyncio.run(serve(Path(sys.argv[1])))
    except RaysideError as error:
        _log.info("error[%s]: %s", error.id, error.message)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
