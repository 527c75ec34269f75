"""Sends many broken messages from editors and debuggees: the relay keeps running, and does not grow.

Mutations of valid messages, always the same ones for the same seed. What each side sent is counted.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import json
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from bootstrap.settings import ROOT
from rayside.dap.client import Client
from rayside.dap.framing import Message
from rayside.relay.config import Config
from tests.integration.conftest import free_ports
from tests.integration.relay_debuggees import TOKEN, Session
from tests.integration.scripted_debuggees import FILE, ScriptedDashboard, ScriptedDebuggee
from tests.patience import PATIENCE

EACH_SIDE = int(os.environ.get("RAYSIDE_FUZZ", "4000"))
SEED = 5678
BATCH = 100
EDITORS = 4
DEBUGGEES = 48
# Of which the first are broken from their first byte on.
BROKEN = 4
# Seconds without an answer after which an editor takes another connection.
SILENCE = 0.2
# Seconds that an editor stays while debuggees are broken, from the moment when one of them was attached to:
# leaving them and coming back takes longer than that where some of them no longer answer.
SESSION = 1.0
# What the process may grow after a fifth of the messages, and the most that it may ever have, in MB. Its
# container has 256.
GROWTH, MOST = 24.0, 160.0

REQUESTS: list[Message] = [
    {"command": "initialize", "arguments": {"adapterID": "debugpy", "pathFormat": "path"}},
    {"command": "attach", "arguments": {"token": TOKEN, "justMyCode": True, "pathMappings": []}},
    {
        "command": "setBreakpoints",
        "arguments": {
            "source": {"path": "/here/job.py", "checksums": [{"algorithm": "SHA256", "checksum": "00"}]},
            "breakpoints": [{"line": 2, "condition": "x > 1"}, {"line": 3}],
        },
    },
    {"command": "setExceptionBreakpoints", "arguments": {"filters": ["raised"], "filterOptions": []}},
    {"command": "setFunctionBreakpoints", "arguments": {"breakpoints": [{"name": "work"}]}},
    {"command": "configurationDone", "arguments": {}},
    {"command": "threads"},
    {"command": "stackTrace", "arguments": {"threadId": 2, "startFrame": 0, "levels": 20}},
    {"command": "scopes", "arguments": {"frameId": 5}},
    {"command": "variables", "arguments": {"variablesReference": 7}},
    {"command": "evaluate", "arguments": {"expression": "x", "frameId": 5, "context": "watch"}},
    {"command": "setVariable", "arguments": {"variablesReference": 7, "name": "x", "value": "1"}},
    {
        "command": "source",
        "arguments": {"source": {"path": FILE, "sourceReference": 3}, "sourceReference": 3},
    },
    {"command": "gotoTargets", "arguments": {"source": {"path": "/here/job.py"}, "line": 2}},
    {"command": "continue", "arguments": {"threadId": 2}},
    {"command": "next", "arguments": {"threadId": 2}},
    {"command": "pause", "arguments": {"threadId": 2}},
    {"command": "pausedTasks", "arguments": {"token": TOKEN}},
    {"command": "cancel", "arguments": {"requestId": 3}},
    {"command": "disconnect", "arguments": {"terminateDebuggee": False, "suspendDebuggee": False}},
]
SAYINGS: list[Message] = [
    {"event": "initialized"},
    {"event": "stopped", "body": {"reason": "breakpoint", "threadId": 1, "hitBreakpointIds": [0]}},
    {"event": "continued", "body": {"threadId": 1, "allThreadsContinued": True}},
    {"event": "thread", "body": {"reason": "exited", "threadId": 1}},
    {"event": "output", "body": {"category": "stdout", "output": "x\n", "source": {"path": FILE}, "line": 2}},
    {"event": "breakpoint", "body": {"reason": "changed", "breakpoint": {"id": 0, "verified": True}}},
    {"event": "module", "body": {"reason": "new", "module": {"id": 1, "name": "m", "path": FILE}}},
    {"event": "process", "body": {"name": "python", "systemProcessId": 1}},
    {"event": "exited", "body": {"exitCode": 0}},
    {"type": "response", "request_seq": 9, "command": "threads", "success": True, "body": {"threads": []}},
    {"type": "response", "request_seq": 5, "command": "evaluate", "success": False, "message": "no"},
    {"type": "request", "command": "runInTerminal", "arguments": {"args": ["true"]}},
    {"event": "vscode.openExternal", "body": {"command": "x", "url": "file:///etc/passwd"}},
    {"event": "output", "body": {"category": "stdout", "output": "\x1b]52;c;eA==\x07\x1b[2J\u202e\n" * 50}},
    {"event": "output", "body": {"output": "x", "source": {"path": f"{FILE}/../../../etc/passwd"}}},
    {
        "type": "response",
        "request_seq": 12,
        "command": "evaluate",
        "success": True,
        "body": {"result": '{"sha256":"x","lines":{"code":[1]}}', "variablesReference": 2**63},
    },
    {
        "type": "response",
        "request_seq": 13,
        "command": "stackTrace",
        "success": True,
        "body": {"stackFrames": [{"id": 1, "source": {"path": "/../x", "origin": "x", "adapterData": []}}]},
    },
]
VALUES: list[Any] = [None, True, False, 0, 1, -1, 2, 3, 5, 2**31, 2**63, 10**30, 10**4000, 0.5, 1e308]
VALUES += ["", "x", "\0", "\udcff", "9" * 5000, "x" * 200_000, "\x1b]52;c;eA==\x07"]
VALUES += ["/a/working_dir_files/_ray_pkg_0/../../../etc/passwd"]
VALUES += [[], {}, [[]], [{}], {"": {}}, [1, "2", None], [0] * 20_000, {"path": 3}, {"line": []}]
NAMES = ["threadId", "frameId", "variablesReference", "source", "type", "seq", "body", "event"]
NAMES += ["\0", "__class__"]
NEST = "<nested>"
DEPTHS = (50, 500, 2000)


def mutated(generator: random.Random, message: Message, seq: int, broken: float) -> bytes:
    """Returns one frame, which with that probability is broken."""
    whole = json.loads(
        json.dumps({"seq": seq, "type": "event" if "event" in message else "request", **message})
    )
    for _ in range(generator.choice((1, 1, 2, 3))):
        _mutate(generator, whole)
    text = json.dumps(whole, separators=(",", ":")).encode()
    if NEST.encode() in text:
        depth = generator.choice(DEPTHS)
        text = text.replace(f'"{NEST}"'.encode(), b'{"a":[' * (depth // 2) + b"1" + b"]}" * (depth // 2), 1)
    frame = b"Content-Length: %d\r\n\r\n%b" % (len(text), text)
    return _broken(generator, frame) if generator.random() < broken else frame


def _mutate(generator: random.Random, whole: Message) -> None:
    places: list[tuple[Any, Any]] = []
    todo: list[Any] = [whole]
    while todo:
        at = todo.pop()
        for key, value in at.items() if isinstance(at, dict) else enumerate(at):
            places.append((at, key))
            if isinstance(value, dict | list):
                todo.append(value)
    container, key = generator.choice(places)
    kind = generator.random()
    if kind < 0.6:
        container[key] = copy.deepcopy(generator.choice(VALUES))
    elif kind < 0.75:
        container[key] = generator.randint(0, 400)
    elif kind < 0.85:
        del container[key]
    elif kind < 0.99 and isinstance(container, dict):
        container[generator.choice(NAMES)] = copy.deepcopy(generator.choice(VALUES))
    else:
        container[key] = NEST
    if not whole:
        whole["type"] = "request"


def _broken(generator: random.Random, frame: bytes) -> bytes:
    kind = generator.randrange(6)
    if kind == 0:
        bits = bytearray(frame)
        for _ in range(generator.randint(1, 8)):
            bits[generator.randrange(len(bits))] ^= 1 << generator.randrange(8)
        return bytes(bits)
    if kind == 1:
        return frame[: generator.randrange(1, len(frame))]
    if kind == 2:
        return b"Content-Length: %d\r\n\r\n" % generator.choice((10**7, 10**9, 10**12, 10**100)) + frame
    if kind == 3:
        return generator.randbytes(generator.randint(1, 400))
    if kind == 4:
        return frame.replace(b"Content-Length: ", b"Content-Length: -", 1)
    return generator.randbytes(9000)


class Fuzzed:
    """Holds the relay's process, and the Ray that it looks at, which runs in this process."""

    def __init__(self, port: int, process: subprocess.Popen[bytes], dashboard: ScriptedDashboard) -> None:
        self.port, self.process, self.dashboard = port, process, dashboard
        self.sent = {"editors": 0, "debuggees": 0}
        self.connections = 0

    @property
    def resident(self) -> float:
        """Returns the relay's memory, in MB."""
        return float(psutil.Process(self.process.pid).memory_info().rss) / 2**20

    @property
    def most_resident(self) -> float:
        """Returns the most memory that the relay ever had, in MB."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) / 1024

    def add(self, debuggee: ScriptedDebuggee) -> None:
        self.dashboard.debuggees.append(debuggee)
        self.dashboard.rows.append(debuggee.row())


@asynccontextmanager
async def fuzzed(folder: Path) -> AsyncIterator[Fuzzed]:
    debuggees = [ScriptedDebuggee(number) for number in range(1, DEBUGGEES + 1)]
    for debuggee in debuggees:
        await debuggee.listen()
    dashboard = ScriptedDashboard(debuggees)
    url = f"http://127.0.0.1:{await dashboard.serve()}"
    port = free_ports()[0]
    (folder / "token").write_text(TOKEN)
    (folder / "relay.json").write_text(Config("127.0.0.1", port, url, folder / "token", False).document())
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "rayside.relay", "--config", str(folder / "relay.json")],
            cwd=ROOT,
            stderr=log,
        )
    try:
        deadline = time.monotonic() + PATIENCE
        while not await listens(port):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)
        yield Fuzzed(port, process, dashboard)
    finally:
        process.terminate()
        await asyncio.to_thread(process.wait, PATIENCE)
        await asyncio.gather(*(debuggee.close() for debuggee in dashboard.debuggees))
        await dashboard.close()


async def listens(port: int) -> bool:
    with contextlib.suppress(OSError):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.close()
        return True
    return False


class Stream:
    """An editor's connection that reads and forgets."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        self.received = 0
        self.draining = asyncio.ensure_future(self._drain(reader))

    async def _drain(self, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 20):
                self.received += len(data)

    async def close(self) -> None:
        self.writer.close()
        await asyncio.wait_for(self.draining, PATIENCE)
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()


