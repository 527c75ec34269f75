"""Tests a real process's debugger port: strangers get nothing from it, and disturb nobody attached."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bootstrap.settings import ROOT
from rayside.dap.client import Client
from rayside.dap.framing import Decoder, encode
from rayside.errors import AttachFailed, DebuggerGone
from rayside.worker.attach import UNCHECKED
from rayside.worker.handshake import AUTHORIZE, DEBUG, proof
from rayside.worker.listener import _MOST_CHOOSING
from tests.integration.stranger import INITIALIZE, evaluates, exchange, request
from tests.patience import PATIENCE

pytestmark = pytest.mark.gate

TOKEN = b"the token of the cluster"
KNOWS = partial(proof, TOKEN)

PROGRAM = """\
import multiprocessing, os, sys, threading, time
sys.path.insert(0, sys.argv[1])
from rayside.worker import attach
attach.rays_token = lambda: sys.argv[2].encode()
import debugpy
print(attach.listen("127.0.0.1"), flush=True)
import pydevd

def pause():
    debugpy.wait_for_client()
    pydevd.settrace(stop_at_frame=sys._getframe().f_back)

def work(n):
    x = n + 1  # work
    breakpoint()
    return x

def in_thread(n):
    done = []
    thread = threading.Thread(target=lambda: done.append(work(n)))
    thread.start()
    thread.join()
    return done[0]

def forks():
    child = os.fork()
    if child == 0:
        work(1)
        sys.exit(7)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with multiprocessing.get_context("fork").Pool(2) as pool:
        return code, pool.map(work, range(3)), pool.map(in_thread, range(3))

for line in sys.stdin:
    if line == "pause\\n":
        secret = "never told"
        pause()
        after = 1  # after
        print("went on", flush=True)
    elif line == "forks\\n":
        debugpy.wait_for_client()
        import builtins
        own, builtins.breakpoint = builtins.breakpoint, lambda: None
        print(forks(), flush=True)
        builtins.breakpoint = own
    elif line == "fork\\n":
        print(os.fork() or time.sleep(600), flush=True)
