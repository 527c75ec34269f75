"""Tests breakpoints at which real debuggees wait for each other, and those that only one of them stops at."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rayside.relay import reports as relay_reports
from rayside.relay.connection import call
from rayside.relay.reports import MOST_GATHERED, MOST_HITS
from rayside.worker.evaluated import telling
from rayside.worker.evaluated.reached import EVENT, NAME
from tests.integration import relay_debuggees
from tests.integration.rayside.test_relay_scripted import Scripted, Setting, scripted, until
from tests.integration.relay_debuggees import Process, Session, relay_over
from tests.integration.scripted_debuggees import FILE

pytestmark = pytest.mark.usefixtures("answers_in_full")

# It comes to line 4 once for each line that it reads.
STEPS = """\
import os, sys, time
print(os.getpid(), flush=True)
def step(x):
    return x
step(0)
print("done", flush=True)
"""
# It lives until there is that file, and never comes to a breakpoint.
LATE = """\
import os, time
while not os.path.exists({file!r}):
    time.sleep(0.05)
print("done", flush=True)
"""
# Seconds for those who waited to go on: less than `gather` lets them wait, and time for a slow machine.
GOING_ON = 30.0
# The first is interrupted at line 4, as `ray.cancel` does it.
CANCELLED = """\
import os, signal, time
def step():
    print("came", flush=True)
    return 1
signal.signal(signal.SIGALRM, signal.default_int_handler)
if os.environ["TASK"] == "task-1":
    signal.setitimer(signal.ITIMER_REAL, 2)
    try:
        step()
    except KeyboardInterrupt:
        print("cancelled", flush=True)
    time.sleep(30)
