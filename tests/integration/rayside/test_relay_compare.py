"""Tests one expression in all stopped tasks together: what is odd comes first, and nobody is held up."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rayside.dap.framing import Message
from rayside.dap.paused_task import PausedTask
from rayside.errors import NotRunning, RequestFailed
from rayside.relay import comparison
from rayside.worker.redaction import REDACTED
from tests.integration.rayside.test_relay_evaluate import cancels
from tests.integration.rayside.test_relay_scripted import scripted
from tests.integration.relay_debuggees import TOKEN, Setting, Wire, relay_over
from tests.integration.relay_debuggees import Session as Attached
from tests.patience import PATIENCE

PROGRAM = """\
import math, os, threading, time

class Slow:
    def __repr__(self):
        while True:
            time.sleep(0.01)

def work(rank):
    loss = [0.5, 0.25, math.nan, 0.5, 90.0, 0.5, 0.25][rank]
    rows = list(range(3 if rank else 4))
    api_key = "sk-live-0123456789abcdef"
    print("works", flush=True)
    return loss

def loop(rank):
    while True:
        work(rank)
        time.sleep(0.01)

rank = int(os.environ["TASK"].rpartition("-")[2]) - 1
if "THREADS" in os.environ:
    threading.Thread(target=loop, args=(rank + 1,), name="second", daemon=True).start()
