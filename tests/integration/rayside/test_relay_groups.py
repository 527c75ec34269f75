"""Tests groups of tasks: they are named, stepped, paused and continued as one, and nobody is lost."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rayside.dap.framing import Message
from rayside.dap.group_commands import drawn
from rayside.errors import RequestFailed
from rayside.relay import group_members
from tests.integration.rayside.test_relay_scripted import Setting, scripted, until
from tests.integration.relay_debuggees import Session, relay_over
from tests.integration.relay_debuggees import Setting as RealSetting
from tests.integration.scripted_debuggees import FILE
from tests.patience import PATIENCE

# Each is a rank; `wait` holds that of rank 1 for a while, and its caller's line after it is a step's end.
PROGRAM = """\
import os, time
os.environ["RANK"] = rank = str(int(os.environ["TASK"].rpartition("-")[2]) - 1)

def wait():
    until = time.monotonic() + (SECONDS if rank == "1" else 0)
    while time.monotonic() < until:
        time.sleep(0.01)

def train():
    step = 1
    wait()
    step = 2
    return step

while True:
    train()
    time.sleep(0.01)
"""
FIRST = PROGRAM.splitlines().index("    step = 1") + 1


async def act(editor: Session, group: str, action: str, **more: Any) -> Message:
    arguments = {"group": group, "action": action, **more}
    return dict(await editor.client.request("group", arguments, timeout=60))


def states(answer: Message) -> list[tuple[int | None, str]]:
    """Returns each member's rank and state, by rank."""
    return sorted((row["rank"], row["state"]) for row in answer["members"])


def lines(answer: Message) -> dict[int, int]:
    """Returns the line that each member is at, by rank."""
    return {row["rank"]: row["place"]["line"] for row in answer["members"] if row["place"]}


async def ranks(setting: RealSetting, seconds: float, count: int = 3) -> Session:
    """Returns an editor with so many ranks of PROGRAM, stopped at its first line."""
    await setting.cluster.start(PROGRAM.replace("SECONDS", str(seconds)), count=count, in_process=True)
    editor = await setting.attach({"job.py": [FIRST]})
    for _ in range(count):
        await editor.event("stopped", reason="breakpoint")
    await editor.request(
        "setBreakpoints", source={"path": str(setting.cluster.here / "job.py")}, breakpoints=[]
    )
    return editor


# --- real processes ----------------------------------------------------------------------


async def test_a_step_waits_for_all_and_says_who_is_late_and_what_it_does(tmp_path: Path) -> None:
    async with relay_over(tmp_path) as setting:
        editor = await ranks(setting, 4.0)
        answer = await act(editor, "ranks", "next")
        assert states(answer) == [(0, "stopped"), (1, "stopped"), (2, "stopped")]
        assert lines(answer) == dict.fromkeys(range(3), FIRST + 1)
        began = time.monotonic()
        answer = await act(editor, "ranks", "next", within=1)
        assert 1.0 <= time.monotonic() - began < 3.0
        assert states(answer) == [(0, "stopped"), (1, "late"), (2, "stopped")]
        (late,) = [row for row in answer["members"] if row["state"] == "late"]
        assert late["place"] == {
            "file": str(setting.cluster.here / "job.py"),
            "line": PROGRAM.splitlines().index("        time.sleep(0.01)") + 1,
            "function": "wait",
        }
        assert "1 late after 1 s, in wait" in "\n".join(drawn(answer))
        # The next step waits for the one that is late, too, and does not step it once more.
        answer = await act(editor, "ranks", "next")
        assert states(answer) == [(0, "stopped"), (1, "stopped"), (2, "stopped")]
        assert lines(answer) == {0: FIRST + 3, 1: FIRST + 2, 2: FIRST + 3}
        await editor.client.disconnect()


async def test_one_that_is_late_is_not_to_stop_once_the_group_goes_on(tmp_path: Path) -> None:
    async with relay_over(tmp_path) as setting:
        editor = await ranks(setting, 2.0)
        await act(editor, "ranks", "next")
        assert (1, "late") in states(await act(editor, "ranks", "next", within=1))
        answer = await act(editor, "ranks", "continue")
        assert states(answer) == [(rank, "running") for rank in range(3)]
        for _ in range(5):
            await editor.event("stopped", reason="step")
        # The step of rank 1 would end within 2 s.
        await editor.nothing("stopped", 3.0)
        answer = await act(editor, "ray.rank != 0", "pause")
        assert states(answer) == [(1, "stopped"), (2, "stopped")]
        await editor.client.disconnect()


