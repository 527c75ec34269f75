"""Tests the stacks of all processes together: what runs or waits goes on so; strangers are cleaned."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rayside.dap.framing import Message
from rayside.errors import NotRunning
from rayside.relay import stacks
from rayside.relay.lifecycle import SETTLING
from rayside.worker.evaluated.thread_stacks import LONGEST, MOST, MOST_FRAMES
from tests.integration.rayside.test_relay_scripted import Scripted, scripted
from tests.integration.relay_debuggees import TOKEN, Wire, relay_over
from tests.patience import PATIENCE

PROGRAM = """\
import asyncio, os, threading, time

def waits():
    while True:
        time.sleep(0.01)

def loads():
    while True:
        time.sleep(0.01)

def recurses(depth):
    while not depth:
        time.sleep(0.01)
    recurses(depth - 1)

async def feeds():
    await asyncio.sleep(1000)

async def serves():
    feeder = asyncio.create_task(feeds(), name="feeder")
    print("serves", flush=True)
    await feeder

def work(number):
    if number == 2:
        loads()
    elif number == 3:
        asyncio.run(serves())
    elif number == 4:
        recurses(300)
    waits()

threading.Thread(target=waits, name="beat", daemon=True).start()
print("begun", flush=True)
work(int(os.environ["TASK"].rpartition("-")[2]))
"""
LOOP = """\
import time
for i in range(10**6):
    x = i
    print(x, flush=True)
    time.sleep(0.01)
