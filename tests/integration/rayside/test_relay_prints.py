"""Tests what an editor of the relay gets of real debuggees' prints; their own output stays complete."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path
from typing import Any

import pytest

from tests.integration.relay_debuggees import Session, relay_over
from tests.patience import PATIENCE

PRINTS = """\
import logging, sys
def work():
    print("one", 1)
    print("a" * 3, end="")
    print("b")
    print("two\\nlines")
    logging.error("logged")
    print("bad", file=sys.stderr)
work()
print("done", flush=True)
"""
# Where each of them was printed.
PLACES = [("one 1", 3), ("aaab", 5), ("two\nlines", 6), ("done", 10)]


async def lines(editor: Session, title: str, count: int, category: str = "stdout") -> list[tuple[str, int]]:
    """Returns what the next events of that category say without the title, each with its line."""
    printed = []
    for _ in range(count):
        output = await editor.event("output", category=category)
        text = output["output"].replace(f"{title}: ", "")
        assert output["output"].count(f"{title}: ") == text.count("\n")
        printed.append((text.removesuffix("\n"), output["line"]))
    return printed


@pytest.mark.parametrize("in_process", [False, True])
async def test_prints_have_their_task_and_their_place(tmp_path: Path, in_process: bool) -> None:
    async with relay_over(tmp_path) as setting:
        (process,) = await setting.cluster.start(PRINTS, in_process=in_process)
        editor = await setting.attach(redirectOutput=True)
        title = f"task-1 · {process.process.pid}@127.0.0.1"
        first = await editor.event("output", category="stdout")
        assert first["source"]["path"] == str(setting.cluster.here / "job.py")
        of_task = {"task": "task-1", "workerId": "w1", "nodeIp": "127.0.0.1", "pid": process.process.pid}
        assert first["data"]["ray"] == {**of_task, "jobId": "01000000", "submissionId": ""}
        assert first["output"] == f"{title}: one 1\n"
        assert await lines(editor, title, 3) == PLACES[1:]
        # What logs stands in the user's code, not in `logging`.
        assert await lines(editor, title, 2, "stderr") == [("ERROR:root:logged", 7), ("bad", 8)]
        assert await process.end() == ["one 1", "aaab", "two", "lines", "done"]


async def test_without_being_asked_for_prints_stay_in_the_jobs_output(tmp_path: Path) -> None:
    async with relay_over(tmp_path) as setting:
        (process,) = await setting.cluster.start(PRINTS)
        editor = await setting.attach()
        assert await process.end() == ["one 1", "aaab", "two", "lines", "done"]
        await editor.nothing("output", 0.2)


LOOP = """\
pass
for i in range(COUNT):
    print("line", i)
print("done", flush=True)
"""


async def test_prints_that_come_too_fast_are_counted_and_none_is_lost(tmp_path: Path) -> None:
    async with relay_over(tmp_path) as setting:
        (process,) = await setting.cluster.start(LOOP.replace("COUNT", "5000"))
        editor = await setting.attach(redirectOutput=True)
        assert await process.end() == [*(f"line {i}" for i in range(5000)), "done"]
        left_out = shown = 0
        while left_out + shown < 5001:
            output = await editor.event("output", category="console")
            match = re.search(r": ([\d,]+) more lines? w.* came too fast", output["output"])
            assert match is not None
            left_out += int(match[1].replace(",", ""))
            shown = sum(event["event"] == "output" for event in editor.unmatched)
        assert shown + left_out == 5001
        assert shown >= 100


TICKS = """\
import sys, time
for i in range(2000):
    print("tick", "write" in vars(sys.stdout), "write" in vars(sys.stderr), flush=True)
    time.sleep(0.01)
"""


async def test_the_streams_are_given_back_when_the_editor_leaves(tmp_path: Path) -> None:
    async with relay_over(tmp_path) as setting:
        (process,) = await setting.cluster.start(TICKS)
        for _ in range(2):  # and it can be had again
            editor = await setting.attach(redirectOutput=True)
            output = await editor.event("output", category="stdout")
            assert output["output"].endswith(": tick True True\n")
            await editor.client.disconnect()
            await until(process, "tick False False")
        # Each once.
        assert set(process.lines) <= {"tick True True", "tick False False"}


async def test_the_streams_are_given_back_when_the_relay_dies(tmp_path: Path) -> None:
    async with relay_over(tmp_path) as setting:
        (process,) = await setting.cluster.start(TICKS, in_process=True)
        editor = await setting.attach(redirectOutput=True)
        await editor.event("output", category="stdout")
        (session,) = setting.relay.sessions
        (worker,) = session.workers.attached
        worker.connection.client._transport.abort()
        await until(process, "tick False False")


async def until(process: Any, line: str) -> None:
    earlier = len(process.lines)
    began = time.monotonic()
    while line not in process.lines[earlier:]:
        assert time.monotonic() - began < PATIENCE, process.lines[-1]
        await asyncio.sleep(0.02)


async def test_nobody_who_prints_waits_for_a_relay_that_does_not_read(tmp_path: Path) -> None:
    async with relay_over(tmp_path) as setting:
        script = "import time\ntime.sleep(1)\n" + LOOP.replace("COUNT", "20000").replace("line", "x" * 200)
        (process,) = await setting.cluster.start(script, in_process=True)
        await setting.attach(redirectOutput=True)
        (session,) = setting.relay.sessions
        while not session.workers.attached:
            await asyncio.sleep(0.01)
        (worker,) = session.workers.attached
        transport = worker.connection.client._transport
        transport.pause_reading()
        assert len(await process.end()) == 20_001
        transport.resume_reading()
        await worker.connection.client.closed.wait()
        worker.connection.client.close()
        await worker.connection.client.wait_closed()


# A destructor that prints while pydevd's own queue is locked by the same thread.
DESTRUCTOR = """\
import pydevd
class Prints:
    def __del__(self): print("from a destructor")