"""


class Process:
    """Runs a process that does what it is told, line by line."""

    def __init__(self, script: Path) -> None:
        script.write_text(PROGRAM)
        self.script, self.errors = script, ""
        self.process = subprocess.Popen(
            [sys.executable, script, ROOT, TOKEN.decode()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **UNCHECKED},
        )
        self.port = int(self._line())

    def say(self, word: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()

    async def hear(self) -> str:
        return await asyncio.wait_for(asyncio.to_thread(self._line), PATIENCE)

    def end(self) -> str:
        """Waits for the end, and returns the standard error."""
        self.process.kill()
        errors = self.errors = self.errors or self.process.communicate()[1]
        return errors

    @property
    def line_of_work(self) -> int:
        return next(n for n, text in enumerate(PROGRAM.splitlines(), 1) if text.endswith("# work"))

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    async def attach(self, **how: Any) -> Client:
        return await attached(self.port, **{"exception_filters": ["uncaught"], **how})


async def attached(port: int, **how: Any) -> Client:
    """Attaches a client; raises AttachFailed."""
    client = await Client.connect("127.0.0.1", port)
    try:
        await client.attach(**{"prove": KNOWS, **how})
    except AttachFailed:
        await client.disconnect()
        raise
    return client


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    started = Process(tmp_path / "program.py")
    yield started
    started.end()


@asynccontextmanager
async def stopped(process: Process) -> AsyncIterator[tuple[Client, int]]:
    """Returns a session that is stopped, and its frame."""
    process.say("pause")
    client = await process.attach(options={"rules": [{"module": "__main__", "include": True}]})
    yield client, await frame_of(client)
    await client.disconnect()


async def frame_of(client: Client) -> int:
    while True:
        event = await asyncio.wait_for(client.events.get(), PATIENCE)
        assert event is not None
        if event["event"] == "stopped":
            trace = await client.request("stackTrace", {"threadId": event["body"]["threadId"]})
            return int(trace["stackFrames"][0]["id"])


async def drop(client: Client) -> None:
    """Ends the connection without a word."""
    client.close()
    await client.disconnect()


SECRET = request("evaluate", expression="secret", context="repl")
STRANGERS = {
    "evaluates at once": SECRET,
    "initializes, then evaluates": INITIALIZE + SECRET,
    "attaches as to debugpy": INITIALIZE + request("attach", justMyCode=False) + SECRET,
    "knows how to ask pydevd": INITIALIZE + request("pydevdAuthorize", debugServerAccessToken="x") + SECRET,
    "has no proof": INITIALIZE + request(AUTHORIZE, nonce="0" * 64, proof="") + INITIALIZE + SECRET,
    "has another token's proof": INITIALIZE
    + request(AUTHORIZE, nonce="0" * 64, proof=proof(b"", "client", ("", "0" * 64), ("127.0.0.1", 1)))
    + INITIALIZE
    + SECRET,
    "sends proofs that are no text": INITIALIZE + request(AUTHORIZE, nonce=["x"], proof={"a": 1}) + SECRET,
    "speaks pydevd's own protocol": b"501\t1\t0.1\tUNIX\tID\n" + b"113\t3\tpid\t0\tFRAME\tsecret\n",
    "sends a long header": b"X" * 100_000,
    "announces a long message": b"Content-Length: 99999999999\r\n\r\n" + b"x" * 10_000,
    "sends a negative length": b"Content-Length: -1\r\n\r\n{}",
    "sends no JSON": b"Content-Length: 4\r\n\r\nabcd",
    "sends a list": b"Content-Length: 2\r\n\r\n[]",
    "nests deeply": b"Content-Length: 4000\r\n\r\n" + b"[" * 4000,
    "says nothing": b"",
}


async def test_a_debugger_that_knows_the_token_stops_and_evaluates(process: Process) -> None:
    async with stopped(process) as (client, frame):
        assert (await client.request("evaluate", {"expression": "secret", "frameId": frame}))["result"] == (
            "'never told'"
        )
    assert await process.hear() == "went on"


@pytest.mark.parametrize("who", STRANGERS)
async def test_a_stranger_gets_nothing_and_disturbs_nobody(process: Process, who: str) -> None:
    async with stopped(process) as (client, frame):
        for _ in range(12):  # more than pydevd would let anybody try
            answers = await asyncio.to_thread(exchange, ("127.0.0.1", process.port), STRANGERS[who])
            assert "never told" not in repr(answers)
            for answer in answers:
                assert not answer["success"] or answer["command"] == "initialize", answers
        answer = await client.request("evaluate", {"expression": "secret", "frameId": frame})
        assert answer["result"] == "'never told'"
    assert await process.hear() == "went on"


async def test_strangers_who_only_hold_the_line_keep_nobody_out(process: Process) -> None:
    connections = [socket.create_connection(("127.0.0.1", process.port)) for _ in range(50)]
    try:
        async with stopped(process):
            pass
        assert await process.hear() == "went on"
    finally:
        for connection in connections:
            connection.close()


async def test_a_second_debugger_is_refused_and_the_first_is_unharmed(process: Process) -> None:
    async with stopped(process) as (client, frame):
        with pytest.raises(AttachFailed, match="another debugger is attached"):
            await process.attach()
        assert (await client.request("evaluate", {"expression": "1 + 1", "frameId": frame}))["result"] == "2"


class Chooser:
    """Knows the token, and has not said yet whether it wants the process: a relay that asks Ray."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer, self._decoder = reader, writer, Decoder()

    @classmethod
    async def of(cls, process: Process) -> Chooser:
        own = cls(*await asyncio.open_connection("127.0.0.1", process.port))
        nonces = (await own.answer(INITIALIZE))["rayside"]["nonce"], "0" * 64
        shown = KNOWS("client", nonces, ("127.0.0.1", process.port))
        body = await own.answer(request(AUTHORIZE, nonce=nonces[1], proof=shown, user="anna"))
        assert (body["job"], body["submission"], body["user"]) == ("", "", "")
        return own

    async def answer(self, message: bytes) -> Any:
        self.writer.write(message)
        messages: list[Any] = []
        while not messages:
            data = await asyncio.wait_for(self.reader.read(65536), PATIENCE)
            assert data, "it was ended"
            messages = self._decoder.feed(data)
        return messages[0]["body"]

    async def ended(self) -> None:
        """Waits until the process has ended the connection."""
        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.wait_for(self.reader.read(), PATIENCE) == b""


async def test_of_those_who_choose_without_end_the_oldest_is_ended(process: Process) -> None:
    choosers = [await Chooser.of(process) for _ in range(_MOST_CHOOSING + 1)]
    try:
        await choosers[0].ended()
        assert (await choosers[1].answer(request(DEBUG)))["taken"] is True
        # Who was told is no longer one of them.
        choosers.append(await Chooser.of(process))
        assert (await choosers[2].answer(request(DEBUG)))["taken"] is False
    finally:
        for chooser in choosers:
            chooser.writer.close()


async def test_a_fork_keeps_no_connection_of_who_chooses(process: Process) -> None:
    chooser = await Chooser.of(process)
    process.say("fork")
    fork = int(await process.hear())
    process.process.kill()
    try:
        await chooser.ended()
    finally:
        os.kill(fork, signal.SIGKILL)
        chooser.writer.close()