"""


def nodes(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for row in rows:
        yield row
        yield from nodes(row["calls"])


def threads_in(answer: Mapping[str, Any], function: str) -> list[tuple[str, str]]:
    """Returns the worker_id and the name of each thread that is in that function or in what it calls."""
    own = [node for node in nodes(answer["stacks"]) if node["function"] == function]
    ending = [here for node in nodes(own) for here in node["here"]]
    return sorted({(here["worker_id"], here["thread"]) for here in ending})


async def ask(port: int, **arguments: Any) -> Message:
    """Returns the answer to somebody who has attached nowhere."""
    wire = await Wire.open(port)
    response = await wire.ask("stacks", **{"token": TOKEN, **arguments})
    await wire.close()
    assert response["success"], response
    return dict(response["body"])


IN_PROCESS = pytest.mark.parametrize("in_process", [True, False], ids=["Rayside's port", "debugpy's adapter"])


@IN_PROCESS
async def test_what_runs_is_told_and_runs_on(tmp_path: Path, in_process: bool) -> None:
    async with relay_over(tmp_path) as setting:
        processes = await setting.cluster.start(PROGRAM, count=5, waits=False, in_process=in_process)
        await asyncio.gather(*(process.until_printed() for process in processes))
        await processes[2].until_printed(2)
        answer = await ask(setting.port)
        while len(threads_in(answer, "recurses")) < 1:  # it has printed, and recurses next
            answer = await ask(setting.port)
        assert (answer["processes"], answer["unanswered"], answer["left_out"]) == (5, [], 0)
        assert [w for w, name in threads_in(answer, "work") if name == "MainThread"] == [
            *("w1", "w2", "w3", "w4", "w5")
        ]
        assert threads_in(answer, "loads") == [("w2", "MainThread")]
        beats = [(f"w{n}", "beat") for n in range(1, 6)]
        assert threads_in(answer, "waits") == sorted([*beats, ("w1", "MainThread"), ("w5", "MainThread")])
        # A task that waits is in no thread; the loop's own thread is.
        assert threads_in(answer, "feeds") == [("w3", "asyncio feeder")]
        assert threads_in(answer, "serves") == [("w3", "asyncio Task-1")]
        (work,) = [node for node in nodes(answer["stacks"]) if node["function"] == "work"]
        assert (work["threads"], work["own"]) == (5, True)
        assert (work["file"], work["local"]) == (str(setting.cluster.here / "job.py"), True)
        recursion = [node for node in nodes(answer["stacks"]) if node["function"] == "recurses"]
        assert len(recursion) < MOST_FRAMES
        assert [node for node in nodes(answer["stacks"]) if "more frames)" in node["function"]]
        # Neither pydevd's threads are among them, nor its frames.
        names = {here["thread"] for node in nodes(answer["stacks"]) for here in node["here"]}
        assert names == {"MainThread", "beat", "asyncio feeder", "asyncio Task-1"}
        assert "pydevd" not in json.dumps(answer)
        assert setting.relay.sessions == []


@IN_PROCESS
async def test_what_waits_for_a_debugger_waits_on_and_stops_for_the_next_editor(
    tmp_path: Path, in_process: bool
) -> None:
    async with relay_over(tmp_path) as setting:
        (process,) = await setting.cluster.start(LOOP, in_process=in_process)
        answer = await ask(setting.port)
        assert (answer["processes"], answer["unanswered"]) == (1, [])
        await asyncio.sleep(0.5)
        assert process.lines == []
        editor = await setting.attach({"job.py": [4]})
        await editor.event("stopped")
        assert process.lines == []
        await editor.client.disconnect()


async def test_no_breakpoint_in_the_code_stops_for_it(tmp_path: Path) -> None:
    pauses = LOOP.replace("    x = i\n", "    breakpoint()\n    x = i\n")

    async with relay_over(tmp_path) as setting:
        (process,) = await setting.cluster.start(pauses, waits=False, in_process=True)
        await process.until_printed()
        assert (await ask(setting.port))["processes"] == 1
        await process.until_printed(len(process.lines) + 50)


async def test_below_the_row_of_the_cluster_any_editor_has_what_all_do(tmp_path: Path) -> None:
    async with relay_over(tmp_path) as setting:
        processes = await setting.cluster.start(PROGRAM, count=4, waits=False, in_process=True)
        await asyncio.gather(*(process.until_printed() for process in processes))
        await processes[2].until_printed(2)
        editor = await setting.attach()
        for _ in range(5):
            await editor.event("thread", reason="started")
        cluster = next(row for row, name in (await editor.threads()).items() if name == "Ray cluster")
        body = await editor.request("stackTrace", threadId=cluster)
        frames = body["stackFrames"]
        assert (len(frames), frames[0]["name"]) == (body["totalFrames"], "all stopped tasks")
        assert len({frame["id"] for frame in frames}) == len(frames)
        assert re.fullmatch(r"\d+ threads of 4 processes", frames[1]["name"])
        assert frames[1]["presentationHint"] == "label"
        (work,) = [frame for frame in frames if re.search(r"\b4  work$", frame["name"])]
        assert work["source"] == {"name": "job.py", "path": str(setting.cluster.here / "job.py")}
        lines = PROGRAM.splitlines()
        calls = {"loads()", "asyncio.run(serves())", "recurses(300)", "waits()"}
        assert lines[work["line"] - 1].strip() in calls
        named = [frame["name"].strip("│ ") for frame in frames if "loads" in frame["name"]]
        assert named in (["└─ 1  loads"], ["├─ 1  loads"])
        # A library's file is not the editor's.
        subtle = [frame for frame in frames if frame.get("presentationHint") == "subtle"]
        assert subtle and not any("path" in frame["source"] for frame in subtle)
        # A part of it, and the first frame alone, for which no process is asked.
        part = await editor.request("stackTrace", threadId=cluster, startFrame=1, levels=2)
        assert [frame["id"] for frame in part["stackFrames"]] == [frame["id"] for frame in frames[1:3]]
        first = await editor.request("stackTrace", threadId=cluster, startFrame=0, levels=1)
        assert [frame["name"] for frame in first["stackFrames"]] == ["all stopped tasks"]
        # What runs is read anew each time, and runs on.
        assert (await editor.request("stackTrace", threadId=cluster))["totalFrames"] > 3
        await editor.nothing("stopped", 0.2)
        assert (await editor.request("scopes", frameId=work["id"]))["scopes"] == []
        await editor.client.disconnect()


async def test_what_is_stopped_is_told_so_and_stays_stopped(tmp_path: Path) -> None:
    async with relay_over(tmp_path) as setting:
        (process,) = await setting.cluster.start(LOOP, in_process=True)
        editor = await setting.attach({"job.py": [4]})
        await editor.event("stopped")
        watcher = await setting.attach(takeOver="watch")
        printed = len(process.lines)
        for answer in (
            await editor.request("stacks"),
            await watcher.request("stacks"),
            await ask(setting.port),
        ):
            (module,) = [node for node in nodes(answer["stacks"]) if node["own"]]
            assert (module["lines"], module["calls"]) == ([[4, 1]], [])
            assert module["here"][0]["stopped"] is True
        await editor.nothing("continued", 0.2)
        assert len(process.lines) == printed
        await watcher.client.disconnect()
        await editor.client.disconnect()
        await process.until_printed(printed + 1)


async def test_another_jobs_processes_are_not_told(tmp_path: Path) -> None:
    async with relay_over(tmp_path) as setting:
        (own,) = await setting.cluster.start(LOOP, waits=False, name="own.py")
        other, unknown = await setting.cluster.start(LOOP, count=2, waits=False, job="02000000")
        # Nobody knows its job yet: it is asked, as by an editor's session, and known from then on.
        object.__setattr__(unknown.debuggee, "job_id", "")
        answer = await ask(setting.port, job="01000000")
        assert (answer["processes"], answer["unanswered"]) == (1, [])
        assert {worker for worker, _ in threads_in(answer, "<module>")} == {own.debuggee.worker_id}
        answer = await ask(setting.port, job="02000000")
        assert (answer["processes"], answer["unanswered"]) == (2, [])
        others = {process.debuggee.worker_id for process in (other, unknown)}
        assert {worker for worker, _ in threads_in(answer, "<module>")} == others


async def test_an_editors_own_paths_are_shown(tmp_path: Path) -> None:
    async with relay_over(tmp_path) as setting:
        (process,) = await setting.cluster.start(LOOP, waits=False, in_process=True)
        await process.until_printed()
        setting.cluster.roots.clear()
        for how, file, local in (
            ({"pathMappings": [{"localRoot": "/mine", "remoteRoot": "."}]}, "/mine/job.py", True),
            ({}, next(tmp_path.glob("session/**/job.py")), False),
            ({"sharedFiles": True}, next(tmp_path.glob("session/**/job.py")), True),
        ):
            answer = await ask(setting.port, **how)
            (module,) = [node for node in nodes(answer["stacks"]) if node["own"]]
            assert (module["file"], module["local"]) == (str(file), local)


async def test_two_who_ask_at_once_are_both_told(tmp_path: Path) -> None:
    async with relay_over(tmp_path) as setting:
        await setting.cluster.start(LOOP, count=2, waits=False, in_process=True)
        for answer in await asyncio.gather(*(ask(setting.port) for _ in range(3))):
            assert (answer["processes"], answer["unanswered"]) == (2, [])


@pytest.mark.parametrize("is_held", [True, False], ids=["held by an editor", "visited"])
async def test_a_process_that_answers_nothing_keeps_no_other_from_being_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_held: bool
) -> None:
    monkeypatch.setattr(stacks, "ANSWERING", 1.0)

    async with relay_over(tmp_path) as setting:
        frozen, process = await setting.cluster.start(PROGRAM, count=2, waits=False, in_process=True)
        await asyncio.gather(frozen.until_printed(), process.until_printed())
        editor = await setting.attach() if is_held else None
        if editor is not None:
            await editor.event("thread", reason="started", threadId=2)
            await editor.event("thread", reason="started", threadId=3)
        os.kill(frozen.process.pid, signal.SIGSTOP)
        try:
            began = time.monotonic()
            answer = await ask(setting.port)
            assert time.monotonic() - began < 5
            assert [missing["worker_id"] for missing in answer["unanswered"]] == ["w1"]
            assert "did not answer" in answer["unanswered"][0]["why"]
            assert {worker for worker, _ in threads_in(answer, "work")} == {"w2"}
        finally:
            os.kill(frozen.process.pid, signal.SIGCONT)
        while (await ask(setting.port))["processes"] < 2:  # the visit was waited for
            await asyncio.sleep(0.1)
        if editor is not None:
            await editor.client.disconnect()


class Strange(Scripted):
    """Answers with a text of the test's for its stacks."""

    text = json.dumps({"threads": []})

    def _value(self, expression: str) -> str:
        return repr([self.text]) if ".stacks(" in expression else super()._value(expression)


