"""Tests what an editor is told whose way to the relay breaks, and whose session outlasts that."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from rayside.dap.additions import (
    BEAT,
    LEFT,
    MOST_MISSED,
    RELAY_ENDING,
    TAKEN_OVER,
    WAITING,
    WAY_BACK,
    WAY_LOST,
)
from rayside.dap.framing import Decoder, Message, encode
from rayside.reach import editor_connection
from rayside.reach.editor_connection import EditorConnection, Way
from rayside.reach.editor_state import Exchange, answer, end, is_relay_ending, waiting
from rayside.reach.patience import Pace, Patience
from rayside.relay.capabilities import Presence


def request(seq: int, command: str, **arguments: Any) -> Message:
    return {"seq": seq, "type": "request", "command": command, "arguments": arguments}


def response(seq: int, command: str, *, success: bool = True) -> Message:
    return {"seq": 9, "type": "response", "request_seq": seq, "command": command, "success": success}


def terminated(reason: str) -> Message:
    return {"type": "event", "event": "terminated", "body": {"ray": {"reason": reason}}}


def attached() -> Exchange:
    exchange = Exchange()
    exchange.asked(request(1, "attach"))
    exchange.answered(response(1, "attach"))
    return exchange


def test_a_session_outlasts_its_way_from_a_good_attach_until_either_side_ends_it() -> None:
    exchange = Exchange()
    exchange.asked(request(1, "attach"))
    assert not exchange.outlasts
    exchange.answered(response(1, "attach", success=False))
    assert not exchange.outlasts
    assert attached().outlasts
    for over in (terminated(TAKEN_OVER), terminated("unheard")):
        exchange = attached()
        exchange.answered(over)
        assert not exchange.outlasts
    exchange = attached()
    exchange.asked(request(2, "disconnect"))
    assert not exchange.outlasts


def test_what_the_relay_will_not_answer_any_more_is_refused_once() -> None:
    exchange = attached()
    for seq, command in ((2, "threads"), (3, "evaluate")):
        exchange.asked(request(seq, command))
    exchange.answered(response(2, "threads"))
    (refused,) = exchange.unanswered("lost")
    assert (refused["request_seq"], refused["command"], refused["success"]) == (3, "evaluate", False)
    assert refused["message"] == refused["body"]["error"]["format"] == "lost"
    assert exchange.unanswered("lost") == []


@pytest.mark.parametrize("seq", [None, "1", 1.5, {}])
def test_what_no_request_is_needs_no_answer(seq: object) -> None:
    message = {"seq": seq, "type": "request", "command": "threads"}
    exchange = attached()
    exchange.asked(message)
    exchange.answered({"type": "response", "request_seq": seq})
    assert exchange.unanswered("lost") == []
    assert answer(message, "lost") is None
    assert answer({"seq": 1, "type": "response"}, "lost") is None


def test_without_a_way_an_editor_may_leave_but_nothing_can_be_kept_for_it() -> None:
    for ask, good in (
        (request(4, "threads"), False),
        (request(4, "disconnect"), True),
        (request(4, "disconnect", suspendDebuggee=True), False),
    ):
        told = answer(ask, "lost")
        assert told is not None
        assert (told["request_seq"], told["success"]) == (4, good)


def test_an_editor_brings_the_ticket_back_that_the_relay_gave_it_and_nothing_else_of_its_answer() -> None:
    bodies: list[object] = [None, [], {"ray": "t"}, {"ray": {"ticket": ["t"]}}, {"ray": {"ticket": "t" * 65}}]
    good: object = {"ray": {"ticket": "t", "more": 1}}
    for body in [good, *bodies]:
        restart = {"ray": "again", "ticket": "t"} if body is good else {"ray": "again"}
        exchange = Exchange()
        exchange.asked(request(1, "attach"))
        exchange.answered({**response(1, "attach"), "body": body})
        assert exchange.restart == restart


def test_only_a_relay_that_ends_may_be_followed_by_another() -> None:
    assert is_relay_ending(terminated(RELAY_ENDING))
    assert not is_relay_ending(terminated(TAKEN_OVER))
    bodies: list[object] = [None, {}, [], {"ray": []}, {"ray": None}]
    for body in bodies:
        assert not is_relay_ending({"type": "event", "event": "terminated", "body": body})


def test_reasons_are_words_and_data_and_only_a_way_that_is_back_asks_to_attach_again() -> None:
    lost = waiting("It is lost.")
    assert lost["body"] == {"category": "console", "output": "It is lost.\n", "ray": {"reason": "waiting"}}
    output, last = end("It is back.", WAY_BACK, attached().restart)
    assert (output["event"], output["body"]["output"]) == ("output", "It is back.\n")
    assert last["body"] == {"ray": {"reason": "way-back"}, "restart": {"ray": "again"}}
    assert end("It is lost.", WAY_LOST)[1]["body"] == {"ray": {"reason": "way-lost"}}


async def test_an_editor_counts_as_away_when_its_forward_has_missed_its_beats() -> None:
    presence = Presence(every=0.01, away=0.1)
    away = asyncio.ensure_future(presence.until_away())
    await asyncio.sleep(0.2)
    # There is no forward that could say something.
    assert not away.done()
    assert (presence.by_forward, presence.is_silent) == (False, False)
    presence.beat()
    while not presence.is_silent:
        await asyncio.sleep(0)
    assert not away.done()
    presence.beat()
    assert not presence.is_silent
    await asyncio.wait_for(away, 60)
    assert presence.is_silent


def test_a_pause_of_the_whole_machine_is_one_beat_that_was_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    async def slept(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", slept)
    presence = Presence(every=5, away=60)
    presence.beat()
    asyncio.run(presence.until_away())
    assert pauses == [5] * 12
    assert MOST_MISSED < 12


def test_editors_attach_again_at_once_only_after_a_session_that_lasted() -> None:
    pace = Pace()
    assert [pace.after(seconds) for seconds in (10, 9, 0, 0, 0)] == [0, 1, 2, 4, 8]
    assert [pace.after(0) for _ in range(4)] == [16, 32, 60, 60]
    assert [pace.after(seconds) for seconds in (3_600, 1)] == [0, 1]


# --- its own life ---------------------------------------------------------------------------


class ScriptedWay:
    """Lets an editor attach; what else is sent by it, events and commands, is for a test to script."""

    def __init__(self, **scripts: Callable[[ScriptedWay], Awaitable[object]]) -> None:
        self.incoming: asyncio.Queue[bytes] = asyncio.Queue()
        self.closed = False
        self._scripts = scripts

    async def read(self) -> bytes:
        return await self.incoming.get()

    async def send(self, data: bytes) -> None:
        (message,) = Decoder().feed(data)
        name = {BEAT: "beat", LEFT: "left"}.get(message.get("event", "")) or message["command"]
        if name == "attach":
            self.incoming.put_nowait(encode(response(1, "attach")))
        else:
            await self._scripts[name](self)

    async def close(self) -> None:
        self.closed = True


@asynccontextmanager
async def carried(
    way: Way, patience: Patience
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Provides an editor that attaches by this way; there is no other."""
    ways, done = [way], asyncio.Event()

    async def open_way() -> Way:
        if not ways:
            raise OSError("there is no way")
        return ways.pop()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            connection = EditorConnection(reader, writer, open_way, log=print, patience=patience, pace=Pace())
            await connection.run()
        finally:
            writer.close()
            done.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    writer.write(encode(request(1, "attach")))
    yield reader, writer
    writer.close()
    await asyncio.wait_for(done.wait(), 60)
    server.close()