loop(rank)
"""
RETURN = PROGRAM.splitlines().index("    return loss") + 1


async def stopped(setting: Setting, count: int, **options: Any) -> tuple[Attached, list[Message]]:
    """Returns an editor with that many processes of PROGRAM that have stopped, and the stops."""
    await setting.cluster.start(PROGRAM, count=count, in_process=True)
    editor = await setting.attach({"job.py": [RETURN]}, **options)
    return editor, [await editor.event("stopped") for _ in range(count)]


async def ask(port: int, expression: object, **arguments: Any) -> Message:
    """Returns the whole answer to somebody who has attached nowhere."""
    wire = await Wire.open(port)
    response = await wire.ask("compare", **{"token": TOKEN, "expression": expression, **arguments})
    await wire.close()
    return response


async def compared(port: int, expression: str, **arguments: Any) -> Message:
    response = await ask(port, expression, **arguments)
    assert response["success"], response
    return dict(response["body"])


def values(answer: Mapping[str, Any]) -> list[tuple[str, str, int]]:
    """Returns what is shown of each group, its mark and its number of tasks, in order."""
    return [(group["value"]["shown"], group["mark"], group["count"]) for group in answer["groups"]]


async def test_what_is_odd_comes_first_and_each_task_is_named(tmp_path: Path) -> None:
    async with relay_over(tmp_path) as setting:
        editor, _ = await stopped(setting, 7)
        answer = await compared(setting.port, "loss")
        assert values(answer) == [
            ("nan", "nan", 1),
            ("90.0", "outlier", 1),
            ("0.5", "", 3),
            ("0.25", "", 2),
        ]
        assert (answer["tasks"], answer["failed"], answer["left_out"]) == (7, [], 0)
        assert answer["numbers"] == {"count": 6, "min": 0.25, "median": 0.5, "max": 90.0}
        process = setting.cluster.processes[2]
        assert answer["groups"][0]["tasks"] == [
            {
                "task": "task-3",
                "pid": process.process.pid,
                "node": "127.0.0.1",
                "thread": "MainThread",
                "workerId": "w3",
                "submissionId": "",
            }
        ]
        assert values(await compared(setting.port, "rows")) == [
            ("[0, 1, 2, 3]", "shape", 1),
            ("[0, 1, 2]", "", 6),
        ]
        assert values(await compared(setting.port, "1 / (rank - 1)"))[0] == (
            "ZeroDivisionError: division by zero",
            "error",
            1,
        )
        await editor.nothing("continued", 0.2)
        await editor.client.disconnect()


async def test_on_the_row_of_the_cluster_an_editor_evaluates_in_all_stopped_tasks(tmp_path: Path) -> None:
    async with relay_over(tmp_path) as setting:
        editor, stops = await stopped(setting, 3)
        rows = await editor.threads()
        cluster = next(row for row, name in rows.items() if name == "Ray cluster")
        frame, *_, below = await editor.frames({"threadId": cluster})
        assert (await editor.request("scopes", frameId=frame["id"]))["scopes"] == []
        for where in (
            {"frameId": below["id"], "context": "repl"},
            {"frameId": frame["id"], "context": "repl"},
            {"frameId": frame["id"], "context": "watch"},
            {"frameId": frame["id"]},
            {"context": "repl"},  # no task is chosen
        ):
            body = await editor.request("evaluate", expression="loss", **where)
            lines = body["result"].splitlines()
            assert lines[:2] == [
                "loss  in 3 stopped tasks: 0.25 to 0.5, median 0.375",
                "1  nan  <- NaN or infinity",
            ]
            assert re.fullmatch(r"     task-3 · \d+@127\.0\.0\.1", lines[2])
            assert body["variablesReference"] == 0
        with pytest.raises(RequestFailed, match="choose a task"):
            await editor.request("evaluate", expression="loss", frameId=frame["id"], context="hover")
        with pytest.raises(RequestFailed, match="no Python expression"):
            await editor.request("evaluate", expression="loss =", frameId=frame["id"], context="repl")
        # VS Code asks so for what is typed there, and shows each error to the user.
        for frame_of in ({"frameId": frame["id"]}, {}):
            completed = await editor.request("completions", text="l", column=2, **frame_of)
            assert completed["targets"] == []
        cancelling = await editor.client.answer("cancel", {"requestId": 1})
        assert cancelling["body"]["error"]["showUser"] is False
        # Where a task is chosen, it alone is asked, as before.
        assert await editor.evaluate(stops[0], "loss") in ("0.5", "0.25", "nan")
        assert (await editor.request("compare", expression="rank"))["tasks"] == 3
        watcher = await setting.attach(takeOver="watch")
        with pytest.raises(RequestFailed, match="only watches"):
            await watcher.request("compare", expression="rank")
        await watcher.client.disconnect()
        for stop in stops:
            await editor.resume(stop)
        await editor.client.disconnect()


async def test_a_task_that_is_stopped_alone_is_asked_by_itself_where_no_frame_is_named(
    tmp_path: Path,
) -> None:
    async with relay_over(tmp_path) as setting:
        editor, (stop,) = await stopped(setting, 1)
        await editor.frames(stop)
        body = await editor.request("evaluate", expression="6 * 7", context="repl")
        assert body["result"] == "42"
        await editor.client.disconnect()


async def test_where_nothing_is_stopped_it_says_so(tmp_path: Path) -> None:
    async with relay_over(tmp_path) as setting:
        await setting.cluster.start(PROGRAM, waits=False, in_process=True)
        answer = await compared(setting.port, "loss")
        assert (answer["tasks"], answer["groups"], answer["failed"]) == (0, [], [])
        editor = await setting.attach()
        await editor.event("thread", reason="started", threadId=2)
        with pytest.raises(RequestFailed, match="no task is stopped"):
            await editor.request("compare", expression="loss")
        # With no task stopped, an editor that names no frame means the process that there is.
        body = await editor.request("evaluate", expression="1 + 1", context="repl")
        assert body["result"] == "2"
        await editor.client.disconnect()


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("loss +", "it is no Python expression: invalid syntax"),
        ("", "there is no expression"),
        ("x" * 4_001, "and may have 4,000"),
        (7, "`expression` has to be a text"),
    ],
    ids=range(4),
)
async def test_what_is_no_expression_is_told_before_anybody_is_asked(
    expression: object, message: str
) -> None:
    async with scripted() as setting:
        session = await setting.attach()
        await setting.stopped(session)
        (debuggee,) = setting.debuggees
        before = len(debuggee.received("evaluate"))
        response = await ask(setting.port, expression)
        assert response["success"] is False
        assert message in response["message"]
        assert len(debuggee.received("evaluate")) == before


async def test_a_repr_that_hangs_is_interrupted_and_the_others_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison, "ANSWERING", 1.0)

    async with relay_over(tmp_path) as setting:
        editor, stops = await stopped(setting, 3)
        began = time.monotonic()
        answer = await compared(setting.port, "Slow() if rank == 1 else rank")
        assert time.monotonic() - began < 5
        assert sorted(values(answer)) == [("0", "", 1), ("2", "", 1)]
        (failed,) = answer["failed"]
        assert (failed["task"], failed["waiting"]) == ("task-2", False)
        assert "was interrupted" in failed["why"]
        # Its thread is free: it answers, and resumes.
        assert (await compared(setting.port, "rank"))["tasks"] == 3
        for stop in stops:
            await editor.resume(stop)
            await editor.event("stopped", threadId=stop["threadId"])
        await editor.client.disconnect()


async def test_a_process_that_is_frozen_holds_up_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison, "ANSWERING", 1.0)

    async with relay_over(tmp_path) as setting:
        editor, _ = await stopped(setting, 2)
        frozen = setting.cluster.processes[0].process.pid
        os.kill(frozen, signal.SIGSTOP)
        try:
            answer = await compared(setting.port, "rank")
            assert values(answer) == [("1", "", 1)]
            assert [failed["workerId"] for failed in answer["failed"]] == ["w1"]
        finally:
            os.kill(frozen, signal.SIGCONT)
        while (await compared(setting.port, "rank"))["tasks"] < 2:
            await asyncio.sleep(0.1)
        await editor.client.disconnect()


async def test_a_task_that_goes_on_while_it_evaluates_is_interrupted_and_named(tmp_path: Path) -> None:
    async with relay_over(tmp_path) as setting:
        editor, stops = await stopped(setting, 2)
        flag = tmp_path / "begun"
        expression = f"(open({str(flag)!r}, 'w').close(), time.sleep(4)) if rank else rank"
        asking = asyncio.ensure_future(compared(setting.port, expression))
        while not flag.exists():
            await asyncio.sleep(0.01)
            if asking.done():  # A busy machine was late to begin it.
                asking = asyncio.ensure_future(compared(setting.port, expression))
        second = next(stop for stop in stops if stop["ray"]["workerId"] == "w2")
        await editor.request("setBreakpoints", source={"path": str(setting.cluster.here / "job.py")})
        await editor.resume(second)
        answer = await asking
        assert values(answer) == [("0", "", 1)]
        (failed,) = answer["failed"]
        assert (failed["workerId"], "it goes on" in failed["why"]) == ("w2", True)
        await editor.client.disconnect()


async def test_an_editors_evaluation_is_left_alone_and_its_task_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison, "SOON", 0.2)
    monkeypatch.setattr(comparison, "ANSWERING", 1.0)

    async with relay_over(tmp_path) as setting:
        editor, (stop,) = await stopped(setting, 1)
        end = tmp_path / "end"
        until = f"iter(lambda: __import__('os').path.exists({str(end)!r}), True)"
        evaluating = await editor.begin(stop, f"len([time.sleep(0.01) for _ in {until}]) and 7")
        answer = await compared(setting.port, "[y for y in iter(int, 1)]")
        assert [failed["why"] for failed in answer["failed"]] == [comparison._BUSY]
        end.touch()
        assert (await asyncio.wait_for(evaluating, PATIENCE))["body"]["result"] == "7"
        assert (await compared(setting.port, "rank"))["tasks"] == 1
        await editor.client.disconnect()


async def test_an_editor_can_cancel_it(tmp_path: Path) -> None:
    async with relay_over(tmp_path) as setting:
        editor, _ = await stopped(setting, 1)
        flag = tmp_path / "begun"
        cluster = next(row for row, name in (await editor.threads()).items() if name == "Ray cluster")
        frame, *_ = await editor.frames({"threadId": cluster})
        expression = f"open({str(flag)!r}, 'w').close() or time.sleep(60)"
        arguments = {"expression": expression, "frameId": frame["id"]}
        asking = asyncio.ensure_future(editor.client.answer("evaluate", arguments))
        while not flag.exists():
            await asyncio.sleep(0.01)
        assert [await cancels(editor, number) for number in range(1, 50)].count(True) == 1
        answer = await asyncio.wait_for(asking, PATIENCE)
        assert answer["body"]["result"].endswith(comparison._INTERRUPTED)
        await editor.client.disconnect()


async def test_each_stopped_thread_of_a_process_is_a_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THREADS", "1")

    async with relay_over(tmp_path) as setting:
        editor, _ = await stopped(setting, 1)
        await editor.event("stopped")
        answer = await compared(setting.port, "loss")
        assert [(group["value"]["shown"], group["tasks"][0]["thread"]) for group in answer["groups"]] == [
            ("0.5", "MainThread"),
            ("0.25", "second"),
        ]
        await editor.client.disconnect()


async def test_another_jobs_tasks_are_not_asked(tmp_path: Path) -> None:
    async with relay_over(tmp_path) as setting:
        await setting.cluster.start(PROGRAM, in_process=True)
        await setting.cluster.start(PROGRAM, in_process=True, job="02000000")
        editor = await setting.attach({"job.py": [RETURN]})
        for _ in range(2):
            await editor.event("stopped")
        assert (await compared(setting.port, "rank"))["tasks"] == 2
        answer = await compared(setting.port, "rank", job="02000000")
        assert [group["tasks"][0]["workerId"] for group in answer["groups"]] == ["w2"]
        await editor.client.disconnect()


async def test_secrets_are_masked_and_still_told_apart(tmp_path: Path) -> None:
    async with relay_over(tmp_path) as setting:
        editor, _ = await stopped(setting, 2)
        answer = await compared(setting.port, "api_key")
        assert values(answer) == [(REDACTED, "", 2)]
        assert set(answer["groups"][0]["value"]) == {"kind", "type", "shown"}
        answer = await compared(setting.port, "api_key + str(rank)")
        assert [group["alike"] for group in answer["groups"]] == [True, True]
        for expression in (
            "{'a': [eval('api' + '_key')]}",
            "int(eval('api' + '_key'))",
            "type(eval('api' + '_key'), (), {})",
        ):
            text = json.dumps(await compared(setting.port, expression))
            assert "sk-live" not in text.replace(expression, "")
        await editor.client.disconnect()


async def test_a_secret_that_a_cut_would_go_through_is_masked_whole(tmp_path: Path) -> None:
    secrets = """
    api_token = "".join(f"{n:04}t" for n in range(80))
    big_secret = "".join(f"{n:04}b" for n in range(600))
    texts = [globals()["SHORT"], api_token, big_secret]
    class Custom:
        def __repr__(self): return "x" * 1_950 + texts[0] + "y" * 5_000
    class Within(Custom):
        def __repr__(self): return "x" * 150 + texts[0] + "y" * 5_000
