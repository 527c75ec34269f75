"""Tests faults that must not stop the relay, leave a task paused, or spoil a debuggee for the next editor."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from rayside.dap.client import Client
from rayside.dap.framing import encode
from rayside.errors import DebuggerGone, RequestFailed
from rayside.relay.config import digest_of
from rayside.relay.lifecycle import settling
from rayside.relay.server import Relay
from tests.at_once import AT_ONCE
from tests.integration.rayside.test_relay_scripted import until
from tests.integration.relay_debuggees import TOKEN, Cluster, Process, Session, Wire, relay_over
from tests.patience import PATIENCE

# One call, whose second line is stopped at.
ONCE = """\
def work(x):
    y = x + 1
    return y

print(work(20), flush=True)
"""

# Many calls, so that a task that went on comes by again.
AGAIN = """\
import time

def work(x):
    y = x + 1
    return y

for n in range(100_000):
    print(work(n), flush=True)
    time.sleep(0.05)
"""
LINE = {ONCE: 2, AGAIN: 4}

# Seconds within which tasks go on that nobody debugs any more.
LET_GO = AT_ONCE

# What an editor can ask that concerns a task, or what it stops at.
REQUESTS: dict[str, dict[str, Any]] = {
    "setBreakpoints": {"source": {"path": "/x.py"}, "breakpoints": [{"line": 1}]},
    "setExceptionBreakpoints": {"filters": ["raised"]},
    "configurationDone": {},
    "threads": {},
    "evaluate": {"expression": "1", "context": "repl"},
    "continue": {"threadId": 1},
    "pause": {"threadId": 1},
    "source": {"sourceReference": 1},
    "somethingElse": {},
}


def body(message: Any) -> bytes:
    text = json.dumps(message).encode()
    return b"Content-Length: %d\r\n\r\n%b" % (len(text), text)


def nested(depth: int) -> bytes:
    text = b'{"seq":1,"type":"request","command":"evaluate","arguments":' + b'{"a":' * depth
    text += b"1" + b"}" * (depth + 1)
    return b"Content-Length: %d\r\n\r\n%b" % (len(text), text)


async def is_well(session: Session, stop: dict[str, Any]) -> None:
    """Asserts that the editor that was attached before is still served."""
    assert await session.evaluate(stop, "x + 100") == "120"


async def resume(session: Session, stop: dict[str, Any], process: Process) -> None:
    await session.resume(stop)
    assert await process.end() == ["21"]


# --- what comes in by the door -----------------------------------------------------------


async def test_bytes_that_are_not_dap_get_an_answer_that_says_why_and_harm_nobody_else(
    tmp_path: Path,
) -> None:
    junk = {
        b"GET / HTTP/1.1\r\nHost: here\r\n\r\n": "not a header",
        b"Content-Type: text/plain\r\n\r\n": "no Content-Length",
        b"Content-Length: ten\r\n\r\n": "not a number",
        b"Content-Length: -1\r\n\r\n": "not a number",
        b"Content-Length: 99999999999999\r\n\r\n": "longer than",
        b"Content-Length: " + b"9" * 8000 + b"\r\n\r\n": "longer than",
        b"Content-Length: 65537\r\n\r\n": "longer than",
        b"x" * 9000: "header section",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n": "not a header",
        b"Content-Length: 4\r\n\r\n\xff\xfe\x00\x01": "not JSON",
        body([1, 2]): "not a JSON object",
        nested(10_000): "not JSON",
    }

    async with relay_over(tmp_path) as setting:
        (process,) = await setting.cluster.start(ONCE)
        session = await setting.attach({"job.py": [LINE[ONCE]]})
        stop = await session.event("stopped")
        for data, why in junk.items():
            wire = await Wire.open(setting.port)
            wire.send(data)
            answer = await wire.hear(type="response", success=False)
            assert why in answer["message"], data[:40]
            assert len(answer["message"]) < 300
            await wire.closed()
            await is_well(session, stop)
        await resume(session, stop, process)


async def test_a_message_that_is_no_request_gets_an_answer_and_the_next_one_too(tmp_path: Path) -> None:
    async with relay_over(tmp_path) as setting:
        wire = await Wire.open(setting.port)
        for message in (
            {"seq": 7},
            {"seq": 7, "type": "request"},
            {"seq": 7, "type": "request", "command": 3},
            {"seq": 7, "type": "request", "command": "initialize", "arguments": [1]},
            {"seq": 7, "type": "event", "event": "stopped"},
        ):
            wire.send(encode(message))
            answer = await wire.hear(type="response", request_seq=7)
            assert answer["success"] is False
            assert "not a DAP request" in answer["message"]
        wire.send(encode({"seq": "7", "type": "request", "command": "initialize"}))
        assert (await wire.hear(type="response", request_seq=0))["success"] is False
        wire.send(nested(300))
        assert "before `attach`" in (await wire.hear(type="response", request_seq=1))["message"]
        assert (await wire.ask("initialize", adapterID="test"))["success"] is True
        await wire.close()


@pytest.mark.gate
async def test_nothing_reaches_a_debuggee_before_the_token(tmp_path: Path) -> None:
    async with relay_over(tmp_path) as setting:
        (process,) = await setting.cluster.start(ONCE)
        for attach in (
            {},
            {"token": ""},
            {"token": "a tokem"},
            {"token": TOKEN + "\0"},
            {"token": "\udcff"},
            {"token": 12},
            {"token": [TOKEN]},
            {"token": {"token": TOKEN}},
            {"password": TOKEN},
        ):
            wire = await Wire.open(setting.port)
            await wire.ask("initialize", adapterID="test")
            for command, arguments in REQUESTS.items():
                answer = await wire.ask(command, **arguments)
                assert answer["success"] is False, command
                assert "before `attach`" in answer["message"]
            for command in ("pausedTasks", "stacks", "compare", "attach"):
                answer = await wire.ask(command, expression="1", **attach)
                assert (answer["success"], "token" in answer["message"]) == (False, True)
            await wire.closed()
            # What follows a refused `attach` in the same bytes is not read either.
            wire = await Wire.open(setting.port)
            refused = wire.say("attach", **attach)
            wire.say("configurationDone")
            wire.say("threads")
            assert (await wire.hear(request_seq=refused))["success"] is False
            await wire.closed()
            assert not [answer for answer in wire.unmatched if answer.get("success")]
        assert setting.cluster.looks == 0
        assert process.lines == []
        # It listens for one client only, and that has not been there yet.
        session = await setting.attach({"job.py": [LINE[ONCE]]})
        stop = await session.event("stopped")
        await resume(session, stop, process)
        assert TOKEN not in "\n".join(setting.log)


async def test_an_attach_cannot_point_the_relay_at_another_address(tmp_path: Path) -> None:
    dialled = asyncio.Event()

    async def elsewhere(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        dialled.set()
        writer.close()

    server = await asyncio.start_server(elsewhere, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, relay_over(tmp_path) as setting:
        (process,) = await setting.cluster.start(ONCE)
        where = {"host": "127.0.0.1", "port": port}
        session = await setting.attach(
            {"job.py": [LINE[ONCE]]}, connect=where, listen=where, processId=1, subProcess=True, **where
        )
        stop = await session.event("stopped")
        await resume(session, stop, process)
    assert not dialled.is_set()


async def test_requests_and_ids_that_do_not_exist_are_refused_and_the_session_goes_on(tmp_path: Path) -> None:
    numbers: list[Any] = [0x7FFFFFFF, -1, 10**30, "1", [1], {"a": 1}, 1.5]

    async with relay_over(tmp_path) as setting:
        (process,) = await setting.cluster.start(ONCE)
        session = await setting.attach({"job.py": [LINE[ONCE]]})
        stop = await session.event("stopped")
        for command, name, more in (
            ("continue", "threadId", {}),
            ("next", "threadId", {}),
            ("pause", "threadId", {}),
            ("stackTrace", "threadId", {}),
            ("scopes", "frameId", {}),
            ("evaluate", "frameId", {"expression": "1"}),
            ("variables", "variablesReference", {}),
            ("setVariable", "variablesReference", {"name": "x", "value": "5"}),
            ("source", "sourceReference", {}),
        ):
            # Thread ids are no frame ids, and so on.
            others = [] if name == "threadId" else [stop["threadId"]]
            for number in (*numbers, *others):
                with pytest.raises(RequestFailed):
                    await session.request(command, **{name: number, **more})
        for command in ("somethingElse", "réquest", "launch", "restart", "terminate", "restartFrame", ""):
            with pytest.raises(RequestFailed):
                await session.request(command, threadId=stop["threadId"])
        for arguments in (
            {},
            {"source": 3, "breakpoints": []},
            {"source": {"path": 3}, "breakpoints": []},
            {"source": {"path": "/x"}, "breakpoints": [{"line": "2"}]},
            {"source": {"path": "/x"}, "breakpoints": 3},
            {"source": {"path": "/x"}, "lines": 3},
            {"source": {"path": "/x", "checksums": 3}, "breakpoints": []},
        ):
            with pytest.raises(RequestFailed):
                await session.request("setBreakpoints", **arguments)
        await is_well(session, stop)
        await resume(session, stop, process)


async def test_connections_that_only_come_and_go_cost_nothing(tmp_path: Path) -> None:
    async with relay_over(tmp_path) as setting:
        (process,) = await setting.cluster.start(ONCE)
        this = psutil.Process()
        before = this.num_fds()
        for number in range(90):
            wire = await Wire.open(setting.port)
            if number % 3 == 0:
                wire.send(b"Content-Length: 5000\r\n\r\n{")
            if number % 2:
                wire.abort()
            else:
                await wire.close()
        await until(lambda: this.num_fds() <= before)
        silent = await Wire.open(setting.port)
        session = await setting.attach({"job.py": [LINE[ONCE]]})
        stop = await session.event("stopped")
        await resume(session, stop, process)
        await silent.close()


# --- editors -----------------------------------------------------------------------------


@pytest.mark.gate
@pytest.mark.parametrize("seconds", [0.3, 3.0])
async def test_an_editor_that_leaves_in_the_middle_of_an_evaluation_spoils_nothing(
    tmp_path: Path, seconds: float
) -> None:
    async with relay_over(tmp_path) as setting:
        (process,) = await setting.cluster.start(AGAIN)
        for _ in range(2):
            session = await setting.attach({"job.py": [LINE[AGAIN]]})
            stop = await session.event("stopped")
            await session.begin(stop, f"__import__('time').sleep({seconds})")
            session.abort()
            await process.until_printed(len(process.lines) + 2)  # the task goes on
        session = await setting.attach({"job.py": [LINE[AGAIN]]})
        stop = await session.event("stopped")
        assert await session.evaluate(stop, "x >= 0") == "True"


@pytest.mark.gate
@pytest.mark.parametrize("how", ["keepPaused and killed", "keepPaused and closed", "suspendDebuggee"])
async def test_what_is_to_stay_paused_waits_for_the_next_editor(tmp_path: Path, how: str) -> None:
    async with relay_over(tmp_path) as setting:
        stopping, other = [
            *await setting.cluster.start(ONCE),
            *await setting.cluster.start(AGAIN, name="again.py"),
        ]
        first = await setting.attach({"job.py": [LINE[ONCE]]}, keepPaused=how.startswith("keepPaused"))
        await first.event("stopped")
        await other.until_printed()  # It is attached, too; before, it waits for a debugger.
        if how == "suspendDebuggee":
            await first.request("disconnect", suspendDebuggee=True)
        elif how == "keepPaused and killed":
            first.abort()
        else:
            await first.request("disconnect")
        await other.until_printed(len(other.lines) + 10)  # half a second
        assert stopping.lines == []
        wire = await Wire.open(setting.port)
        (task,) = (await wire.ask("pausedTasks", token=TOKEN))["body"]["tasks"]
        assert (task["worker_id"], task["task"]) == ("w1", "task-1")
        await wire.close()
        second = await setting.attach({"job.py": [LINE[ONCE]]})
        stop = await second.event("stopped")
        await is_well(second, stop)
        await resume(second, stop, stopping)


# --- debuggees ---------------------------------------------------------------------------


async def test_a_frozen_debuggee_holds_up_nobody_and_is_back_when_it_thaws(tmp_path: Path) -> None:
    async with relay_over(tmp_path) as setting:
        frozen, _ = await setting.cluster.start(AGAIN, count=2)
        session = await setting.attach()
        await rows(session, 3)
        frozen.process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(0.5)  # What it printed before is read.
        lines = len(frozen.lines)
        try:
            began = time.monotonic()
            path = str(setting.cluster.here / "job.py")
            (answer,) = (
                await session.request(
                    "setBreakpoints", source={"path": path}, breakpoints=[{"line": LINE[AGAIN]}]
                )
            )["breakpoints"]
            assert time.monotonic() - began < AT_ONCE
            if not answer["verified"]:  # it may have been asked first whether the file is there
                changed = await session.event("breakpoint", reason="changed")
                assert changed["breakpoint"]["verified"]
            stop = await session.event("stopped")
            assert stop["ray"]["workerId"] == "w2"
            assert await session.evaluate(stop, "x >= 0") == "True"
            await session.request("next", threadId=stop["threadId"])
            assert (await session.event("stopped"))["reason"] == "step"
            # Longer than the relay waits for any one answer of it.
            await session.nothing("stopped", 3.0)
            assert len(frozen.lines) - lines <= 1
        finally:
            frozen.process.send_signal(signal.SIGCONT)
        stop = await session.event("stopped")
        assert stop["ray"]["workerId"] == "w1"
        assert await session.evaluate(stop, "x >= 0") == "True"


async def rows(session: Session, count: int) -> None:
    """Waits until the editor has that many rows, the cluster's included."""
    for _ in range(count):
        await session.event("thread", reason="started")