async def heard(reader: asyncio.StreamReader, fits: Callable[[Message], bool]) -> None:
    """Waits until the editor gets such a message."""
    decoder = Decoder()
    while data := await asyncio.wait_for(reader.read(65_536), 60):
        if any(fits(message) for message in decoder.feed(data)):
            return
    raise AssertionError("the editor was closed, and did not get it")


def tells_of_loss(message: Message) -> bool:
    return ((message.get("body") or {}).get("ray") or {}).get("reason") == WAITING


async def nothing(way: ScriptedWay) -> None:
    """Takes what is sent, and says nothing."""


async def frozen(way: ScriptedWay) -> None:
    """Does not take what is sent, as a network that is gone does without a word."""
    await asyncio.Event().wait()


@pytest.mark.parametrize("turns", range(8))
async def test_a_way_that_ends_in_the_moment_of_a_beat_is_told_at_once(turns: int) -> None:
    async def beat(way: ScriptedWay) -> None:
        way.incoming.put_nowait(b"")
        # In one of these the beat is sent in the same turn of the loop in which the end is noticed.
        for _ in range(turns):
            await asyncio.sleep(0)

    way = ScriptedWay(beat=beat)
    async with carried(way, Patience(every=3_600.0)) as (reader, _):
        await heard(reader, tells_of_loss)
        assert way.closed


async def test_an_editor_is_heard_though_its_way_has_not_taken_what_it_said_last() -> None:
    way = ScriptedWay(beat=nothing, evaluate=frozen)
    async with carried(way, Patience(every=0.05)) as (reader, writer):
        writer.write(encode(request(2, "evaluate")))
        await heard(reader, tells_of_loss)
        writer.write(encode(request(3, "threads")))
        await heard(reader, lambda message: message.get("request_seq") == 3)


async def test_an_editor_that_left_is_not_kept_by_a_frozen_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(editor_connection, "_GOODBYE", 0.1)

    way = ScriptedWay(beat=nothing, left=frozen)
    async with carried(way, Patience(every=3_600.0)) as (reader, _):
        await heard(reader, lambda message: message.get("command") == "attach")
    assert way.closed


@pytest.mark.parametrize("turns", range(8))
async def test_a_forward_that_ends_in_the_moment_its_editor_leaves_closes_the_way(turns: int) -> None:
    async def ends(task: asyncio.Task[None]) -> None:
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()

    endings: list[asyncio.Task[None]] = []

    async def left(way: ScriptedWay) -> None:
        way.incoming.put_nowait(b"")
        endings.append(asyncio.create_task(ends(running)))

    async def open_way() -> Way:
        return way

    way, ours, editors = ScriptedWay(beat=nothing, left=left), *socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=ours)
    patience = Patience(every=3_600.0)
    connection = EditorConnection(reader, writer, open_way, log=print, patience=patience, pace=Pace())
    running = asyncio.create_task(connection.run())
    editors.send(encode(request(1, "attach")))
    while not connection._exchange.attached:
        await asyncio.sleep(0)
    editors.shutdown(socket.SHUT_WR)
    await asyncio.wait({running}, timeout=60)
    await asyncio.gather(running, *endings, return_exceptions=True)
    assert way.closed
    writer.close()
    await writer.wait_closed()
    editors.close()
