"""Tests retries at the relay over scripted debuggees: who gets which edited files, and races."""

from __future__ import annotations

import asyncio
import hashlib
import json
from typing import Any

import pytest

from rayside.dap.framing import Message
from rayside.errors import RequestFailed
from tests.integration.rayside.test_relay_scripted import Scripted, Setting, scripted, until
from tests.integration.rayside.test_relay_sessions import ONE, TWO, of_jobs
from tests.integration.relay_debuggees import Session
from tests.integration.scripted_debuggees import FILE, TABLE

pytestmark = pytest.mark.gate
FILES = [{"path": FILE, "text": "def work(x): ..."}]


def asked(debuggee: Scripted, function: str) -> list[str]:
    """Returns the calls of a function of ours that it was asked for."""
    expressions = [each["expression"] for each in debuggee.received("evaluate")]
    return [each for each in expressions if f").{function}(" in each]


def answering(debuggee: Scripted, here: str = "ok") -> None:
    """Scripts a debuggee to accept edits, and to answer `here` to requests for retries."""
    usual = debuggee._value
    answers = {"check": "", "apply": "", "apply_later": None, "publish": "", "here": here}

    def value(expression: str) -> str:
        function = next((each for each in answers if f").{each}(" in expression), None)
        return usual(expression) if function is None else repr([answers[function]])

    debuggee._value = value  # type: ignore[method-assign]


async def failed(setting: Setting, session: Session, *numbers: int) -> list[Message]:
    stops = []
    for number in numbers:
        debuggee = setting.debuggees[number - 1]
        answering(debuggee)
        await until(debuggee.attached.is_set)
        debuggee.say({"event": "stopped", "body": {"reason": "exception", "threadId": 1}})
        stops.append(await session.event("stopped"))
    return stops


async def retry(session: Session, **arguments: Any) -> Message:
    return await session.client.request("retry", {"within": 1, **arguments}, timeout=20)


async def test_an_edit_of_one_job_does_not_get_to_another() -> None:
    async with scripted(3) as setting:
        of_jobs(setting, ONE, ONE, TWO)
        session = await setting.attach()
        failing, alike, other = setting.debuggees
        await until(other.attached.is_set)
        for each in (alike, other):
            answering(each)
        (stop,) = await failed(setting, session, 1)
        await retry(session, threadId=stop["threadId"], files=FILES)
        await until(lambda: bool(asked(alike, "apply_later")))
        assert asked(failing, "publish")
        assert not any("def work(x)" in each["expression"] for each in other.received("evaluate"))


async def test_what_one_job_refuses_does_not_keep_another_from_running_again() -> None:
    async with scripted(2) as setting:
        of_jobs(setting, ONE, TWO)
        session = await setting.attach()
        await failed(setting, session, 1, 2)
        refusing = setting.debuggees[1]
        usual = refusing._value
        refusing._value = lambda expression: (  # type: ignore[method-assign]
            repr(["job.py is no file of this job"]) if ").check(" in expression else usual(expression)
        )
        answer = await retry(session, group="failed", files=FILES)
        rows = {row["worker_id"]: (row["outcome"], row["why"]) for row in answer["retried"]}
        assert rows["w2"] == ("refused", "job.py is no file of this job")
        assert rows["w1"][0] == "running" and answer["edited"] == [FILE]
        assert asked(setting.debuggees[0], "publish") and not asked(refusing, "here")


async def test_what_a_new_statement_raises_in_one_worker_is_refused_in_that_alone() -> None:
    async with scripted(3) as setting:
        of_jobs(setting, ONE, ONE, ONE)
        session = await setting.attach()
        await failed(setting, session, 1, 2, 3)
        raising, gone, _ = setting.debuggees
        usual = raising._value
        raising._value = lambda expression: (  # type: ignore[method-assign]
            repr(["line 1 of job.py raised KeyError: 'DATA'"])
            if ").apply(" in expression
            else usual(expression)
        )
        published = gone._value

        def value(expression: str) -> str:
            if ").publish(" in expression:
                gone.drop()
            return published(expression)

        gone._value = value  # type: ignore[method-assign]
        answer = await retry(session, group="failed", files=FILES)
        rows = {row["worker_id"]: (row["outcome"], row["why"]) for row in answer["retried"]}
        assert rows["w1"] == ("refused", "line 1 of job.py raised KeyError: 'DATA'")
        assert rows["w2"][0] == "refused" and rows["w3"][0] == "running"
        assert asked(setting.debuggees[2], "publish") and answer["edited"] == [FILE]