async def test_a_debuggee_that_freezes_while_it_is_attached_to_is_debugged_when_it_thaws(
    tmp_path: Path,
) -> None:
    # As one does that goes straight into a long computation which holds the interpreter's lock.
    async with relay_over(tmp_path) as setting:
        (frozen,) = await setting.cluster.start(AGAIN)
        session = await setting.attach({"job.py": [100]})
        await frozen.until_printed()
        frozen.process.send_signal(signal.SIGSTOP)
        try:
            await session.nothing("stopped", 4.0)
        finally:
            frozen.process.send_signal(signal.SIGCONT)
        await set_breakpoint(session, setting.cluster.here / "job.py")
        assert await session.evaluate(await session.event("stopped"), "x >= 0") == "True"


async def set_breakpoint(session: Session, path: Path) -> None:
    breakpoints = [{"line": LINE[AGAIN]}]
    await session.request("setBreakpoints", source={"path": str(path)}, breakpoints=breakpoints)


@pytest.mark.parametrize("delay", [0.1, 0.15, 0.2, 0.3])
async def test_a_breakpoint_set_while_debuggees_are_attached_to_reaches_all_of_them(
    tmp_path: Path, delay: float
) -> None:
    async with relay_over(tmp_path) as setting:
        await setting.cluster.start(AGAIN, count=3)
        session = await setting.attach()
        await asyncio.sleep(delay)
        await set_breakpoint(session, setting.cluster.here / "job.py")
        stops = await session.stops(3)
        assert {stop["ray"]["workerId"] for stop in stops} == {"w1", "w2", "w3"}


