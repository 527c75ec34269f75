"""Tests that a crowd of stops leaves the relay free to answer the editor, and that nothing holds it up."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from rayside.dap.framing import encode
from rayside.relay import editor as editor_module
from rayside.relay import fan_out
from rayside.relay.editor import CurrentEditor, Editor
from rayside.relay.fan_out import Pace
from tests.played import played


class Rig:
    """Holds an editor's two ends, and the stops that it was told of."""

    def __init__(self, editor: Editor, far: asyncio.StreamWriter) -> None:
        self.editor, self._far = editor, far
        self.current = CurrentEditor(lambda _: None)
        self.current.editor = editor
        self.pace = Pace(self.current)
        self.told: list[int] = []
        self.requests: list[dict[str, object]] = []

    async def asks(self, *numbers: int) -> None:
        for seq in numbers:
            self._far.write(encode({"seq": seq, "type": "request", "command": "threads"}))
        while len(self.requests) < len(numbers):
            await asyncio.sleep(0.001)

    async def read(self) -> None:
        async for request in self.editor.requests():
            self.requests.append(request)

    def stop(self, number: int) -> asyncio.Future[None]:
        async def tell() -> None:
            self.told.append(number)

        return asyncio.ensure_future(self.pace.keep(tell))


@asynccontextmanager
async def rig() -> AsyncIterator[Rig]:
    connected: asyncio.Future[Editor] = asyncio.get_running_loop().create_future()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected.set_result(Editor(reader, writer))

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        _, far = await asyncio.open_connection(*server.sockets[0].getsockname())
        made = Rig(await connected, far)
        reading = asyncio.ensure_future(made.read())
        try:
            yield made
        finally:
            far.close()
            await reading
            await far.wait_closed()
            await made.editor.close()


def play(story: Callable[[Rig], Coroutine[Any, Any, None]]) -> None:
    async def all_of_it() -> None:
        async with rig() as made:
            await story(made)

    asyncio.run(all_of_it())


@played(play)
async def test_few_are_looked_at_at_once_and_in_their_order(rig: Rig) -> None:
    at_once, most, told = 0, 0, []

    async def look(number: int) -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0.001)
        at_once -= 1
        told.append(number)

    await asyncio.gather(*(rig.pace.keep(partial(look, number)) for number in range(50)))
    assert (most, told) == (fan_out._AT_ONCE, list(range(50)))


@played(play)
async def test_an_editor_gets_answers_before_more_stops(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fan_out, "_HOLDING_UP", 60.0)
    monkeypatch.setattr(editor_module, "LONG_ASKED", 60.0)
    await rig.asks(*range(1, fan_out._MOST_ASKED + 1))
    stop = rig.stop(1)
    assert not (await asyncio.wait({stop}, timeout=0.05))[0]
    assert rig.told == []
    rig.editor.respond(rig.requests[0])
    await asyncio.wait_for(stop, 5)
    assert rig.told == [1]


@played(play)
async def test_an_editor_that_waits_for_a_task_is_told_all_the_same(rig: Rig) -> None:
    await rig.asks(*range(1, fan_out._MOST_ASKED + 1))
    await asyncio.wait_for(rig.stop(1), 5)
    assert rig.told == [1]


@played(play)
async def test_what_waits_for_long_is_not_waited_for(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fan_out, "_HOLDING_UP", 60.0)
    monkeypatch.setattr(editor_module, "LONG_ASKED", 0.05)
    await rig.asks(*range(1, fan_out._MOST_ASKED + 1))
    await asyncio.sleep(0.06)
    await asyncio.wait_for(rig.stop(1), 5)


@played(play)
async def test_a_frozen_task_holds_up_no_other(rig: Rig) -> None:
    released = asyncio.Event()

    async def frozen() -> None:
        await released.wait()

    waiting = [asyncio.ensure_future(rig.pace.keep(frozen)) for _ in range(fan_out._AT_ONCE)]
    await asyncio.wait_for(rig.stop(1), 5)
    assert rig.told == [1] and not any(each.done() for each in waiting)
    released.set()
    await asyncio.gather(*waiting)


@played(play)
async def test_what_is_given_up_is_looked_at_no_more(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fan_out, "_HOLDING_UP", 60.0)
    ends = []

    async def look() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ends.append("given up")
            raise

    keeping = asyncio.ensure_future(rig.pace.keep(look))
    await asyncio.sleep(0.01)
    keeping.cancel()
    await asyncio.wait({keeping})
    await asyncio.sleep(0)
    assert ends == ["given up"]


@played(play)
async def test_the_system_keeps_little_that_an_editor_has_not_taken(rig: Rig) -> None:
    connection = rig.editor._writer.get_extra_info("socket")
    # Linux doubles what it is asked for (socket(7)).
    assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) <= 2 * editor_module._SENT_AHEAD