"""
    program = PROGRAM.replace('    print("works"', f'{secrets}    print("works"').replace(
        "def work", "SHORT = MY_PASSWORD = 'p4ssw0rd' * 11\ndef work"
    )
    stop = program.splitlines().index("    return loss") + 1

    async with relay_over(tmp_path) as setting:
        await setting.cluster.start(program, in_process=True)
        editor = await setting.attach({"job.py": [stop]})
        await editor.event("stopped")
        for expression in (
            "texts",
            "{n: [text.encode()] for n, text in enumerate(texts)}",
            "texts[2]",
            "Custom()",
            "[Within()]",
            "type(texts[1], (), {})()",
            "type('D', (), {'shape': (1,), 'dtype': texts[1]})()",
            "(_ for _ in ()).throw(ValueError('x' * 1_950 + texts[1]))",
        ):
            text = json.dumps(await compared(setting.port, expression))
            assert not re.search("p4ss|000[01][tb]|0050b", text), (expression, text)
        await editor.client.disconnect()


async def test_why_a_task_refuses_is_told_without_secrets() -> None:
    async with scripted() as setting:
        (debuggee,) = setting.debuggees
        session = await setting.attach()
        await setting.stopped(session)
        debuggee.refuses = {"stackTrace"}
        debuggee.refusal = "no: ghp_0123456789012345678901234567"
        (failed,) = (await compared(setting.port, "x"))["failed"]
        assert failed["why"] == f"no: {REDACTED}"


VALUE = {"kind": "number", "type": "int", "shown": "1", "digest": "0"}


async def test_what_a_strange_process_says_is_bounded_and_cleaned() -> None:
    answers = [
        "no JSON",
        json.dumps({"thread": "t"}),
        "[" * 90_000,
        json.dumps({"thread": "t", "value": {**VALUE, "kind": "program"}}),
        json.dumps({"thread": "t", "value": {**VALUE, "shown": "x" * 200_000}}),
        '{"thread": "t", "value": ' + json.dumps(VALUE).replace('"digest"', '"number": NaN, "digest"') + "}",
        json.dumps(
            {
                "thread": "t\x1b[2J\n",
                "value": {
                    **VALUE,
                    "type": "t" * 5_000,
                    "shown": "\u202e" * 2_000,
                    "number": 10**400,
                    "shape": [1] * 1_000,
                    "columns": [{"name": "c", "dtype": "d"}] * 1_000,
                    "nan": -1,
                    "more": "unknown",
                },
            }
        ),
    ]

    async with scripted(len(answers)) as setting:
        for debuggee, text in zip(setting.debuggees, answers, strict=True):
            debuggee.summary = text
        session = await setting.attach()
        for number in range(1, len(answers) + 1):
            await setting.stopped(session, number)
        answer = await compared(setting.port, "x")
        assert sorted(failed["workerId"] for failed in answer["failed"]) == [
            debuggee.debuggee.worker_id for debuggee in setting.debuggees[:5]
        ]
        assert {failed["why"] for failed in answer["failed"]} == {"its answer is none that the relay knows"}
        assert answer["tasks"] == 2
        assert answer["numbers"] is None
        (group,) = [group for group in answer["groups"] if "columns" in group["value"]]
        value = group["value"]
        assert (len(value["shape"]), len(value["columns"]), len(value["type"])) == (64, 20, 200)
        assert len(value["shown"]) <= 500
        assert value["shown"].isprintable()
        assert group["tasks"][0]["thread"] == "t\\x1b[2J\\n"
        assert not {"number", "nan", "more"} & set(value)


async def test_what_waits_for_a_debugger_is_named_and_not_asked() -> None:
    async with scripted(2) as setting:
        first, second = setting.debuggees
        second.refuses = {"initialize"}
        other = replace(second.debuggee, worker_id="other", job_id="09000000")
        setting.discovery.listed.append(other)
        setting.discovery.waits = [
            PausedTask(each.worker_id, each.node_ip, each.pid, each.job_id, "work", "")
            for each in (first.debuggee, second.debuggee, other)
        ]
        session = await setting.attach(job=first.debuggee.job_id)
        await setting.stopped(session)
        answer = await compared(setting.port, "x", job=first.debuggee.job_id)
        assert answer["tasks"] == 1
        (waiting,) = answer["failed"]
        assert (waiting["workerId"], waiting["waiting"]) == (second.debuggee.worker_id, True)
        assert "waits for a debugger" in waiting["why"]
        # What a debugger holds is asked also while Ray does not answer.
        setting.discovery.error = NotRunning("no Ray dashboard answers", hint="")
        answer = await compared(setting.port, "x", job=first.debuggee.job_id)
        assert (answer["tasks"], answer["failed"]) == (1, [])