queue = pydevd.get_global_debugger().writer._cmd_queue
with queue.mutex:
    Prints()
print("done", flush=True)
"""


async def test_a_destructor_may_print_anywhere(tmp_path: Path) -> None:
    async with relay_over(tmp_path) as setting:
        (process,) = await setting.cluster.start(DESTRUCTOR)
        await setting.attach(redirectOutput=True)
        assert await process.end() == ["from a destructor", "done"]


# By debugpy's own, which has the child look for a debugger, that child would hang.
FORKS = """\
import os
pid = os.original_fork()
for i in range(3000):
    print("child" if pid == 0 else "parent", flush=True)
if pid == 0:
    os._exit(0)
os.waitpid(pid, 0)
print("done", flush=True)
"""


async def test_a_forked_child_prints_as_before(tmp_path: Path) -> None:
    async with relay_over(tmp_path) as setting:
        (process,) = await setting.cluster.start(FORKS)
        editor = await setting.attach(redirectOutput=True)
        printed = await process.end()
        text = "".join(printed)  # two that print at a time share lines
        assert (text.count("child"), text.count("parent")) == (3000, 3000)
        await editor.event("output", category="stdout")
        assert not [event for event in editor.unmatched if "child" in str(event)]


async def test_a_step_into_a_print_does_not_lead_into_ours(tmp_path: Path) -> None:
    async with relay_over(tmp_path) as setting:
        (process,) = await setting.cluster.start(PRINTS)
        editor = await setting.attach({"job.py": [3]}, redirectOutput=True)
        stop = await editor.event("stopped")
        await editor.request("stepIn", threadId=stop["threadId"])
        stop = await editor.event("stopped")
        (frame, *_) = await editor.frames(stop)
        assert (frame["name"].split()[0], frame["line"]) == ("work", 4)
        # What the debug console prints is told by debugpy, and once.
        where = {"frameId": frame["id"], "context": "repl"}
        await editor.request("evaluate", expression="print('from the console')", **where)
        await editor.resume(stop)
        assert (await process.end())[-1] == "done"
        await editor.nothing("output", 0.2, output="never")
        outputs = [str(event["body"]["output"]) for event in editor.unmatched if event["event"] == "output"]
        assert len([text for text in outputs if "from the console" in text]) == 1


# As Ray's worker, it says in which task a thread is.
UNENDED = """\
import os, sys, time, types
from types import SimpleNamespace
task_id = "1"
core = SimpleNamespace(get_current_task_id=lambda: task_id)
worker = sys.modules["ray._private.worker"] = types.ModuleType("ray._private.worker")
worker.SCRIPT_MODE, worker.global_worker = 0, SimpleNamespace(mode=1, core_worker=core)
print("left by the first", end="")
task_id, os.environ["TASK"] = "2", "task-2"
print("the second")
print("waits", end="", flush=True)
while not os.path.exists("HERE/goes"):
    time.sleep(0.02)
print("goes on")
print("at the end", end="", flush=True)
"""


async def test_a_line_without_an_end_is_told_before_the_next_task_after_a_second_and_at_the_end(
    tmp_path: Path,
) -> None:
    async with relay_over(tmp_path) as setting:
        (process,) = await setting.cluster.start(UNENDED.replace("HERE", str(setting.cluster.here)))
        editor = await setting.attach(redirectOutput=True)
        told = []
        for _ in range(3):
            output = await editor.event("output", category="stdout")
            text = output["output"].rpartition("@127.0.0.1: ")[2]
            told.append((output["data"]["ray"]["task"], text, output["line"]))
        assert told == [
            ("task-1", "left by the first\n", 7),
            ("task-2", "the second\n", 9),
            ("task-2", "waits\n", 10),
        ]
        (setting.cluster.here / "goes").touch()
        assert (await editor.event("output", category="stdout", line=13))["output"].endswith(": goes on\n")
        last = await editor.event("output", category="stdout")
        assert last["output"].endswith(": at the end\n")
        assert await process.end() == ["left by the firstthe second", "waitsgoes on", "at the end"]


LONG = """\
pass
print("x" * 20_000)
print("\\n".join(f"line {i}" for i in range(700)))
print("done", flush=True)
"""


async def test_of_a_long_print_is_told_how_much_is_missing_and_where_it_is(tmp_path: Path) -> None:
    async with relay_over(tmp_path) as setting:
        (process,) = await setting.cluster.start(LONG)
        editor = await setting.attach(redirectOutput=True)
        long = await editor.event("output", category="stdout", line=2)
        assert long["output"].endswith("xxx... (4,001 more characters)\n")
        many = await editor.event("output", category="stdout", line=3)
        assert many["output"].count("\n") == many["output"].count(": line ") == 500
        left_out = (await editor.event("output", category="console"))["output"]
        assert ": 200 more lines were left out here" in left_out
        assert left_out.endswith(": `logs`\n")
        assert (await process.end())[-1] == "done"