step()
print("done", flush=True)
"""


async def all_end(processes: list[Process]) -> None:
    assert [(await process.end())[-1] for process in processes] == ["done"] * len(processes)


async def waiting(setting: relay_debuggees.Setting, number: int) -> None:
    """Waits until so many threads wait for each other at the breakpoint."""
    (session,) = setting.relay.sessions
    desired = session._configuration.desired
    await until(lambda: sum(len(each.rendezvous._waiting) for each in desired.breakpoints) == number)


def gather(count: int, within: int | None = None) -> dict[str, Any]:
    more = f" within {within} s" if within else ""
    return {"line": 4, "hitCondition": f"gather {count}{more}"}


async def test_threads_wait_until_all_have_come_and_stop_together(tmp_path: Path) -> None:
    async with relay_over(tmp_path) as setting:
        first = await setting.cluster.start(STEPS, count=2)
        editor = await setting.attach({"job.py": [gather(3)]})
        # They wait longer than a thread waits for an answer in time.
        await editor.nothing("stopped", 6.0)
        assert not [line for process in first for line in process.lines if line == "done"]
        last = await setting.cluster.start(STEPS)
        told = await editor.event("output", category="console")
        place = f"{setting.cluster.here / 'job.py'}:4"
        assert told["output"] == f"3 tasks have come to {place}: they stop now.\n"
        stops = await editor.stops(3, reason="breakpoint")
        assert len({stop["ray"]["workerId"] for stop in stops}) == 3
        for stop in stops:
            await editor.resume(stop)
        await all_end([*first, *last])


async def test_those_that_have_come_in_time_stop_and_the_others_are_named(tmp_path: Path) -> None:
    async with relay_over(tmp_path) as setting:
        processes = await setting.cluster.start(STEPS, count=2)
        told_to_end = tmp_path / "end"
        late = await setting.cluster.start(LATE.format(file=str(told_to_end)), name="late.py")
        late[0].debuggee = replace(late[0].debuggee, task="late")
        editor = await setting.attach({"job.py": [gather(3, within=5)]})
        told = await editor.event("output", category="console")
        title = f"late · {late[0].process.pid}@127.0.0.1"
        place = f"{setting.cluster.here / 'job.py'}:4"
        assert told["output"] == (
            f"2 of 3 tasks have come to {place} within 5 s: they stop now; not there: {title}.\n"
        )
        for stop in await editor.stops(2, reason="breakpoint"):
            await editor.resume(stop)
        told_to_end.touch()
        await all_end([*processes, *late])


async def test_whoever_waits_goes_on_once_the_breakpoint_is_removed_or_set_anew(tmp_path: Path) -> None:
    async with relay_over(tmp_path) as setting:
        processes = await setting.cluster.start(STEPS, count=2)
        editor = await setting.attach({"job.py": [gather(3)]})
        path = str(setting.cluster.here / "job.py")
        await waiting(setting, 2)
        # What stays as it is, as where another line is added, has them wait on.
        await editor.client.set_breakpoints(path, [gather(3), {"line": 2}])
        await editor.nothing("stopped", 1.0)
        assert "done" not in processes[0].lines
        began = time.monotonic()
        await editor.client.set_breakpoints(path, [])
        await all_end(processes)
        assert time.monotonic() - began < GOING_ON


@pytest.mark.parametrize("way", ["detached", "killed", "taken over"])
async def test_whoever_waits_goes_on_once_the_editor_goes(tmp_path: Path, way: str) -> None:
    async with relay_over(tmp_path) as setting:
        processes = await setting.cluster.start(STEPS, count=2)
        editor = await setting.attach({"job.py": [gather(3)]})
        await waiting(setting, 2)
        began = time.monotonic()
        if way == "detached":
            await editor.client.disconnect()
        elif way == "killed":
            editor.abort()
        else:
            await setting.attach()
        await all_end(processes)
        assert time.monotonic() - began < GOING_ON


@pytest.mark.parametrize("in_process", [False, True])
async def test_whoever_waits_goes_on_once_the_relay_is_gone(tmp_path: Path, in_process: bool) -> None:
    async with relay_over(tmp_path) as setting:
        processes = await setting.cluster.start(STEPS, count=2, in_process=in_process)
        await setting.attach({"job.py": [gather(3)]})
        await waiting(setting, 2)
        began = time.monotonic()
        for session in setting.relay.sessions:
            for worker in session.workers.values():
                worker.connection.client._transport.abort()
        await all_end(processes)
        assert time.monotonic() - began < GOING_ON


async def test_who_dies_while_waiting_is_not_counted(tmp_path: Path) -> None:
    async with relay_over(tmp_path) as setting:
        first, second = await setting.cluster.start(STEPS, count=2)
        editor = await setting.attach({"job.py": [gather(3)]})
        await waiting(setting, 2)
        await second.close()
        await editor.event("thread", reason="exited")
        third = await setting.cluster.start(STEPS)
        await editor.nothing("stopped", 2.0)
        fourth = await setting.cluster.start(STEPS)
        for stop in await editor.stops(3, reason="breakpoint"):
            await editor.resume(stop)
        await all_end([first, *third, *fourth])


async def test_who_is_cancelled_while_waiting_is_not_counted(tmp_path: Path) -> None:
    async with relay_over(tmp_path) as setting:
        spec = {"line": 4, "hitCondition": "gather 2 within 3"}
        (cancelled,) = await setting.cluster.start(CANCELLED)
        editor = await setting.attach({"job.py": [spec]})
        await cancelled.until_printed(2)
        (process,) = await setting.cluster.start(CANCELLED)
        place = f"{setting.cluster.here / 'job.py'}:4"
        told = f"1 of 2 tasks have come to {place} within 3 s: they stop now.\n"
        await editor.event("output", category="console", output=told)
        (stop,) = await editor.stops(1, reason="breakpoint")
        assert stop["ray"]["workerId"] == "w2"
        await editor.resume(stop)
        await all_end([process])


async def test_only_the_first_that_comes_stops_and_the_others_run_on(tmp_path: Path) -> None:
    async with relay_over(tmp_path) as setting:
        processes = await setting.cluster.start(STEPS, count=3)
        editor = await setting.attach({"job.py": [{"line": 4, "hitCondition": "first"}]})
        stop = await editor.event("stopped")
        stopped = stop["ray"]["pid"]
        await all_end([process for process in processes if process.process.pid != stopped])
        await editor.nothing("stopped", 0)
        await editor.resume(stop)
        await all_end(processes)


# --- debuggees that say what they like ---------------------------------------------------


def reports(debuggee: Scripted, what: str, *numbers: int) -> None:
    """Has a debuggee say that of the breakpoint that it was given last, with each of these numbers."""
    (spec,) = debuggee.received("setBreakpoints")[-1]["breakpoints"]
    key = int(spec["condition"].removeprefix(f"{NAME}(").removesuffix(")"))
    for number in numbers:
        debuggee.say({"event": EVENT, "body": {"key": key, "what": what, "number": number}})


async def with_a_gathering(setting: Setting, number: int = 2, **options: Any) -> tuple[Session, Scripted]:
    session = await setting.attach(**options)
    (debuggee,) = setting.debuggees
    await session.event("thread", reason="started")
    await session.event("thread", reason="started")
    await session.client.set_breakpoints(FILE, [{"line": 2, "hitCondition": f"gather {number}"}])
    return session, debuggee


async def test_a_debuggee_that_says_the_same_twice_has_come_once() -> None:
    async with scripted() as setting:
        session, debuggee = await with_a_gathering(setting)
        reports(debuggee, "hit", 1, 1)
        await session.nothing("output", category="console")
        assert debuggee.evaluated(call(telling.answered, 1, True, False)) == 0
        # The second is answered at once, so that nothing is kept of it.
        assert debuggee.evaluated(call(telling.answered, 1, False, False)) == 1
        reports(debuggee, "hit", 2)
        await session.event(
            "output", category="console", output=f"2 tasks have come to {FILE}:2: they stop now.\n"
        )
        await until(lambda: debuggee.evaluated(call(telling.answered, 2, True, False)) == 1)
        assert debuggee.evaluated(call(telling.answered, 1, True, False)) == 1


async def test_a_debuggee_that_says_it_without_end_does_not_fill_the_debug_console(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(relay_reports, "EACH_AT_ONCE", 100.0)

    async with scripted() as setting:
        session, debuggee = await with_a_gathering(setting)
        for number in range(0, 2000, 100):
            reports(debuggee, "hit", *range(number, number + 100))
            await debuggee.drain()
        lines = [""]
        # It is said once that has ended, or has lasted for a while.
        while "left out here, for they came too fast" not in lines[-1]:
            lines.append((await session.event("output"))["output"])
        await session.nothing("stopped")
        lines += [event["body"]["output"] for event in session.unmatched if event["event"] == "output"]
        assert 100 < len(lines) < 1000


async def test_those_who_wait_keep_nothing_else_of_their_debuggee_from_its_answer() -> None:
    async with scripted() as setting:
        _, debuggee = await with_a_gathering(setting, 9_999)
        reports(debuggee, "hit", *range(1, MOST_HITS + 1))
        await debuggee.drain()
        unknown = MOST_GATHERED + 2
        debuggee.say({"event": EVENT, "body": {"key": 0, "what": "hit", "number": unknown}})
        await until(lambda: debuggee.evaluated(call(telling.answered, unknown, False, True)) == 1)
        # Whoever comes when so many wait already runs on at once.
        reports(debuggee, "hit", *range(MOST_HITS + 1, MOST_GATHERED + 2))
        await until(lambda: debuggee.evaluated(call(telling.answered, MOST_GATHERED + 1, False, False)) == 1)
        assert debuggee.evaluated(call(telling.answered, MOST_GATHERED, False, False)) == 0


async def test_who_comes_when_the_editor_has_left_tasks_paused_waits_for_nobody() -> None:
    async with scripted() as setting:
        session, debuggee = await with_a_gathering(setting, keepPaused=True)
        debuggee.stop()
        await session.event("stopped")
        reports(debuggee, "hit", 1)
        await session.client.disconnect()
        await until(lambda: debuggee.evaluated(call(telling.answered, 1, False, False)) == 1)
        reports(debuggee, "hit", 2)
        await until(lambda: debuggee.evaluated(call(telling.answered, 2, False, False)) == 1)
        assert not debuggee.left
