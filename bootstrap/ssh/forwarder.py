"""Keeps a port of this machine leading to a host: `python -m bootstrap.ssh.forwarder FILE`.

FILE is JSON, as `document` makes it. The port is this process's from its start to its end, so that nobody
takes it while the network is away. Behind it is a socket in a folder of ours, which ssh leads to the host.
When ssh ends, because the host has gone or this machine slept, it is started again.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import logging
import os
import shutil
import signal
import sys
import tempfile
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bootstrap.carrier.carrier import Carrier, Speaks
from bootstrap.carrier.patience import USUAL, Pace, Patience
from bootstrap.default_folders import short_folder
from bootstrap.errors import MissingProgram, PortTaken, RaysideError, SshFailed, StrangerListens
from bootstrap.event_loop import background_loop, within
from bootstrap.loopback import require_own
from bootstrap.plain import line
from bootstrap.ssh.client import command, environment

# Seconds between an ssh that ended and the next; each failure doubles them, one that lasted takes them back.
_FIRST_PAUSE, _LONGEST_PAUSE, _LASTED = 0.5, 15.0, 30.0
# ssh may take so many seconds to be let in: jump hosts, slow name servers.
_LET_IN = 20.0
# A client is kept waiting for ssh at most so many seconds; ssh is looked after every so many.
_PATIENCE, _LOOK = 5.0, 0.05
# Ending may take ssh so many seconds.
_GOODBYE = 1.0
# A way may take so many seconds to take what is left when it is closed.
_CLOSING = 0.3
_CHUNK = 65_536
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
# What ssh says of these is of the user's own forwards, or no failure.
_NO_REASON = ("Warning: Permanently added", "Could not request local forwarding", "bind [", "bind: ")

_log = logging.getLogger(__name__)


def document(host: str, local: int, remote: int, speaks: Speaks = "http") -> str:
    """Returns the text of FILE: `local`, a port of this machine, leads to `remote`, one of the host's."""
    return json.dumps({"host": host, "local": local, "remote": remote, "speaks": speaks})


