"""One run of a port-forwarding program, from its start to its end, and the connections through it."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import re
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rayside.default_folders import short_folder
from rayside.errors import RaysideError
from rayside.loopback import require_own
from rayside.plain import line, printed
from rayside.reach.programs import Address, Program, Ssh, environment
from rayside.worker.redaction import Redactor

# Seconds without a connection after which a program ends that would not notice a lost pod.
IDLE = 60.0
# Timeout in seconds for the program to listen: jump hosts and login plugins take time.
LET_IN = 30.0
# Seconds without a first byte after which a client that leaves makes the program count as dead.
_IN_VAIN = 1.5
# Timeouts in seconds: for the program to end, for a connection to flush.
_GOODBYE, _CLOSING = 1.0, 0.3
CHUNK = 65_536
# Limits: characters of a line that are read, and shown; lines of error output.
_READ, _SHOWN, _MOST = 2000, 300, 20
# klog's prefix of a message, which differs each time (k8s.io/klog).
_KLOG = re.compile(r"^[IWEF]\d{4} [\d:.]+ +\d+ [\w./-]+:\d+\] ")
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
# Looked up here: between fork and exec, a lock held by another thread is never released.
_PRCTL = ctypes.CDLL(None).prctl if sys.platform == "linux" else None
_LOOK_AGAIN = 0.05  # seconds


class Run:
    """Single run of a program.

    Attributes:
        task: ends when the program has ended.
        said: lines of its error output, cleaned; `error` is set if it could not be started.
        began, ended: when it began to listen, and when it ended, by the event loop's clock; 0 before.
        heard: when the last bytes came through it.
    """

    def __init__(self, program: Program, port: int, delay: float, log: Callable[[str], None]) -> None:
        self._program, self._port, self._log = program, port, log
        self._loop = asyncio.get_running_loop()
        self._address: asyncio.Future[Address] = self._loop.create_future()
        self.said: list[str] = []
        self.error: RaysideError | None = None
        self.began = self.ended = self.heard = 0.0
        self._connections, self._ends = 0, False
        self._timer: asyncio.TimerHandle | None = None
        self.task = asyncio.create_task(self._run(delay))

    def end(self) -> None:
        """Ends the program; a second call changes nothing."""
        if not self._ends:
            self._ends = True
            self.task.cancel()

    @property
    def is_over(self) -> bool:
        """Returns whether the program has ended, or is being ended."""
        return self._ends or self.task.done()

    async def listens(self) -> bool:
        """Waits until the program listens or ends; returns whether it has listened."""
        waiting: set[asyncio.Future[Any]] = {self._address, self.task}
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        return self._address.done()

    async def connect(self) -> Way:
        """Connects to the program's address. Raises OSError; StrangerListens for another user's listener."""
        address = self._address.result()
        if isinstance(address, Path):
            reader, writer = await asyncio.open_unix_connection(str(address))
        else:
            reader, writer = await asyncio.open_connection("127.0.0.1", address)
            try:
                require_own(writer.get_extra_info("socket"))
            except BaseException:
                writer.transport.abort()
                raise
        self._count(1)
        return Way(self, reader, writer)

    def left(self, asked: float) -> None:
        """Removes a connection from the count; `asked` is the time of its first request, 0 without one."""
        self._count(-1)
        waited = self._loop.time() - asked
        if asked and waited > _IN_VAIN and self.heard < asked and not self._program.notices_loss:
            self.end()

    def _count(self, more: int) -> None:
        """Counts connections; without any, a program that notices no loss ends after `IDLE` seconds."""
        self._connections += more
        self._end_in(None if self._connections or self._program.notices_loss else IDLE)

    def _end_in(self, seconds: float | None, why: str = "") -> None:
        def end() -> None:
            if why:
                self._tell(why)
            self.end()

        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None else self._loop.call_later(seconds, end)

    async def _run(self, delay: float) -> None:
        await asyncio.sleep(delay)
        self._end_in(LET_IN, f"it did not lead there within {LET_IN:g} s")
        try:
            listed: list[str] = []
            search = self._program.search()
            if search and await self._execute(search, listed.append):
                return
            found = self._program.found("\n".join(listed))
            self._log(f"to {found}")
            with _folder(self._program) as folder:
                await self._forward(found, Path(folder, "s"))
        except RaysideError as error:
            self.error = error
            self._log(error.message)
        except OSError as error:
            self._tell(str(error))
        finally:
            self._end_in(None)
            self.ended = self._loop.time()

    async def _forward(self, found: str, socket: Path) -> None:
        def look(said: str) -> None:
            if not self._address.done() and (address := self._program.listens(said, socket)):
                self.began = self._loop.time()
                self._address.set_result(address)
                self._count(0)

        code = await self._execute(self._program.command(found, self._port, socket), look)
        self._log(f"the program ended with exit code {code}; it is started again when it is needed")

    def _tell(self, said: str) -> None:
        if len(self.said) < _MOST:
            text = line(Redactor(()).text(printed(_KLOG.sub("", said))), _SHOWN)
            self.said.append(text)
            self._log(text)

    async def _execute(self, command: list[str], on_line: Callable[[str], None]) -> int:
        """Runs a command to its end, or ends it on cancellation; returns its exit code."""
        process = await asyncio.create_subprocess_exec(
            *command,
            env=environment(),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=_READ,
            start_new_session=True,
            preexec_fn=_end_with_parent if _PRCTL else None,
        )
        assert process.stdout and process.stderr
        streams = ((process.stdout, on_line), (process.stderr, self._tell))
        readers = [asyncio.create_task(_read(*stream)) for stream in streams]
        try:
            await _ended(process)
        finally:
            await _end(process)
            # A child that left the process group may still hold the streams.
            await asyncio.wait(readers, timeout=_GOODBYE)
            for reader in readers:
                reader.cancel()
            await asyncio.wait(readers)
        return process.returncode or 0


class Way:
    """Connection through a run; it implements `Way` of editor_connection.py."""

    def __init__(self, run: Run, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.run, self.writer, self._reader = run, writer, reader
        self.heard = self._asked = 0.0

    async def read(self) -> bytes:
        data = await self._reader.read(CHUNK)
        if data:
            self.heard = self.run.heard = asyncio.get_running_loop().time()
        return data

    async def send(self, data: bytes) -> None:
        self._asked = self._asked or asyncio.get_running_loop().time()
        self.writer.write(data)
        await self.writer.drain()

    async def close(self) -> None:
        self.run.left(self._asked)
        self.writer.close()
        closed = asyncio.ensure_future(self.writer.wait_closed())
        try:
            await asyncio.wait({closed}, timeout=_CLOSING)
        finally:
            # The rest can't be delivered any more, as over a lost network.
            self.writer.transport.abort()
            await asyncio.gather(closed, return_exceptions=True)


def _folder(program: Program) -> contextlib.AbstractContextManager[str]:
    """Returns a folder for ssh's socket: the state folder's path may be too long for a socket."""
    if isinstance(program, Ssh):
        return tempfile.TemporaryDirectory(prefix="rayside-forward-", dir=short_folder())
    return contextlib.nullcontext("")


async def _read(stream: asyncio.StreamReader, on_line: Callable[[str], None]) -> None:
    while True:
        try:
            said = await stream.readuntil()
        except asyncio.IncompleteReadError as end:
            if not (said := end.partial):
                return
        except asyncio.LimitOverrunError:
            said = await stream.read(_READ)
        on_line(said.decode(errors="replace").rstrip("\r\n"))


async def _ended(process: asyncio.subprocess.Process) -> None:
    """Waits for the process's end; in Python 3.11.7 and 3.13.0 `wait` also waits for heirs of its streams."""
    while process.returncode is None:
        await asyncio.sleep(_LOOK_AGAIN)


async def _end(process: asyncio.subprocess.Process) -> None:
    """Ends the process, and a plugin or a ProxyCommand that it runs."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        # Also after the process itself has ended: its children keep the group.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(_ended(process), _GOODBYE)


def _end_with_parent() -> None:
    """Asks the kernel to end the program when this process is killed (prctl(2)).

    On other systems than Linux it stays until `up` or `down`, which find it by its inherited mark.
    """
    assert _PRCTL
    _PRCTL(_PR_SET_PDEATHSIG, signal.SIGTERM)