async def test_a_debuggee_that_is_frozen_while_stopped_answers_again_when_it_thaws(tmp_path: Path) -> None:
    async with relay_over(tmp_path) as setting:
        frozen, well = await setting.cluster.start(ONCE, count=2)
        session = await setting.attach({"job.py": [LINE[ONCE]]})
        stops = {stop["ray"]["workerId"]: stop for stop in await session.stops(2)}
        frozen.process.send_signal(signal.SIGSTOP)
        try:
            evaluation = asyncio.ensure_future(session.evaluate(stops["w1"], "x + 100"))
            began = time.monotonic()
            assert len(await session.threads()) == 3
            await is_well(session, stops["w2"])
            await session.request("setExceptionBreakpoints", filters=["raised"])
            await resume(session, stops["w2"], well)
            assert time.monotonic() - began < 10
            assert not evaluation.done()
        finally:
            frozen.process.send_signal(signal.SIGCONT)
        assert await asyncio.wait_for(evaluation, PATIENCE) == "120"
        await resume(session, stops["w1"], frozen)


async def test_the_session_outlives_a_ray_that_does_not_answer(tmp_path: Path) -> None:
    async with relay_over(tmp_path) as setting:
        (early,) = await setting.cluster.start(ONCE)
        session = await setting.attach({"job.py": [LINE[ONCE]]})
        stop = await session.event("stopped")
        setting.cluster.away = True
        output = await session.event("output", category="console")
        assert "Ray does not answer" in output["output"]
        (late,) = await setting.cluster.start(ONCE)
        looks = setting.cluster.looks
        await until(lambda: setting.cluster.looks > looks + 3)
        await is_well(session, stop)
        await session.nothing("output", 0.1, category="console")  # it says so once
        setting.cluster.away = False
        assert "answers again" in (await session.event("output", category="console"))["output"]
        second = await session.event("stopped")
        assert second["ray"]["workerId"] == "w2"
        await resume(session, second, late)
        await resume(session, stop, early)