class Forwarder:
    """Joins each connection of this user to the port of 127.0.0.1 with `remote` of the host's loopback.

    Editors, of a port that speaks DAP, keep theirs while ssh is away.
    """

    def __init__(self, host: str, remote: int, speaks: Speaks = "http", patience: Patience = USUAL) -> None:
        self._host, self._remote = host, remote
        self._speaks, self._patience, self._pace = speaks, patience, Pace()
        # The state folder's path may be too long for a socket's.
        self._folder = Path(tempfile.mkdtemp(prefix="rayside-ssh-", dir=short_folder()))
        self._socket = self._folder / "s"
        self._server: asyncio.Server | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._joined: set[asyncio.Task[None]] = set()
        self._said: deque[str] = deque(maxlen=20)
        self._last_logged = ""
        self.ended = asyncio.Event()

    async def start(self, local: int) -> int:
        """Listens, and starts ssh; `local` 0 means any free port. Returns the port.

        Raises PortTaken, MissingProgram.
        """
        if shutil.which("ssh") is None:
            raise MissingProgram("ssh is not on this machine", hint="install OpenSSH's client")
        try:
            self._server = await asyncio.start_server(self._accept, "127.0.0.1", local)
        except OSError as error:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise PortTaken(f"port {local} is taken: {error}", hint="./invokew doctor says by whom") from None
        self._keeping = asyncio.create_task(self._keep())
        return int(self._server.sockets[0].getsockname()[1])

    async def let_in(self) -> None:
        """Waits until ssh leads to the host. Raises SshFailed with what ssh said."""
        with contextlib.suppress(asyncio.TimeoutError):
            await within(_LET_IN, self._stands())
        if not self._socket.exists():
            reasons = [text for text in self._said if not text.startswith(_NO_REASON)]
            why = reasons[-1] if reasons else f"it was not let in within {_LET_IN:g} s"
            raise SshFailed(
                f"ssh does not lead to {self._host}: {why}",
                hint=f"try it by hand, until it asks for nothing: ssh -o BatchMode=yes {self._host} true",
            )

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        # Relays are told by ssh that their editors don't come back, so ssh ends last.
        for tasks in (list(self._joined), [self._keeping] if self._keeping is not None else []):
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        shutil.rmtree(self._folder, ignore_errors=True)

    async def _stands(self) -> None:
        while not self._socket.exists() and not self.ended.is_set():
            await asyncio.sleep(_LOOK)

    # --- ssh -----------------------------------------------------------------------------

    async def _keep(self) -> None:
        """Keeps ssh running until it is cancelled."""
        pause, loop = _FIRST_PAUSE, asyncio.get_running_loop()
        while True:
            began = loop.time()
            await self._run()
            self.ended.set()
            self._socket.unlink(missing_ok=True)
            await asyncio.sleep(pause)
            pause = _FIRST_PAUSE if loop.time() - began > _LASTED else min(pause * 2, _LONGEST_PAUSE)
            self.ended.clear()

    async def _run(self) -> None:
        ssh = await asyncio.create_subprocess_exec(
            *command(self._host, self._socket, self._remote),
            env=environment(),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            preexec_fn=_end_with_parent if sys.platform == "linux" else None,
        )
        assert ssh.stderr is not None
        try:
            # A line may be as long as its writer likes.
            while said := await ssh.stderr.read(_CHUNK):
                for text in said.decode(errors="replace").splitlines():
                    self._tell(line(text)[:300])
            await ssh.wait()
            self._tell(f"ssh ended with exit code {ssh.returncode}; it is started again")
        finally:
            if ssh.returncode is None:
                ssh.terminate()
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(ssh.wait(), _GOODBYE)
                if ssh.returncode is None:
                    ssh.kill()
                    await ssh.wait()

    def _tell(self, text: str) -> None:
        """Keeps what ssh said, and writes it into the log, once however often it is said in a row."""
        if not text.startswith("ssh ended"):
            self._said.append(text)
        if text != self._last_logged:
            self._last_logged = text
            _log.info("%s", text)

    # --- clients -------------------------------------------------------------------------

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = asyncio.create_task(self._serve(reader, writer))
        self._joined.add(client)
        client.add_done_callback(self._joined.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            # ssh keeps strangers from the host; this port must not let other users of this machine in.
            require_own(writer.get_extra_info("socket"))
            if self._speaks == "dap":
                carrier = Carrier(
                    reader, writer, self._open, log=self._tell, patience=self._patience, pace=self._pace
                )
                await carrier.run()
                return
            way = await self._open()
            try:
                await _join((reader, way.writer), (way.reader, writer))
            finally:
                way.writer.close()
        except (OSError, asyncio.TimeoutError):
            pass
        except StrangerListens:
            self._tell("another user of this machine was sent away")
        finally:
            writer.close()

    async def _open(self) -> _Way:
        """Raises OSError or TimeoutError while ssh leads nowhere."""
        await within(_PATIENCE, self._stands())
        return _Way(*await asyncio.open_unix_connection(str(self._socket)))


@dataclass(frozen=True)
class _Way:
    """A connection to the host's port."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def read(self) -> bytes:
        return await self.reader.read(_CHUNK)

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def close(self) -> None:
        self.writer.close()
        closed = asyncio.ensure_future(self.writer.wait_closed())
        try:
            await asyncio.wait({closed}, timeout=_CLOSING)
        finally:
            # What was not taken by now never will be, as by a network that has gone.
            self.writer.transport.abort()
            await asyncio.gather(closed, return_exceptions=True)


async def _join(*ways: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> None:
    """Copies both ways; each way that ends ends the other side's half."""

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(_CHUNK):
                writer.write(data)
                await writer.drain()
            writer.write_eof()

    await asyncio.gather(*(copy(*way) for way in ways))


def _end_with_parent() -> None:
    """Has the kernel end ssh when this process is killed (prctl(2))."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


@contextmanager
def forwarded(host: str, remote: int) -> Iterator[int]:
    """Yields a free port of this machine that leads, meanwhile, to that of the host. Raises SshFailed."""
    with background_loop() as call:

        async def started() -> tuple[Forwarder, int]:
            forwarder = Forwarder(host, remote)
            port = await forwarder.start(0)
            try:
                await forwarder.let_in()
            except BaseException:
                await forwarder.stop()
                raise
            return forwarder, port

        forwarder, port = call(started())
        try:
            yield port
        finally:
            call(forwarder.stop())


# --- the process -------------------------------------------------------------------------


async def serve(file: Path) -> None:
    """Forwards until SIGTERM or SIGINT. Raises PortTaken."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    config = json.loads(file.read_text())
    forwarder = Forwarder(str(config["host"]), int(config["remote"]), config["speaks"])
    await forwarder.start(int(config["local"]))
    await stop.wait()
    await forwarder.stop()


def main() -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    os.umask(0o077)
    try:
        asyncio.run(serve(Path(sys.argv[1])))
    except RaysideError as error:
        _log.info("error[%s]: %s", error.id, error.message)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