async def test_one_in_code_that_can_not_be_paused_is_late_and_not_paused_once_the_group_goes_on(
    tmp_path: Path,
) -> None:
    async with relay_over(tmp_path) as setting:
        sleeps = "import time\nprint('sleeps', flush=True)\ntime.sleep(6)\nprint('done', flush=True)\n"
        (process,) = await setting.cluster.start(sleeps, in_process=True)
        editor = await setting.attach()
        await process.until_printed()
        (row,) = (await act(editor, "all", "pause", within=1))["members"]
        assert (row["state"], row["place"]["line"]) == ("late", 3)
        (row,) = (await act(editor, "all", "continue"))["members"]
        assert row["state"] == "running"
        assert (await process.end())[-1] == "done"
        await editor.client.disconnect()


# --- scripted ----------------------------------------------------------------------------


async def all_stopped(setting: Setting, lines: tuple[int, ...] = ()) -> Session:
    """Returns an editor in which all debuggees are stopped."""
    editor = await setting.attach(lines)
    for number in range(1, len(setting.debuggees) + 1):
        await setting.stopped(editor, number)
    return editor


async def type_in(editor: Session, text: str, **more: Any) -> str:
    """Returns what a debug console shows for a text that is typed there."""
    answer = await editor.request("evaluate", expression=text, context="repl", **more)
    return str(answer["result"])


def has_stepped(setting: Setting, number: int) -> None:
    body = {"reason": "step", "threadId": 1}
    setting.debuggees[number - 1].say({"event": "stopped", "body": body})


async def test_a_member_that_dies_between_two_steps_is_told_once_with_rays_reason() -> None:
    async with scripted(3) as setting:
        setting.discovery.reasons["w2"] = "the kernel killed it"
        editor = await all_stopped(setting)
        stepping = asyncio.ensure_future(act(editor, "ranks", "next"))
        await until(lambda: all(debuggee.received("next") for debuggee in setting.debuggees))
        for number in (1, 2, 3):
            has_stepped(setting, number)
        assert {state for _, state in states(await stepping)} == {"stopped"}
        setting.debuggees[1].drop()
        await editor.event("thread", reason="exited")
        stepping = asyncio.ensure_future(act(editor, "ranks", "next"))
        await until(lambda: len(setting.debuggees[2].received("next")) == 2)
        for number in (1, 3):
            has_stepped(setting, number)
        answer = await stepping
        assert states(answer) == [(0, "stopped"), (1, "ended"), (2, "stopped")]
        assert [row["why"] for row in answer["members"] if row["state"] == "ended"] == [
            "the kernel killed it"
        ]
        assert states(await act(editor, "ranks", "members")) == [(0, "stopped"), (2, "stopped")]


async def test_one_that_runs_is_left_out_of_a_step_and_told_as_that() -> None:
    async with scripted(2) as setting:
        editor = await setting.attach()
        await setting.stopped(editor, 1)
        await asyncio.wait_for(setting.debuggees[1].attached.wait(), PATIENCE)
        stepping = asyncio.ensure_future(act(editor, "all", "stepIn", within=999))
        await until(lambda: bool(setting.debuggees[0].received("stepIn")))
        has_stepped(setting, 1)
        answer = await stepping
        assert Counter(row["state"] for row in answer["members"]) == {"stopped": 1, "running": 1}
        assert not setting.debuggees[1].received("stepIn")
        assert "1 running, and left out" in drawn(answer)


async def test_two_steps_at_once_step_each_member_once() -> None:
    async with scripted() as setting:
        editor = await all_stopped(setting)
        both = [asyncio.ensure_future(act(editor, "all", "next")) for _ in range(2)]
        await until(lambda: bool(setting.debuggees[0].received("next")))
        has_stepped(setting, 1)
        for answer in await asyncio.gather(*both):
            assert [row["state"] for row in answer["members"]] == ["stopped"]
        assert len(setting.debuggees[0].received("next")) == 1


