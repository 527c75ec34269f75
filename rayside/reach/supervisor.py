"""Supervisor of port forwards: `python -m rayside.reach.supervisor FILE` runs a program for each.

This process listens on the ports from its start to its end, so that no other program takes one while the
network is down or a pod is replaced. Each port has a separate program, `kubectl port-forward` or `ssh`:
kubectl ends at the first failed connection, which must not end those of other ports. The program starts when
a client connects, and again after it has ended. FILE is JSON, as `document` makes it; SIGHUP reloads it.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import logging
import os
import signal
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rayside.errors import PortTaken, RaysideError, StrangerListens
from rayside.event_loop import background_loop, within
from rayside.loopback import require_own
from rayside.ports import port_holder
from rayside.reach.editor_connection import EditorConnection, Speaks
from rayside.reach.patience import USUAL, Pace, Patience
from rayside.reach.programs import Kubectl, Program, Ssh
from rayside.reach.run import CHUNK, Run, Way

# Timeout in seconds of a client for the program.
PATIENCE = 10.0
# Seconds without an answer after which a half-closed connection of a client ends.
LINGER = 5.0
# Seconds: first pause between two runs, which each failure doubles; duration of a run that resets it.
_FIRST_PAUSE, _LASTED = 0.2, 10.0
# The log does not repeat any of its last lines.
_LAST_LINES = 20

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Forward:
    """Local port and the remote port that it forwards to; `local` 0 means any free port.

    `speaks` is the protocol of the health check; a forward with DAP keeps its editors while the connection
    is lost. `own_clients` rejects other users of this machine: the remote service may accept everybody.
    `address` is the local address to listen on.
    """

    name: str
    local: int
    remote: int
    speaks: Speaks = "http"
    own_clients: bool = False
    address: str = "127.0.0.1"

    @property
    def url(self) -> str:
        """Returns the address of the local port, for people."""
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"{'tcp' if self.speaks == 'dap' else self.speaks}://{host}:{self.local}"


def document(program: Program, forwards: Sequence[Forward]) -> str:
    """Returns the text of FILE: the program and its forwards."""
    config = {"program": asdict(program), "forwards": [asdict(each) for each in forwards]}
    return json.dumps(config, indent=2)


def parse(text: str) -> tuple[Program, list[Forward]]:
    """Parses what `document` returns. Raises ValueError, KeyError or TypeError for anything else."""
    config: dict[str, Any] = json.loads(text)
    program = Ssh if "host" in config["program"] else Kubectl
    return program(**config["program"]), [Forward(**each) for each in config["forwards"]]


class Port:
    """Local port, from `start` to `stop`, with the program that forwards it."""

    def __init__(self, forward: Forward, program: Program, patience: Patience = USUAL) -> None:
        self._forward, self._program, self._patience = forward, program, patience
        self._pace = Pace()
        self._server: asyncio.Server | None = None
        self._run: Run | None = None
        self._pause = _FIRST_PAUSE
        self._runs: set[Run] = set()
        self._clients: set[asyncio.Task[None]] = set()
        self._logged: deque[str] = deque(maxlen=_LAST_LINES)

    async def start(self) -> int:
        """Listens, and returns the port. Raises PortTaken."""
        forward = self._forward
        try:
            self._server = await asyncio.start_server(self._accept, forward.address, forward.local)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            holder = port_holder(forward.local)
            raise PortTaken(
                f"port {forward.local} ({forward.name}) is taken by "
                f"{holder.words if holder else 'a program that has just ended'}",
                hint="end that program, then ./invokew up",
            ) from None
        return int(self._server.sockets[0].getsockname()[1])

    async def leads(self) -> None:
        """Waits until the program forwards the port. Raises the program's error if it fails."""
        run = self._run = self._next_run()
        if not await run.listens():
            raise run.error or self._program.failed(run.said)

    def retarget(self, program: Program) -> None:
        """Changes the target: open connections end, and waiting clients get the new target."""
        if self._run is not None:
            self._run.end()
        self._program, self._run, self._pause = program, None, _FIRST_PAUSE

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        # The program ends last: through it, the relay learns that its editors don't come back.
        await _cancelled(self._clients)
        for run in (ending := list(self._runs)):
            run.end()
        await asyncio.gather(*(run.task for run in ending), return_exceptions=True)

    # --- the program ---------------------------------------------------------------------

    def _next_run(self) -> Run:
        delay, earlier = 0.0, self._run
        if earlier is not None:
            has_lasted = earlier.began and earlier.ended - earlier.began > _LASTED
            longer = min(self._pause * 2, self._program.longest_pause)
            self._pause = _FIRST_PAUSE if has_lasted else longer
            delay = max(0.0, earlier.ended + self._pause - asyncio.get_running_loop().time())
        run = Run(self._program, self._forward.remote, delay, self._tell)
        self._runs.add(run)
        run.task.add_done_callback(lambda _: self._runs.discard(run))
        return run

    async def _listens(self) -> Run:
        """Waits for a run of the program that forwards the port; returns it."""
        while True:
            if self._run is None or self._run.is_over:
                self._run = self._next_run()
            run = self._run
            await run.listens()
            if run is self._run and not run.is_over:
                return run

    async def _open(self) -> Way:
        """Returns a connection to the target. Raises TimeoutError if no program forwards the port."""
        loop = asyncio.get_running_loop()
        until = loop.time() + PATIENCE
        while True:
            run = await within(until - loop.time(), self._listens())
            with contextlib.suppress(OSError, StrangerListens):
                way = await run.connect()
                if run is self._run:
                    return way
                await way.close()
                continue
            # The program has just ended, and another program may have taken its port.
            run.end()
            await asyncio.wait({run.task})

    def _tell(self, text: str) -> None:
        """Logs a text, unless it is among the last logged ones."""
        if text not in self._logged:
            self._logged.append(text)
            _log.info("%s: %s", self._forward.name, text)

    # --- clients -------------------------------------------------------------------------

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = asyncio.create_task(self._serve(reader, writer))
        self._clients.add(client)
        client.add_done_callback(self._clients.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if self._forward.own_clients:
                require_own(writer.get_extra_info("socket"))
            if self._forward.speaks == "dap":
                connection = EditorConnection(
                    reader, writer, self._open, log=self._tell, patience=self._patience, pace=self._pace
                )
                await connection.run()
                return
            way = await self._open()
            try:
                await _join(way, reader, writer)
            finally:
                await way.close()
        except (OSError, asyncio.TimeoutError):
            pass
        except StrangerListens:
            self._tell("another user of this machine was sent away")
        finally:
            writer.close()


async def _join(way: Way, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copies in both directions until the remote side ends, or `LINGER` seconds after the client did.

    The seconds count from the last received bytes: a client that closes only its half, and a client that has
    gone, look alike. Bytes for a client that has gone are still read: kubectl would end, with all other
    connections, if one of its own is reset.
    """

    async def up() -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK):
                await way.send(data)
        with contextlib.suppress(OSError):
            way.writer.write_eof()

    async def down() -> None:
        with contextlib.suppress(OSError):
            while data := await way.read():
                if not writer.is_closing():
                    writer.write(data)
                    with contextlib.suppress(ConnectionError):
                        await writer.drain()

    asking, answering = asyncio.create_task(up()), asyncio.create_task(down())
    try:
        await asyncio.wait({asking, answering}, return_when=asyncio.FIRST_COMPLETED)
        heard = -1.0
        while not answering.done() and heard != way.heard:
            heard = way.heard
            await asyncio.wait({answering}, timeout=LINGER)
            if writer.is_closing():  # The client has gone.
                return
    finally:
        await _cancelled({asking, answering})


async def _cancelled(tasks: set[asyncio.Task[None]]) -> None:
    for task in (waiting := list(tasks)):
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


@contextmanager
def forwarded(program: Program, remote: int, *, at_once: bool = False) -> Iterator[int]:
    """Yields a free port of 127.0.0.1 that forwards to the target's port `remote` while in the context.

    `at_once`: first waits until the forward works. Raises MissingProgram, and with `at_once` SshFailed,
    ClusterUnreachable, NotRunning.
    """
    program.require()
    with background_loop() as call:

        async def started() -> tuple[Port, int]:
            port = Port(Forward("forward", 0, remote, own_clients=True), program)
            local = await port.start()
            try:
                if at_once:
                    await port.leads()
            except BaseException:
                await port.stop()
                raise
            return port, local

        port, local = call(started())
        try:
            yield local
        finally:
            call(port.stop())


# --- the process -------------------------------------------------------------------------


async def serve(file: Path) -> None:
    """Forwards until SIGTERM or SIGINT. Raises PortTaken."""
    program, forwards = parse(file.read_text())
    ports = [Port(forward, program) for forward in forwards]
    stop, loop = asyncio.Event(), asyncio.get_running_loop()

    def retarget() -> None:
        try:
            program, _ = parse(file.read_text())
        except (OSError, ValueError, KeyError, TypeError) as error:
            _log.info("%s is kept as it was: %r", file, error)
            return
        _log.info("now for %s", program)
        for port in ports:
            port.retarget(program)

    loop.add_signal_handler(signal.SIGHUP, retarget)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        for port in ports:
            await port.start()
        told = ", ".join(f"{each.local} to {each.remote} ({each.name})" for each in forwards)
        _log.info("forwarding %s", told)
        await stop.wait()
    finally:
        await asyncio.gather(*(port.stop() for port in ports))


def main() -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    os.umask(0o077)
    try:
        asyncio.run(serve(Path(sys.argv[1])))
    except RaysideError as error:
        _log.info("error[%s]: %s", error.id, error.message)
        return error.exit_code
    except OSError as error:
        _log.info("%s", error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