async def test_nothing_runs_again_where_later_workers_could_not_get_the_edit() -> None:
    async with scripted() as setting:
        (debuggee,) = setting.debuggees
        session = await setting.attach()
        await failed(setting, session, 1)
        usual = debuggee._value
        debuggee._value = lambda expression: (  # type: ignore[method-assign]
            repr(["too long"]) if ").publish(" in expression else usual(expression)
        )
        (row,) = (await retry(session, group="failed", files=FILES))["retried"]
        assert (row["outcome"], row["why"]) == ("refused", "too long") and not asked(debuggee, "here")
        (row,) = (await retry(session, group="failed", files=FILES, hereOnly=True))["retried"]
        assert row["outcome"] == "running" and asked(debuggee, "here")


async def test_two_who_have_one_task_run_again_do_it_once() -> None:
    async with scripted() as setting:
        session = await setting.attach()
        await failed(setting, session, 1)
        answers = await asyncio.gather(retry(session, group="failed"), retry(session, group="failed"))
        outcomes = [(row["outcome"], row["why"]) for answer in answers for row in answer["retried"]]
        assert ("refused", "it is about to run again already") in outcomes
        assert len(asked(setting.debuggees[0], "here")) == 1


async def test_what_one_editor_has_saved_is_not_the_next_ones() -> None:
    async with scripted() as setting:
        first = await setting.attach()
        await failed(setting, first, 1)
        await first.client.request("edits", {"files": FILES}, timeout=20)
        long = [{"path": f"/{number}.py", "text": " " * 1_000_000} for number in range(5)]
        await first.client.request("edits", {"files": long[:4]}, timeout=20)
        with pytest.raises(RequestFailed, match="too long together"):
            await first.client.request("edits", {"files": long[4:]}, timeout=20)
        second = await setting.attach()
        stop = await second.event("stopped")
        await retry(second, threadId=stop["threadId"])
        assert asked(setting.debuggees[0], "here") and not asked(setting.debuggees[0], "apply")


async def test_a_watcher_has_nothing_run_again() -> None:
    async with scripted() as setting:
        session = await setting.attach()
        await failed(setting, session, 1)
        watcher = await setting.attach(takeOver="watch")
        for command in ("retry", "sources", "edits", "restartFrame"):
            with pytest.raises(RequestFailed, match="only watches"):
                await watcher.client.request(command, {"files": FILES}, timeout=20)
        with pytest.raises(RequestFailed, match="only watches"):
            await watcher.client.request(
                "evaluate", {"expression": "@failed retry", "context": "repl"}, timeout=20
            )


async def test_breakpoints_are_placed_by_the_lines_that_each_task_runs() -> None:
    async with scripted(2) as setting:
        edited, other = setting.debuggees
        lines = {"code": [1, 5], "statements": [], "functions": [1, 5], "indents": [0, 0, 0, 0, 4, 0]}
        session = await setting.attach()
        (stop,) = await failed(setting, session, 1)
        await until(other.attached.is_set)
        usual = edited._value
        edited._value = lambda expression: (  # type: ignore[method-assign]
            json.dumps({"sha256": "0" * 64, "lines": lines})
            if "line_table" in expression
            else usual(expression)
        )
        await retry(session, threadId=stop["threadId"], files=FILES, hereOnly=True)
        arguments = {"source": {"path": FILE}, "breakpoints": [{"line": 3}]}
        await session.client.request("setBreakpoints", arguments, timeout=20)
        await until(lambda: bool(edited.received("setBreakpoints") and other.received("setBreakpoints")))
        placed = [each.received("setBreakpoints")[-1]["breakpoints"][0]["line"] for each in (edited, other)]
        assert placed == [5, 3]


async def test_an_edited_file_is_not_told_to_differ_from_what_tasks_run() -> None:
    async with scripted() as setting:
        (debuggee,) = setting.debuggees
        session = await setting.attach()
        checksums = [{"algorithm": "SHA256", "checksum": json.loads(TABLE)["sha256"]}]
        arguments = {"source": {"path": FILE, "checksums": checksums}, "breakpoints": [{"line": 1}]}
        await session.client.request("setBreakpoints", arguments, timeout=20)
        (stop,) = await failed(setting, session, 1)
        edited = {**json.loads(TABLE), "sha256": hashlib.sha256(FILES[0]["text"].encode()).hexdigest()}
        usual, table = debuggee._value, json.dumps(edited)
        debuggee._value = lambda expression: (  # type: ignore[method-assign]
            table if "line_table" in expression else usual(expression)
        )
        await retry(session, threadId=stop["threadId"], files=FILES)
        await session.nothing("output", 0.05)