async def test_one_that_ends_is_told_once_also_where_that_is_while_it_steps() -> None:
    async with scripted(2) as setting:
        editor = await all_stopped(setting)
        stepping = asyncio.ensure_future(act(editor, "all", "next", within=60))
        await until(lambda: all(debuggee.received("next") for debuggee in setting.debuggees))
        has_stepped(setting, 1)
        setting.debuggees[1].drop()
        assert Counter(row["state"] for row in (await stepping)["members"]) == {"stopped": 1, "ended": 1}
        assert [row["state"] for row in (await act(editor, "all", "members"))["members"]] == ["stopped"]


async def test_what_was_taken_over_by_another_debugger_is_told_as_that() -> None:
    async with scripted() as setting:
        editor = await all_stopped(setting)
        stepping = asyncio.ensure_future(act(editor, "all", "next", within=60))
        await until(lambda: bool(setting.debuggees[0].received("next")))
        other = await setting.attach(job=setting.debuggees[0].debuggee.job_id)
        (row,) = (await stepping)["members"]
        assert (row["state"], row["why"]) == ("left", "another debugger has it now")
        has_stepped(setting, 1)
        await other.event("stopped", reason="step")


async def test_a_member_whose_task_is_another_now_is_told_once() -> None:
    async with scripted() as setting:
        editor = await all_stopped(setting)
        assert len((await act(editor, "task:task-1", "members"))["members"]) == 1
        setting.debuggees[0].task = "another"
        await editor.request(
            "continue", threadId=(await editor.event("thread", reason="started"))["threadId"]
        )
        setting.debuggees[0].stop()
        await editor.event("stopped", reason="breakpoint")
        (row,) = (await act(editor, "task:task-1", "members"))["members"]
        assert (row["state"], row["why"]) == ("left", "its task has ended, or is another")
        assert not (await act(editor, "task:task-1", "members"))["members"]


async def test_a_debuggee_that_refuses_to_step_stays_stopped_and_says_why() -> None:
    async with scripted(2) as setting:
        editor = await all_stopped(setting)
        setting.debuggees[0].refuses.add("next")
        setting.debuggees[0].refusal = "not now"
        answer = await act(editor, "all", "next", within=1)
        rows = {row["workerId"]: row for row in answer["members"]}
        assert (rows["w1"]["state"], rows["w1"]["why"]) == ("failed", "not now")
        assert rows["w2"]["state"] == "late"
        has_stepped(setting, 2)
        await editor.event("stopped", reason="step")
        assert {row["state"] for row in (await act(editor, "all", "members"))["members"]} == {"stopped"}
        # It can be stepped once it does not refuse.
        setting.debuggees[0].refuses.clear()
        stepping = asyncio.ensure_future(act(editor, "node:127.0.0.1", "next"))
        await until(lambda: [len(each.received("next")) for each in setting.debuggees] == [2, 2])
        for number in (1, 2):
            has_stepped(setting, number)
        assert {row["state"] for row in (await stepping)["members"]} == {"stopped"}


async def test_what_a_debuggee_says_of_itself_is_not_trusted() -> None:
    async with scripted(4) as setting:
        editor = await all_stopped(setting)
        strange = {"actor": "A\x1b[31m", "actor_id": "", "actor_name": "", "node_id": "", "rank": 2**40}
        for debuggee, process in zip(
            setting.debuggees, (json.dumps(strange), "[]", '{"rank": 1}', "x" * 20_000), strict=True
        ):
            debuggee.process = process
        answer = await act(editor, "ray.actor == 'A' or ray.rank is not None", "members")
        assert [(row["workerId"], row["state"]) for row in answer["members"]] == [
            (f"w{number}", "unknown") for number in (2, 3, 4)
        ]
        (row,) = (await act(editor, "ray.actor.startswith('A')", "members"))["members"][:1]
        assert (row["workerId"], row["rank"]) == ("w1", None)


async def test_one_that_does_not_answer_is_a_member_by_what_it_said_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with scripted(2) as setting:
        editor = await all_stopped(setting)
        assert states(await act(editor, "ranks", "members")) == [(0, "stopped"), (1, "stopped")]
        monkeypatch.setattr(group_members, "SOON", 0.2)
        setting.debuggees[1].deaf_to.add("evaluate")
        assert states(await act(editor, "ranks", "members")) == [(0, "stopped"), (1, "stopped")]
        setting.debuggees[1].answers("evaluate")


