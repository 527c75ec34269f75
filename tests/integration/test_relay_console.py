"""Tests over scripted debuggees which prints an editor chooses, and what it hears of the rest."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bootstrap.dap.additions import BEAT, RESTART, TICKET
from bootstrap.dap.framing import Message, encode
from bootstrap.errors import AttachFailed, RequestFailed
from bootstrap.relay import editor
from tests.integration.relay_debuggees import TOKEN, Session, Wire
from tests.integration.test_relay_scripted import Scripted, Setting, play, until
from tests.patience import PATIENCE

pytestmark = pytest.mark.gate


def say_printed(debuggee: Scripted, text: str = "a line", **body: Any) -> None:
    debuggee.say({"event": "raysidePrinted", "body": {"category": "stdout", "output": text, **body}})


def say_hidden(debuggee: Scripted, **body: Any) -> None:
    debuggee.say({"event": "raysideHidden", "body": body})


async def attached(setting: Setting, **options: Any) -> tuple[Scripted, Session]:
    (debuggee,) = setting.debuggees
    session = await setting.attach(**options)
    await asyncio.wait_for(debuggee.attached.wait(), PATIENCE)
    return debuggee, session


def calls(debuggee: Scripted, part: str) -> int:
    """Returns how often the debuggee was asked for what has that in it."""
    return sum(part in arguments["expression"] for arguments in debuggee.received("evaluate"))


@pytest.mark.parametrize(
    ("shows", "why"),
    [
        ("some", "not 'some'"),
        ("all of them", "not 'all of them'"),
        ("only", "only which tasks?"),
        ("only ray.rank ==", "no Python expression"),
        ("only " + "1+" * 2_001 + "1", "at most 4,000 characters"),
        (3, "takes `all`, `off` or"),
        (["all"], "takes `all`, `off` or"),
    ],
)
def test_what_can_not_be_chosen_is_refused_and_changes_nothing(shows: object, why: str) -> None:
    async def story(setting: Setting) -> None:
        debuggee, session = await attached(setting, redirectOutput=True, printsOnly="ray.rank == 0")
        with pytest.raises(RequestFailed, match=why):
            await session.request("prints", show=shows)
        answer = await session.request("prints")
        assert (answer["prints"], answer["only"]) == (True, "ray.rank == 0")
        assert calls(debuggee, ".choose('ray.rank == 0')") == 1
        assert calls(debuggee, ".choose(") == 1

    play(story)


@pytest.mark.parametrize("only", ["ray.rank ==", "", 3, "x" * 4_001])
def test_an_editor_is_refused_whose_expression_can_not_be_read(only: object) -> None:
    async def story(setting: Setting) -> None:
        with pytest.raises(AttachFailed, match=r"as in ray\.rank == 0"):
            await setting.attach(redirectOutput=True, printsOnly=only)

    play(story)


def test_a_debuggee_knows_whose_lines_are_chosen_before_it_has_a_logpoint() -> None:
    async def story(setting: Setting) -> None:
        (debuggee,) = setting.debuggees
        await setting.attach([2], printsOnly="ray.rank == 0")
        await asyncio.wait_for(debuggee.attached.wait(), PATIENCE)
        requests = [str(request) for request in debuggee.requests]
        chosen = next(number for number, text in enumerate(requests) if ".choose(" in text)
        assert chosen < next(number for number, text in enumerate(requests) if "'setBreakpoints'" in text)

    play(story)


def test_what_is_typed_into_the_debug_console_is_no_expression_for_a_task() -> None:
    async def story(setting: Setting) -> None:
        debuggee, session = await attached(setting)
        frame = (await session.frames(await setting.stopped(session)))[0]["id"]
        for text in ("prints only ray.rank == 0", "prints off", "prints all"):
            await session.request("evaluate", expression=text, frameId=frame, context="repl")
            assert debuggee.evaluated(text) == 0
        assert (await session.request("prints"))["prints"] is True
        shown = await session.request("evaluate", expression="prints", context="repl")
        assert shown["result"].startswith("What all tasks print is shown.")
        # It may be a variable there, and what the mouse rests on is one.
        await session.request("evaluate", expression="prints", frameId=frame, context="repl")
        await session.request("evaluate", expression="prints", frameId=frame, context="hover")
        assert debuggee.evaluated("prints") == 2
        await session.request("evaluate", expression="prints off", frameId=frame, context="watch")
        assert debuggee.evaluated("prints off") == 1

    play(story)


def test_an_editor_that_watches_chooses_nothing() -> None:
    async def story(setting: Setting) -> None:
        await attached(setting, redirectOutput=True)
        watcher = await setting.attach(takeOver="watch")
        with pytest.raises(RequestFailed, match="only watches"):
            await watcher.request("prints", show="off")
        with pytest.raises(RequestFailed, match="only watches"):
            await watcher.request("evaluate", expression="prints off", context="repl")

    play(story)


def test_the_next_editor_has_chosen_nothing() -> None:
    async def story(setting: Setting) -> None:
        debuggee, _ = await attached(setting, redirectOutput=True, printsOnly="ray.rank == 0")
        say_hidden(debuggee, number=7)
        session = await setting.attach(redirectOutput=True)
        await until(lambda: calls(debuggee, ".choose('')") == 1)
        answer = await session.request("prints")
        assert (answer["prints"], answer["only"], answer["hidden"]) == (True, "", 0)

    play(story)


def test_what_a_debuggee_says_it_has_hidden_is_checked_and_cleaned() -> None:
    async def story(setting: Setting) -> None:
        debuggee, session = await attached(setting, redirectOutput=True, printsOnly="ray.rank == 0")
        for wrong in ({}, {"number": -1}, {"number": "7"}, {"number": 10**30}):
            say_hidden(debuggee, **wrong)
        for _ in range(3):
            say_hidden(debuggee, number=2, text="Oops: \x1b[2Jgone\x07", task="t\x1b[1m\nprints")
        text = (await session.event("output", category="console"))["output"]
        assert "this raised Oops: \\x1b[2Jgone\\x07 in t\\x1b[1m\\nprints; where" in text
        while (answer := await session.request("prints"))["hidden"] < 6:
            await asyncio.sleep(0.01)
        assert answer["hidden"] == 6
        assert "6 lines of 1 other process were not shown." in answer["text"]
        await session.nothing("output", 0.1, category="console")

    play(story)


def test_what_is_left_out_of_a_removed_logpoint_is_told_too() -> None:
    async def story(setting: Setting) -> None:
        debuggee, session = await attached(setting)
        debuggee.say({"event": "raysideReached", "body": {"key": 999_999, "what": "leftOut", "number": 12}})
        text = (await session.event("output", category="console"))["output"]
        assert ": 12 more lines were left out here" in text

    play(story)


def test_each_print_says_whose_it_is_and_where() -> None:
    async def story(setting: Setting) -> None:
        debuggee, session = await attached(setting, redirectOutput=True)
        say_printed(debuggee, "one\ntwo", task="train", path="/elsewhere/train.py", line=7)
        output = await session.event("output", category="stdout")
        title = f"train · {debuggee.debuggee.pid}@{debuggee.debuggee.node_ip}"
        assert output["output"] == f"{title}: one\n{title}: two\n"
        assert (output["source"]["name"], output["line"]) == ("train.py", 7)
        ray = output["data"]["ray"]
        assert (ray["task"], ray["nodeIp"]) == ("train", debuggee.debuggee.node_ip)

    play(story)


def lines_of(output: Message) -> int:
    """Returns how many lines an editor says that it did not get; 0 where it is about something else."""
    number, _, rest = str(output.get("output", "")).partition(" lines were left out here, for this editor")
    return int(number.replace(",", "")) if rest else 0


def test_an_editor_that_was_slow_is_told_once_how_much_it_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(editor, "MOST_OUTPUT_UNREAD", -1)

    async def story(setting: Setting) -> None:
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
        assert output["body"]["output"].endswith("./invokew logs\n")
        await wire.ask("threads")
        assert not [message for message in wire.unmatched if message.get("event") == "output"]
        await wire.close()

    play(story)


def test_an_editor_that_is_back_is_told_how_much_was_printed_meanwhile() -> None:
    async def story(setting: Setting) -> None:
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

    play(story)
