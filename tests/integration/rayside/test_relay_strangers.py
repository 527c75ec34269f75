"""Tests strangers at a relay: connections without a token, and debuggees that send whatever they like."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from rayside.dap.framing import encode
from rayside.errors import RequestFailed
from rayside.relay import messages, server
from rayside.relay.debug_session import MOST_STOPS
from rayside.relay.reports import EACH_AT_ONCE
from tests.integration.rayside.test_relay_scripted import scripted, until
from tests.integration.relay_debuggees import TOKEN, Wire
from tests.patience import PATIENCE

pytestmark = pytest.mark.gate


async def dropped(wire: Wire) -> None:
    """Waits until the relay has ended the connection."""
    with pytest.raises((ConnectionResetError, AssertionError)):
        await wire.hear(event="nothing")
    await wire.close()


# --- without the token ---------------------------------------------------------------------------


async def test_a_connection_without_the_token_says_no_more_than_64_kib_at_once() -> None:
    async with scripted(count=2) as setting:
        stranger = await Wire.open(setting.port)
        stranger.say("evaluate", expression="x" * 70_000)
        refusal = await stranger.hear(type="response", success=False)
        assert "longer than 65536 bytes" in refusal["message"]
        await stranger.closed()
        editor = await setting.configured()
        assert "no task is stopped" in (await editor.ask("evaluate", expression="x" * 70_000))["message"]
        await editor.close()


async def test_a_connection_that_shows_no_token_in_time_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rayside.relay.server.SHOWING", 0.3)

    async with scripted() as setting:
        editor = await setting.configured()
        asking = await Wire.open(setting.port)
        await asking.ask("pausedTasks", token=TOKEN)
        silent, talking = await Wire.open(setting.port), await Wire.open(setting.port)
        await talking.ask("initialize")
        for stranger in (silent, talking):
            await dropped(stranger)
        for known in (editor, asking):  # it has been longer than that
            assert (await known.ask("pausedTasks", token=TOKEN))["success"] is True
            await known.close()


async def test_of_many_strangers_the_oldest_makes_room_and_editors_stay() -> None:
    async with scripted() as setting:
        editor = await setting.configured()
        strangers = [await Wire.open(setting.port) for _ in range(server.MOST_UNAUTHENTICATED)]
        await strangers[-1].ask("initialize")
        assert (await strangers[0].ask("initialize"))["success"] is True
        newcomer = await Wire.open(setting.port)
        assert (await newcomer.ask("attach", token=TOKEN))["success"] is True
        await dropped(strangers[0])
        assert (await strangers[1].ask("initialize"))["success"] is True
        for wire in (editor, newcomer, *strangers[1:]):
            await wire.close()


async def test_a_stranger_that_reads_no_answer_is_dropped() -> None:
    async with scripted() as setting:
        _, writer = await asyncio.open_connection("127.0.0.1", setting.port, limit=1024)
        request = encode({"seq": 1, "type": "request", "command": "x" * 30_000})
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        with pytest.raises(OSError):
            for _ in range(5_000):
                writer.write(request)
                await asyncio.wait_for(writer.drain(), PATIENCE)
        writer.close()


# --- debuggees -----------------------------------------------------------------------------------


async def test_an_answer_that_is_too_long_fails_and_the_debuggee_stays() -> None:
    async with scripted() as setting:
        (debuggee,) = setting.debuggees
        session = await setting.attach()
        stop = await setting.stopped(session)
        frame = (await session.frames(stop))[0]["id"]
        debuggee.says["completions"] = {"targets": [{"label": "x" * messages.LONGEST}]}
        with pytest.raises(RequestFailed, match=r"too long: it has 4,194,\d+ bytes, and 4,194,304 are taken"):
            await session.request("completions", frameId=frame, text="x", column=1)
        debuggee.say({"event": "output", "body": {"output": "x" * messages.LONGEST}})
        debuggee.says["completions"] = {"targets": [{"label": "x" * messages.LONGEST}]}
        debuggee.say({"event": "output", "body": {"output": "x" * messages.LONGEST}})
        debuggee.says["completions"] = {"targets": [{"label": "short"}]}
        answer = await session.request("completions", frameId=frame, text="x", column=1)
        assert answer == {"targets": [{"label": "short"}]}


@pytest.mark.parametrize("path", ["/etc/passwd", "/x/working_dir_files/_ray_pkg_aa/../../../etc/passwd"])
async def test_a_path_that_is_not_mapped_is_a_text_of_the_debuggee(path: str) -> None:
    async with scripted() as setting:
        (debuggee,) = setting.debuggees
        session = await setting.attach(pathMappings=[{"localRoot": "/here", "remoteRoot": "."}])
        stop = await setting.stopped(session)
        source = {"path": path, "name": "x", "sourceReference": 0, "origin": "x", "adapterData": {"a": 1}}
        debuggee.says["stackTrace"] = {"stackFrames": [{"id": 1, "name": "f", "source": source}]}
        (frame,) = await session.frames(stop)
        assert frame["source"].pop("sourceReference") > 0
        assert frame["source"] == {"path": path, "name": "x"}


@pytest.mark.parametrize("shape", ["one thread", "many threads", "stop and go"])
async def test_a_debuggee_that_stops_without_end_is_left_alone(shape: str) -> None:
    async with scripted(count=2) as setting:
        hostile, good = setting.debuggees
        session = await setting.attach()
        await asyncio.wait_for(hostile.attached.wait(), PATIENCE)
        await asyncio.wait_for(good.attached.wait(), PATIENCE)
        for number in range(2 * MOST_STOPS):
            thread = number if shape == "many threads" else 1
            hostile.say({"event": "stopped", "body": {"reason": "x", "threadId": thread}})
            if shape == "stop and go":
                hostile.say({"event": "continued", "body": {"threadId": 1}})
        output = await session.event("output")
        assert "stops too often to be debugged" in output["output"]
        await until(lambda: not hostile.connected)
        good.stop()
        while (await session.event("stopped"))["ray"]["workerId"] != good.debuggee.worker_id:
            pass


async def test_a_flood_of_output_is_cut_told_in_one_line_and_drops_no_editor() -> None:
    async with scripted() as setting:
        (debuggee,) = setting.debuggees
        session = await setting.attach()
        await asyncio.wait_for(debuggee.attached.wait(), PATIENCE)
        for number in range(20_000):
            debuggee.say({"event": "output", "body": {"category": "stdout", "output": f"{number}\n"}})
        passed = left_out = notes = 0
        while passed + left_out < 20_000:
            text = (await session.event("output"))["output"]
            if note := re.search(r": ([0-9,]+) more lines were left out", text):
                left_out, notes = left_out + int(note[1].replace(",", "")), notes + 1
            else:
                passed += 1
        assert passed + left_out == 20_000
        assert EACH_AT_ONCE <= passed <= 5 * EACH_AT_ONCE
        assert notes < 10
        assert await setting.stopped(session)


@pytest.mark.parametrize("redirected", [True, False])
async def test_what_debuggees_say_they_printed_is_bounded_and_only_for_who_has_asked(
    redirected: bool,
) -> None:
    async with scripted() as setting:
        (debuggee,) = setting.debuggees
        session = await setting.attach(redirectOutput=redirected)
        await asyncio.wait_for(debuggee.attached.wait(), PATIENCE)

        def prints(**body: Any) -> None:
            debuggee.say({"event": "raysidePrinted", "body": {"category": "stdout", **body}})

        prints(output="\x1b]0;title\x07" + "x" * 100_000, path="/a/../etc/passwd", line=3, task="t\nu\x1b[2J")
        prints(output="y", path="relative.py", line="3")
        prints(output=["z"], leftOut=-1)
        prints(output="z", category="telemetry")
        prints(leftOut=2**31 - 1)
        assert await setting.stopped(session)
        if not redirected:
            await session.nothing("output", 0.1)
            return
        long = await session.event("output", category="stdout")
        assert len(long["output"]) < 21_000
        assert "\x1b" not in long["output"]
        assert long["output"].count("\n") == 2  # it was cut, which is said
        # Its text, if anything, and no file of the editor's.
        assert long["source"]["sourceReference"] > 0
        short = await session.event("output", category="stdout")
        assert "source" not in short
        assert "2,147,483,647 more lines" in (await session.event("output", category="console"))["output"]
        await session.nothing("output", 0)


@pytest.mark.parametrize("sends", ["requests", "halves"])
async def test_a_debuggee_that_reads_nothing_costs_no_memory(sends: str) -> None:
    """A reverse request gets an answer, which nobody reads."""

    async with scripted() as setting:
        (debuggee,) = setting.debuggees
        session = await setting.attach()
        await asyncio.wait_for(debuggee.attached.wait(), PATIENCE)
        request: dict[str, Any] = {"type": "request", "command": "runInTerminal", "seq": "x" * 100_000}
        if sends == "halves":
            debuggee.send(b"Content-Length: 1000000000\r\n\r\n" + b"x" * 50_000_000)
            await debuggee.drain()
            debuggee.drop()
        else:
            debuggee.deaf_to = {"all"}
            for _ in range(100):
                debuggee.send(encode(request))
                await debuggee.drain()
        await session.threads()