# --- the relay's own end -----------------------------------------------------------------


@pytest.mark.parametrize("evaluating", [False, True], ids=["stopped", "evaluating"])
async def test_a_relay_that_ends_lets_tasks_go_on_and_the_next_relay_can_attach(
    tmp_path: Path, evaluating: bool
) -> None:
    async with relay_over(tmp_path) as setting:
        processes = await setting.cluster.start(AGAIN, count=2)
        attaching = time.monotonic()
        session = await setting.attach({"job.py": [LINE[AGAIN]]}, keepPaused=True)
        stops = await session.stops(2)
        attaching_took = time.monotonic() - attaching
        for stop in stops:
            if evaluating:
                await session.begin(stop, "__import__('time').sleep(0.4)")
        began = time.monotonic()
        await setting.relay.close()
        await asyncio.gather(*(process.until_printed(len(process.lines) + 1) for process in processes))
        assert time.monotonic() - began <= LET_GO
        await session.event("terminated")
        with pytest.raises(DebuggerGone):
            await Client.connect("127.0.0.1", setting.port)
        # debugpy's adapter may never answer who dials it at once; a relay's own process takes longer.
        await asyncio.sleep(settling(attaching_took))
        await stops_again(setting.cluster)


async def stops_again(cluster: Cluster) -> None:
    """Runs another relay over the same tasks."""
    relay = Relay(cluster, digest=digest_of(TOKEN), log=lambda line: None)
    try:
        server = await relay.serve("127.0.0.1", 0)
        client = await Client.connect("127.0.0.1", server.sockets[0].getsockname()[1])
        lines = {str(cluster.here / "job.py"): [{"line": LINE[AGAIN]}]}
        await client.attach(breakpoints=lines, options={"token": TOKEN}, no_delay=False)
        session = Session(client)
        stops = await session.stops(len(cluster.processes))
        for stop in stops:
            assert await session.evaluate(stop, "x >= 0") == "True"
    finally:
        await relay.close()
