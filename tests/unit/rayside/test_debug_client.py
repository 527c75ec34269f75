"""Tests the DAP client: the handshake, answers, and above all how it leaves."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import weakref
from collections.abc import AsyncIterator, Awaitable
from typing import TypeVar

import pytest

from rayside.dap.channel import MOST_UNREAD
from rayside.dap.client import Client
from rayside.dap.framing import Message, encode
from rayside.errors import DebuggerGone, RequestFailed
from tests.unit.scripted_debuggee import ScriptedDebuggee, Turn, stopped

T = TypeVar("T")


def commands(debuggee: ScriptedDebuggee) -> list[str]:
    return [request["command"] for request in debuggee.requests]


async def soon(work: Awaitable[T]) -> T:
    return await asyncio.wait_for(work, 5)


async def test_attach_sets_everything_before_the_debuggee_moves() -> None:
    debuggee = ScriptedDebuggee(
        Turn("setBreakpoints", {"breakpoints": [{"line": 3}]}, {"breakpoints": [{"verified": True}]})
    )
    client = await debuggee.connect("h", 1)
    answers = await soon(client.attach(breakpoints={"/a b.py": [{"line": 3}]}))
    assert answers == {"/a b.py": {"breakpoints": [{"verified": True}]}}
    assert commands(debuggee) == [
        *("initialize", "attach", "evaluate", "setBreakpoints", "setExceptionBreakpoints"),
        "configurationDone",
    ]
    arguments = debuggee.requests[1]["arguments"]
    assert arguments["justMyCode"] is True
    assert arguments["rules"] == [{"module": "ray.util.debugpy", "include": True}]
    events = [await soon(client.events.get()) for _ in range(2)]
    assert [event and event["event"] for event in events] == ["initialized", "stopped"]
    await client.disconnect()
    debuggee.check()


async def test_an_answer_that_never_comes_is_an_error_after_its_deadline() -> None:
    debuggee = ScriptedDebuggee(Turn("threads", answer=None))
    client = await debuggee.connect("h", 1)
    with pytest.raises(RequestFailed, match=r"did not answer `threads` within 0\.01 s"):
        await soon(client.request("threads", timeout=0.01))
    client.close()


async def test_a_debuggee_that_goes_away_fails_what_is_in_flight_and_all_later_requests() -> None:
    debuggee = ScriptedDebuggee(Turn("threads", answer=None))
    debuggee.script[0].then = debuggee.end
    client = await debuggee.connect("h", 1)
    with pytest.raises(DebuggerGone, match="has ended"):
        await soon(client.request("threads"))
    with pytest.raises(DebuggerGone):
        await soon(client.request("threads"))
    assert await soon(client.events.get()) is None
    await soon(client.disconnect())
    assert commands(debuggee) == ["threads"]


async def test_garbage_ends_the_connection_with_the_reason() -> None:
    debuggee = ScriptedDebuggee()
    client = await debuggee.connect("h", 1)
    client.data_received(b"SSH-2.0-OpenSSH\r\n\r\n")
    with pytest.raises(DebuggerGone, match="not a header"):
        await client.request("threads")


async def test_a_connection_lasts_also_where_nobody_holds_its_client() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.read() == b""
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        client = await Client.connect("127.0.0.1", port)
        alive = weakref.ref(client)
        del client
        await asyncio.sleep(0.1)  # until it waits for what comes
        gc.collect()
        connected = alive()
        assert connected is not None
        connected.close()
        del connected
        await asyncio.sleep(0.1)
        gc.collect()
        assert alive() is None, "what has ended is kept for good"


@pytest.mark.parametrize("is_late", [False, True])
async def test_it_leaves_only_when_nothing_is_in_flight_any_more(is_late: bool) -> None:
    debuggee = ScriptedDebuggee(Turn("evaluate", answer=None))
    client = await debuggee.connect("h", 1)
    timeout = 0 if is_late else 5
    evaluating = asyncio.ensure_future(client.request("evaluate", {"expression": "slow()"}, timeout=timeout))
    await asyncio.wait({evaluating}, timeout=0.05)
    assert evaluating.done() is is_late
    leaving = asyncio.ensure_future(client.disconnect())
    for _ in range(10):
        await asyncio.sleep(0)
    assert commands(debuggee) == ["evaluate"]
    debuggee.respond(debuggee.requests[0], {"result": "1"})
    await soon(leaving)
    if is_late:
        with pytest.raises(RequestFailed):
            await evaluating
    else:
        assert await soon(evaluating) == {"result": "1"}
    assert commands(debuggee) == ["evaluate", "disconnect"]
    debuggee.check()  # which also fails on `terminateDebuggee: true`


async def test_a_reverse_request_is_refused() -> None:
    debuggee = ScriptedDebuggee()
    client = await debuggee.connect("h", 1)
    debuggee.say({"type": "request", "seq": 7, "command": "runInTerminal"})
    debuggee.say(stopped())
    await soon(client.events.get())
    [answer] = debuggee.requests
    assert (answer["type"], answer["request_seq"], answer["success"]) == ("response", 7, False)
    await client.disconnect()


async def test_after_a_close_nothing_more_of_what_came_together_is_delivered() -> None:
    debuggee, events = ScriptedDebuggee(), list[Message]()

    def take_one(event: Message) -> None:
        events.append(event)
        client.close()

    client = await debuggee.connect("h", 1, on_event=take_one)
    client.data_received(2 * encode({"seq": 0, "type": "event", **stopped()}))
    assert len(events) == 1


@contextlib.asynccontextmanager
async def deaf_debuggee() -> AsyncIterator[Client]:
    """Yields a connection to what accepts it and reads nothing."""
    with socket.socket() as listening, contextlib.ExitStack() as accepted:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        listening.setblocking(False)
        accepting = asyncio.ensure_future(asyncio.get_running_loop().sock_accept(listening))
        client = await soon(Client.connect("127.0.0.1", listening.getsockname()[1]))
        accepted.enter_context((await soon(accepting))[0])
        yield client


async def test_a_debuggee_that_reads_nothing_is_dropped_with_what_it_left_unread() -> None:
    async with deaf_debuggee() as client:
        with pytest.raises(DebuggerGone, match="reads nothing"):
            await soon(client.request("evaluate", {"expression": "x" * 4 * MOST_UNREAD}))
        await soon(client.wait_closed())


async def test_leaving_a_debuggee_that_reads_nothing_keeps_nothing_for_it() -> None:
    async with deaf_debuggee() as client:
        client.asked("evaluate", {"expression": "x" * (MOST_UNREAD - 1_000)})
        await soon(client.disconnect(timeout=0.05))
        await soon(client.wait_closed())