async def test_a_debugger_that_goes_while_it_is_let_in_keeps_nobody_out(process: Process) -> None:
    first = await process.attach()
    reader, writer = await asyncio.open_connection("127.0.0.1", process.port)
    writer.write(INITIALIZE)
    decoder = Decoder()
    while not (messages := decoder.feed(await reader.read(65536))):
        pass
    nonces, address = (messages[0]["body"]["rayside"]["nonce"], "0" * 64), ("127.0.0.1", process.port)
    writer.write(request(AUTHORIZE, nonce=nonces[1], proof=KNOWS("client", nonces, address)))
    await writer.drain()
    # It waits for the first one's end by then; its own is a reset, so that the answer can't be sent.
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
    await first.disconnect()
    await (await process.attach()).disconnect()


async def test_without_a_proof_the_client_is_told_what_is_asked_for(process: Process) -> None:
    with pytest.raises(AttachFailed, match="proof that you know Ray's token"):
        await process.attach(prove=None)
    with pytest.raises(AttachFailed, match="proof that you know Ray's token"):
        await process.attach(prove=partial(proof, b"another cluster's"))


@pytest.mark.parametrize("in_flight", ["nothing", "an evaluate"])
async def test_a_debugger_whose_connection_is_lost_lets_the_task_go_on_and_may_come_back(
    process: Process, in_flight: str
) -> None:
    for _ in range(3):
        process.say("pause")
        client = await process.attach(options={"rules": [{"module": "__main__", "include": True}]})
        frame = await frame_of(client)
        if in_flight == "an evaluate":
            lost = asyncio.ensure_future(
                client.request("evaluate", {"expression": "__import__('time').sleep(0.5)", "frameId": frame})
            )
            await client.request("threads")  # answered in order: the evaluate has begun
            await drop(client)
            with pytest.raises(DebuggerGone):
                await lost
        else:
            await drop(client)
        assert await process.hear() == "went on"


async def test_who_passes_the_handshake_on_gets_no_session(process: Process) -> None:
    """Somebody has the port of a worker that has ended, and leads the relay to another worker."""
    async with stopped(process):

        async def lead_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            from_process, to_process = await asyncio.open_connection("127.0.0.1", process.port)

            async def copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
                while data := await source.read(65536):
                    sink.write(data)
                sink.close()
                await sink.wait_closed()

            await asyncio.gather(copy(reader, to_process), copy(from_process, writer))

        server = await asyncio.start_server(lead_on, "127.0.0.1", 0)
        try:
            with pytest.raises(AttachFailed, match="proof"):
                await attached(server.sockets[0].getsockname()[1])
        finally:
            server.close()


async def test_who_does_not_know_the_token_is_not_taken_for_a_debuggee() -> None:
    commands: list[str] = []

    async def pretend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        decoder = Decoder()
        while data := await reader.read(65536):
            for message in decoder.feed(data):
                commands.append(message["command"])
                body = {"rayside": {"nonce": "1" * 64}, "proof": "2" * 64}
                answer = {"type": "response", "request_seq": message["seq"], "success": True, "body": body}
                writer.write(encode({"seq": 1, "command": message["command"], **answer}))
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(pretend, "127.0.0.1", 0)
    try:
        with pytest.raises(AttachFailed, match="does not know Ray's token"):
            await attached(server.sockets[0].getsockname()[1])
    finally:
        server.close()
    assert commands[:2] == ["initialize", AUTHORIZE]
    assert set(commands[2:]) <= {"disconnect"}


async def test_forks_run_on_past_breakpoints_and_one_line_says_so(process: Process) -> None:
    process.say("forks")
    client = await process.attach(breakpoints={str(process.script): [{"line": process.line_of_work}]})
    assert await process.hear() == "(7, [1, 2, 3], [1, 2, 3])"
    await client.disconnect()
    assert process.end().count("rayside: this process forks others") == 1


async def test_the_port_of_a_process_that_ended_is_not_held_by_its_forks(process: Process) -> None:
    client = await process.attach()
    fork = await client.request(
        "evaluate", {"expression": "__import__('os').fork() or __import__('time').sleep(60)"}
    )
    process.process.kill()
    try:
        await asyncio.wait_for(client.closed.wait(), PATIENCE)
        await asyncio.to_thread(process.process.wait)
        with pytest.raises(DebuggerGone):
            await Client.connect("127.0.0.1", process.port)
    finally:
        os.kill(int(fork["result"]), signal.SIGKILL)


OPEN = """\
import debugpy, sys
debugpy.configure(subProcess=False)
print(debugpy.listen(("127.0.0.1", 0))[1], flush=True)
sys.stdin.read()
"""


def test_what_a_stranger_tries_works_where_nobody_asks_for_a_proof(process: Process) -> None:
    assert not evaluates(("127.0.0.1", process.port))
    with subprocess.Popen(
        [sys.executable, "-c", OPEN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as unguarded:
        assert unguarded.stdout is not None
        try:
            assert evaluates(("127.0.0.1", int(unguarded.stdout.readline())))
        finally:
            unguarded.kill()
