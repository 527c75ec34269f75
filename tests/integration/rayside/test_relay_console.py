"""Tests over scripted debuggees what an editor hears of prints, and of those that it did not get."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rayside.dap.additions import BEAT, RESTART, TICKET
from rayside.dap.framing import Message, encode
from rayside.relay import editor
from tests.integration.rayside.test_relay_scripted import Scripted, Setting, scripted, until
from tests.integration.relay_debuggees import TOKEN, Session, Wire
from tests.patience import PATIENCE

pytestmark = pytest.mark.gate


def say_printed(debuggee: Scripted, text: str = "a line", **body: Any) -> None:
    debuggee.say({"event": "raysidePrinted", "body": {"category": "stdout", "output": text, **body}})


async def attached(setting: Setting, **options: Any) -> tuple[Scripted, Session]:
    (debuggee,) = setting.debuggees
    session = await setting.attach(**options)
    await asyncio.wait_for(debuggee.attached.wait(), PATIENCE)
    return debuggee, session


async def test_what_is_left_out_of_a_removed_logpoint_is_told_too() -> None:
    async with scripted() as setting:
        debuggee, session = await attached(setting)
        debuggee.say({"event": "raysideReached", "body": {"key": 999_999, "what": "leftOut", "number": 12}})
        text = (await session.event("output", category="console"))["output"]
        assert ": 12 more lines were left out here" in text


async def test_each_print_says_whose_it_is_and_where() -> None:
    async with scripted() as setting:
        debuggee, session = await attached(setting, redirectOutput=True)
        say_printed(debuggee, "one\ntwo", task="train", path="/elsewhere/train.py", line=7)
        output = await session.event("output", category="stdout")
        title = f"train · {debuggee.debuggee.pid}@{debuggee.debuggee.node_ip}"
        assert output["output"] == f"{title}: one\n{title}: two\n"
        assert (output["source"]["name"], output["line"]) == ("train.py", 7)
        ray = output["data"]["ray"]
        assert (ray["task"], ray["nodeIp"]) == ("train", debuggee.debuggee.node_ip)


def lines_of(output: Message) -> int:
    """Returns how many lines an editor says that it did not get; 0 where it is about something else."""
    number, _, rest = str(output.get("output", "")).partition(" lines were left out here, for this editor")
    return int(number.replace(",", "")) if rest else 0


async def test_an_editor_that_was_slow_is_told_once_how_much_it_missed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(editor, "MOST_OUTPUT_UNREAD", -1)

    async with scripted() as setting:
        (debuggee,) = setting.debuggees
        wire = await Wire.open(setting.port)
        await wire.ask("attach", token=TOKEN, redirectOutput=True)
        await wire.ask("configurationDone")
        await asyncio.wait_for(debuggee.attached.wait(), PATIENCE)
        for _ in range(30):
            say_printed(debuggee, "two\nlines")
        session = setting.relay.sessions[0]
        await until(lambda: session.editor is not None and session.editor.lines_left_out >= 60)
        monkeypatch.setattr(editor, "MOST_OUTPUT_UNREAD", 1024 * 1024)
        output = await wire.hear(event="output")
        assert lines_of(output["body"]) == 60
        assert output["body"]["output"].endswith("`logs` shows it.\n")
        await wire.ask("threads")
        assert not [message for message in wire.unmatched if message.get("event") == "output"]
        await wire.close()


async def test_an_editor_that_is_back_is_told_how_much_was_printed_meanwhile() -> None:
    async with scripted() as setting:
        (debuggee,) = setting.debuggees
        first = await Wire.open(setting.port)
        first.send(encode({"type": "event", "event": BEAT}))  # it comes by a forward
        answer = await first.ask("attach", token=TOKEN, redirectOutput=True)
        await first.ask("configurationDone")
        await asyncio.wait_for(debuggee.attached.wait(), PATIENCE)
        session = setting.relay.sessions[0]
        first.abort()
        await until(lambda: session.expects_editor)
        for _ in range(5):
            say_printed(debuggee)
        lost = session.editor
        assert lost is not None
        await until(lambda: lost.lines_left_out >= 5)
        second = await Wire.open(setting.port)
        restart = {TICKET: answer["body"]["ray"][TICKET]}
        await second.ask("attach", token=TOKEN, redirectOutput=True, **{RESTART: restart})
        await second.ask("configurationDone")
        output = await second.hear(event="output")
        assert lines_of(output["body"]) == 5
        await second.close()
        await first.close()