def frame(seq: int, command: str, **arguments: Any) -> bytes:
    text = json.dumps({"seq": seq, "type": "request", "command": command, "arguments": arguments}).encode()
    return b"Content-Length: %d\r\n\r\n%b" % (len(text), text)


async def editor(target: Fuzzed, number: int, until: int) -> None:
    """Sends mutated requests; the first editor attaches properly before."""
    generator = random.Random(SEED + number)
    while target.sent["editors"] < until:
        target.connections += 1
        stream = Stream(*await asyncio.open_connection("127.0.0.1", target.port))
        if number == 0:
            for seq, message in enumerate(REQUESTS[:6], 1):
                stream.writer.write(frame(seq, message["command"], **message["arguments"]))
        for _ in range(5):
            batch = [
                mutated(generator, generator.choice(REQUESTS), seq, 0.01)
                for seq in range(10, 10 + BATCH // 5)
            ]
            received = stream.received
            stream.writer.write(b"".join(batch))
            target.sent["editors"] += len(batch)
            with contextlib.suppress(OSError):
                await stream.writer.drain()
            # Until it has read them, as its answers show; where a length lies, it waits for more.
            began = time.monotonic()
            while (
                stream.received == received
                and not stream.draining.done()
                and time.monotonic() < began + SILENCE
            ):
                await asyncio.sleep(0.001)
            if stream.draining.done() or stream.received == received:
                break
        await stream.close()


async def debuggee(target: Fuzzed, which: ScriptedDebuggee, until: int) -> None:
    """Sends mutated events and answers whenever a client is attached to it."""
    generator = random.Random(SEED + 1000 + which.number)
    if which.number <= BROKEN:
        which.changed = lambda data: _broken(generator, data) if generator.random() < 0.2 else data
    while target.sent["debuggees"] < until:
        if not which.attached.is_set():
            await asyncio.sleep(0.02)
            continue
        for seq in range(BATCH // 4):
            if which.connected:
                which.send(mutated(generator, generator.choice(SAYINGS), seq, 0.002))
                target.sent["debuggees"] += 1
        await which.drain()
        await asyncio.sleep(0.005)


async def attended(target: Fuzzed, done: asyncio.Event) -> None:
    """Attaches sound editors one by one, so that the relay attaches again to what it gave up."""
    while not done.is_set():
        stream = Stream(*await asyncio.open_connection("127.0.0.1", target.port))
        for seq, message in enumerate(REQUESTS[:2] + REQUESTS[5:6], 1):
            stream.writer.write(frame(seq, message["command"], **message["arguments"]))
        await first_of(done, *(which.attached for which in target.dashboard.debuggees), seconds=PATIENCE)
        await first_of(done, seconds=SESSION)
        await stream.close()


async def first_of(*events: asyncio.Event, seconds: float) -> None:
    """Waits until one of them is set, or so many seconds have gone by."""
    waiting = [asyncio.ensure_future(event.wait()) for event in events]
    await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    for each in waiting:
        each.cancel()


async def storm(target: Fuzzed, count: int) -> None:
    """Waits until each side has sent that many, first the editors and then the debuggees."""
    await asyncio.gather(*(editor(target, number, count) for number in range(EDITORS)))
    done = asyncio.Event()
    attending = asyncio.ensure_future(attended(target, done))
    debuggees = target.dashboard.debuggees[:DEBUGGEES]
    await asyncio.gather(*(debuggee(target, which, count) for which in debuggees))
    done.set()
    await attending


async def still_serves(target: Fuzzed, number: int) -> None:
    """Asserts that a new editor attaches, and that a new debuggee stops and answers."""
    new = ScriptedDebuggee(number)
    await new.listen()
    target.add(new)
    client = await Client.connect("127.0.0.1", target.port)
    await client.attach(breakpoints={"/here/job.py": [{"line": 2}]}, options={"token": TOKEN}, no_delay=False)
    session = Session(client)
    await asyncio.wait_for(new.attached.wait(), PATIENCE)
    new.stop()
    while (stop := await session.event("stopped"))["ray"]["workerId"] != new.debuggee.worker_id:
        pass
    assert stop["ray"]["task"] == new.task
    assert len(await session.frames(stop)) == 8
    assert await session.evaluate(stop, "x") == "None"
    await session.resume(stop)
    await client.disconnect()


def complaints(log: str) -> Sequence[str]:
    """Returns the lines of the log that tell of a defect."""
    return sorted(
        set(re.findall(r"a defect: .*|never retrieved.*|^\w*Error.*|: \w+Error\(.*", log, re.MULTILINE))
    )


@pytest.mark.parametrize("each", [EACH_SIDE])
async def test_the_relay_outlives_mutated_messages_from_both_sides(
    tmp_path: Path, each: int, capsys: pytest.CaptureFixture[str]
) -> None:
    async with fuzzed(tmp_path) as target:
        began = time.monotonic()
        await storm(target, each // 5)
        await still_serves(target, 901)
        warm = target.resident
        await storm(target, each)
        await still_serves(target, 902)
        assert target.process.poll() is None
        grown, most = target.resident - warm, target.most_resident
        with capsys.disabled():
            sys.stdout.write(
                f"\n{target.sent} messages, {target.connections} editors, "
                f"{sum(d.connections for d in target.dashboard.debuggees)} connections to debuggees, "
                f"{time.monotonic() - began:.0f} s; {warm:.1f} MB after a fifth of them, "
                f"{grown:+.1f} MB after all, {most:.1f} MB at most\n"
            )
        assert not complaints((tmp_path / "log").read_text())
        assert most <= MOST
        assert sum(target.sent.values()) >= 2 * each
        assert grown <= GROWTH