async def test_what_a_strange_process_says_is_bounded_and_cleaned() -> None:
    frame = ["/x/\x1b[2Jjob.py", 3, "f\u202e" * LONGEST, True]
    deep = {"name": "t", "stopped": False, "frames": [frame] * 2 * MOST_FRAMES}
    short = {"name": "t" * 2 * LONGEST, "stopped": False, "frames": [[*frame[:2], "g", True]]}
    answers = {
        "w1": json.dumps({"threads": [short] * 2 * MOST, "more": 7}),
        "w2": "no JSON",
        "w3": json.dumps({"threads": 3}),
        "w4": "[" * 100_000,
        "w5": json.dumps(
            {"threads": [{"name": 1}, deep | {"frames": [["f", {}, [], 1], 5, None, [[[]]]]}, deep]}
        ),
        "w6": json.dumps([]),
    }

    async with scripted(len(answers)) as setting:
        for debuggee in setting.debuggees:
            debuggee.__class__ = Strange
            debuggee.text = answers[debuggee.debuggee.worker_id]  # type: ignore[attr-defined]
        answer = await ask(setting.port)
        assert sorted(missing["worker_id"] for missing in answer["unanswered"]) == ["w2", "w3", "w4", "w6"]
        assert {missing["why"] for missing in answer["unanswered"]} == {
            "its answer is none that the relay knows"
        }
        assert (answer["processes"], answer["left_out"]) == (2, 7)
        everything = [*nodes(answer["stacks"])]
        assert sorted(node["threads"] for node in everything) == [*[1] * (MOST_FRAMES + 1), MOST]
        assert answer["threads"] == MOST + 2, "one has no frame that is one"
        for node in everything:
            assert len(node["function"]) <= len("\\u202e") * LONGEST
            assert all(len(here["thread"]) <= LONGEST for here in node["here"])
            assert node["function"].isprintable()
            assert (node["file"], node["local"]) == ("/x/\\x1b[2Jjob.py", False), "no editor may open it"