async def test_a_group_is_shown_and_moved_in_the_debug_console() -> None:
    async with scripted(4) as setting:
        editor = await all_stopped(setting)
        with pytest.raises(RequestFailed, match="a GROUP is all, failed, ranks, actor:"):
            await type_in(editor, "@")
        shown = await type_in(editor, "@ray.rank % 2 == 1")
        assert shown.splitlines()[:2] == ["@ray.rank % 2 == 1: 2 members", f"2 stopped at work  {FILE}:2"]
        # It is the same on the row of a task: no line of Python begins so.
        stop = await setting.stopped(editor, 1)
        frame = (await editor.frames(stop))[0]["id"]
        stepping = asyncio.ensure_future(type_in(editor, "@ray.rank % 2 == 1 next within 60", frameId=frame))
        await until(lambda: all(debuggee.received("next") for debuggee in setting.debuggees[1::2]))
        for number in (2, 4):
            has_stepped(setting, number)
        assert (await stepping).splitlines()[1] == f"2 stopped at work  {FILE}:2"
        assert not any(debuggee.received("next") for debuggee in setting.debuggees[::2])
        assert (await type_in(editor, "@ray.rank % 2 == 1 continue")).splitlines()[1] == "2 running"
        for debuggee in setting.debuggees[1::2]:
            assert debuggee.received("continue") == [{"threadId": 1, "singleThread": True}]


@pytest.mark.parametrize(
    ("request_", "arguments", "why"),
    [
        ("group", {"action": "next"}, "`group` is missing"),
        ("group", {"group": "all"}, "`action` is missing"),
        ("group", {"group": "all", "action": "kill"}, "`action` has to be one of"),
        (
            "group",
            {"group": "all", "action": "next", "within": 0},
            "`within` has to be a number from 1 to 999",
        ),
        ("group", {"group": "all", "action": "next", "within": 1000}, "`within` has to be a number"),
        ("group", {"group": ["all"], "action": "next"}, "`group` has to be a text"),
        ("group", {"group": "", "action": "next"}, "there is no expression"),
        ("group", {"group": "x" * 5_000, "action": "next"}, "at most 4000 characters"),
        ("group", {"group": "ray.rank ==", "action": "next"}, "it is no Python expression"),
        ("group", {"group": "__import__('os')", "action": "next"}, "nothing that a group can be told by"),
        ("group", {"group": "ray.rank == 7", "action": "next"}, "nobody belongs to @ray.rank == 7 now"),
        ("evaluate", {"expression": "@all within 5 next", "context": "repl"}, "it is no Python expression"),
    ],
)
async def test_a_wrong_request_is_refused_and_moves_nobody(
    request_: str, arguments: Message, why: str
) -> None:
    async with scripted() as setting:
        editor = await all_stopped(setting)
        with pytest.raises(RequestFailed) as refused:
            await editor.client.request(request_, arguments)
        assert why in refused.value.message
        assert not setting.debuggees[0].received("next")


async def test_who_watches_moves_no_group() -> None:
    async with scripted() as setting:
        await all_stopped(setting)
        watcher = await setting.attach(takeOver="watch")
        for work in (act(watcher, "all", "next"), type_in(watcher, "@all next")):
            with pytest.raises(RequestFailed, match="this editor only watches"):
                await work
        assert not setting.debuggees[0].received("next")


async def test_tasks_of_another_debugger_are_no_members() -> None:
    async with scripted(2) as setting:
        editor = await all_stopped(setting)
        other = await setting.attach(job="02000000")
        with pytest.raises(RequestFailed, match="nobody belongs to @all now"):
            await act(other, "all", "continue")
        assert len((await act(editor, "all", "members"))["members"]) == 2


async def test_hundreds_of_members_step_together() -> None:
    async with scripted(300) as setting:
        editor = await setting.attach()
        await asyncio.gather(*(debuggee.attached.wait() for debuggee in setting.debuggees))
        for debuggee in setting.debuggees:
            debuggee.stop()
        for _ in setting.debuggees:
            await editor.event("stopped")
        stepping = asyncio.ensure_future(act(editor, "ranks", "next", within=50))
        for number, debuggee in enumerate(setting.debuggees, 1):
            await until(lambda debuggee=debuggee: bool(debuggee.received("next")))  # type: ignore[misc]
            has_stepped(setting, number)
        answer = await stepping
        assert Counter(row["state"] for row in answer["members"]) == {"stopped": len(setting.debuggees)}