async def test_an_editor_that_comes_meanwhile_waits_for_the_end_of_the_visit() -> None:
    async with scripted() as setting:
        (debuggee,) = setting.debuggees
        debuggee.__class__ = Strange
        debuggee.deaf_to = {"evaluate"}
        asking = asyncio.ensure_future(ask(setting.port))
        while not debuggee.received("evaluate"):
            await asyncio.sleep(0.01)
        await setting.attach()
        await setting.looked(3)
        assert len(debuggee.dialled) == 1
        assert debuggee.received("configurationDone") == []
        debuggee.deaf_to = set()
        debuggee.answers("evaluate")
        assert (await asking)["processes"] == 1
        await asyncio.wait_for(debuggee.attached.wait(), PATIENCE)
        assert debuggee.dialled[1] - debuggee.left[0] >= SETTLING


async def test_without_an_answer_of_ray_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacks, "LOOKING", 0.2)

    async with scripted() as setting:
        for takes, error, message in (
            (1000.0, None, "Ray did not answer within 0.2 s"),
            (0.0, NotRunning("no Ray dashboard answers", hint=""), "no Ray dashboard answers"),
        ):
            setting.discovery.takes, setting.discovery.error = takes, error
            wire = await Wire.open(setting.port)
            response = await wire.ask("stacks", token=TOKEN)
            assert (response["success"], response["message"]) == (False, message)
            await wire.close()


async def test_a_process_that_an_editor_gets_meanwhile_is_asked_there() -> None:
    async with scripted() as setting:
        (debuggee,) = setting.debuggees
        debuggee.__class__ = Strange
        stacks_of = setting.relay._stacks
        turn = stacks_of._turns = asyncio.Semaphore(0)  # all turns are taken
        asking = asyncio.ensure_future(ask(setting.port))
        await setting.looked(1)
        await setting.attach()
        await asyncio.wait_for(debuggee.attached.wait(), PATIENCE)
        turn.release()
        assert (await asking)["processes"] == 1
        assert len(debuggee.dialled) == 1


async def test_a_relay_that_ends_waits_for_a_visit_to_end() -> None:
    async with scripted() as setting:
        (debuggee,) = setting.debuggees
        debuggee.__class__ = Strange
        debuggee.deaf_to = {"evaluate"}
        wire = await Wire.open(setting.port)
        wire.say("stacks", token=TOKEN)
        while not debuggee.received("evaluate"):
            await asyncio.sleep(0.01)
        closing = asyncio.ensure_future(setting.relay.close())
        await asyncio.sleep(0.3)
        assert debuggee.connected
        assert not closing.done()
        debuggee.deaf_to = set()
        debuggee.answers("evaluate")
        await asyncio.wait_for(closing, PATIENCE)
        assert debuggee.received("disconnect")
        await wire.closed()


async def test_a_debuggee_that_refuses_is_tried_once() -> None:
    async with scripted() as setting:
        (debuggee,) = setting.debuggees
        debuggee.refuses = {"initialize"}
        for why in ("refused to attach", "another debugger has it"):
            (missing,) = (await ask(setting.port))["unanswered"]
            assert why in missing["why"]
        assert len(debuggee.dialled) == 1


async def test_what_belongs_to_another_job_in_the_end_is_not_told_of() -> None:
    async with scripted() as setting:
        (debuggee,) = setting.debuggees
        debuggee.__class__ = Strange
        await setting.attach()
        await asyncio.wait_for(debuggee.attached.wait(), PATIENCE)
        # Ray has not said yet whose it is; the session that holds it knows.
        setting.discovery.listed = [replace(debuggee.debuggee, job_id="")]
        answer = await ask(setting.port, job="02000000")
        assert (answer["processes"], answer["unanswered"]) == (0, [])
        assert (await ask(setting.port, job=debuggee.debuggee.job_id))["processes"] == 1
