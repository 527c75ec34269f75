"""The debugger against real debugpy in real processes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from bootstrap.debug import scripted, stops
from bootstrap.debug.client import Client
from bootstrap.debug.pausing import return_to_breakpoint
from bootstrap.debug.session import Attached, Ended, Session
from bootstrap.errors import AttachFailed, DebuggerGone, RequestFailed
from tests.integration.real_debuggee import PATIENCE, TASK, RealJob

TWICE = """\
def my_task(x):
    breakpoint()
    return x

print(my_task(1))
print(my_task(2))
"""

Start = Callable[..., RealJob]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    jobs: list[RealJob] = []

    def start(*scripts: str) -> RealJob:
        folder = tmp_path / "a folder"
        folder.mkdir()
        paths = [folder / f"task{number}.py" for number in range(len(scripts))]
        for path, text in zip(paths, scripts, strict=True):
            path.write_text(text)
        jobs.append(RealJob(paths))
        return jobs[-1]

    yield start
    for job in jobs:
        job.close()


def play(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, 2 * PATIENCE))


async def attached(job: RealJob, number: int = 0) -> Attached:
    one = Attached(job.paused()[number], lambda happening: None)
    await one.attach(Client.connect)
    return one


def test_a_stop_is_in_the_users_frame_and_can_be_read(start: Start) -> None:
    job = start(TASK)
    job.all_paused()

    async def story() -> None:
        one = await attached(job)
        stop = await one.stopped(PATIENCE)
        frame = (await stops.frames(stop))[0]
        assert (frame.function, Path(frame.path).name) == ("my_task", "task0.py")
        assert frame.line in {3, 4}  # the call, or what follows it: debugpy's choice
        assert stop.by_call
        assert await stops.variables(one.client, frame) == {"numbers": "[0, 1, 2, 3]", "x": "4"}
        assert await stops.evaluate(one.client, frame, "sum(numbers)") == "6"
        with pytest.raises(RequestFailed) as raised:
            await stops.evaluate(one.client, frame, "y")
        assert raised.value.message == "NameError: name 'y' is not defined"
        assert await stops.execute(one.client, frame, "numbers.append(10)") in {"", "None"}
        with pytest.raises(RequestFailed) as raised:
            await stops.execute(one.client, frame, "z = 1 / 0")
        assert raised.value.message == "ZeroDivisionError: division by zero"
        assert await stops.source(one.client, frame) == TASK
        assert await stops.task_name(stop, frame) == "task-1"
        await one.move("continue", stop.thread_id)
        await asyncio.wait_for(one.client.closed.wait(), PATIENCE)

    play(story())
    job.all_ended()
    assert job.debuggees[0].lines == ["result 16"]


def test_several_tasks_are_recorded_and_the_job_succeeds(start: Start) -> None:
    job = start(TASK, TASK, TWICE)
    document = scripted.run_sync(job, evaluate=["x", "nope"], timeout=PATIENCE, on_event=lambda text: None)
    seen = sorted((stop["task"], stop["evaluated"]["x"]) for stop in document["stopped"])
    assert seen == [("task-1", "4"), ("task-2", "4"), ("task-3", "1"), ("task-3", "2")]
    assert {stop["evaluated"]["nope"] for stop in document["stopped"]} == {
        "<NameError: name 'nope' is not defined>"
    }
    assert {stop["function"] for stop in document["stopped"]} == {"my_task"}
    assert document["job"] == {"submission_id": "raysubmit_1", "status": "SUCCEEDED"}
    assert [debuggee.lines for debuggee in job.debuggees] == [["result 6"], ["result 6"], ["1", "2"]]


def test_a_process_killed_while_stopped_is_told_and_the_other_goes_on(start: Start) -> None:
    job = start(TASK, TASK)
    job.all_paused()

    async def story() -> None:
        session = Session(job)
        victim, other = [await session.attach(debuggee) for debuggee in job.paused()]
        await victim.stopped(PATIENCE)
        stop = await other.stopped(PATIENCE)
        job.debuggees[0].process.kill()
        while not isinstance(happening := await session.happenings.get(), Ended):
            pass
        assert (happening.attached, happening.was_stopped) == (victim, True)
        with pytest.raises(DebuggerGone):
            await victim.client.request("threads")
        assert list(session.attached.values()) == [other]
        await other.move("continue", stop.thread_id)
        await asyncio.wait_for(other.client.closed.wait(), PATIENCE)
        await session.close()

    play(story())
    job.all_ended()
    assert [debuggee.process.returncode for debuggee in job.debuggees] == [-9, 0]


def test_a_conditional_breakpoint_stops_where_the_condition_holds(start: Start) -> None:
    job = start("breakpoint()\nfor i in range(5):\n    j = i\nprint('end')\n")
    job.all_paused()

    async def story() -> None:
        one = await attached(job)
        stop = await one.stopped(PATIENCE)
        path = (await stops.frames(stop))[0].path
        answer = await one.client.set_breakpoints(path, [{"line": 3, "condition": "i == 3"}])
        assert [point["verified"] for point in answer["breakpoints"]] == [True]
        await one.move("continue", stop.thread_id)
        stop = await one.stopped(PATIENCE)
        frame = (await stops.frames(stop))[0]
        assert not stop.by_call
        assert (frame.line, await stops.evaluate(one.client, frame, "(i, j)")) == (3, "(3, 2)")
        await one.leave()

    play(story())
    job.all_ended()
    assert job.debuggees[0].lines == ["end"]


def test_leaving_with_an_evaluation_in_flight_does_not_spoil_the_debuggee(start: Start) -> None:
    job = start(TWICE)
    job.all_paused()

    async def story() -> None:
        one = await attached(job)
        stop = await one.stopped(PATIENCE)
        frame = (await stops.frames(stop))[0]
        slow = asyncio.ensure_future(
            stops.evaluate(one.client, frame, "__import__('threading').Event().wait(0.3)")
        )
        await asyncio.sleep(0)  # the request is sent
        await one.leave()
        assert await slow == "False"
        await asyncio.to_thread(job.all_paused)
        again = await attached(job)
        await again.stopped(PATIENCE)
        await again.leave()

    play(story())
    job.all_ended()
    assert job.debuggees[0].lines == ["1", "2"]


def test_a_second_debugger_is_refused_and_the_first_is_unharmed(start: Start) -> None:
    job = start(TASK)
    job.all_paused()

    async def story() -> None:
        debuggee = job.paused()[0]
        one = await attached(job)
        stop = await one.stopped(PATIENCE)
        second = Attached(debuggee, lambda happening: None)
        with pytest.raises(AttachFailed):
            await second.attach(Client.connect)
        assert await stops.frames(stop)
        await one.leave()

    play(story())
    job.all_ended()


def test_a_task_that_is_left_paused_stops_again_with_nothing_run_in_between(start: Start) -> None:
    job = start("runs = []\n" + TASK.replace("breakpoint()", "runs.append(1)\n    breakpoint()"))
    job.all_paused()

    async def story() -> None:
        # The first stop in a process and the later ones differ in where Python can jump from.
        for _ in range(5):
            one = await attached(job)
            stop = await one.stopped(PATIENCE)
            frame = (await stops.frames(stop))[0]
            assert await stops.evaluate(one.client, frame, "(x, numbers, runs)") == "(4, [0, 1, 2, 3], [1])"
            assert await return_to_breakpoint(stop)
            await one.leave()
            await asyncio.to_thread(job.all_paused)
        one = await attached(job)
        await one.stopped(PATIENCE)
        await one.leave()

    play(story())
    job.all_ended()
    assert job.debuggees[0].lines == ["result 6"]


def test_whether_a_task_still_runs_is_known_from_outside(start: Start) -> None:
    job = start(
        "import builtins, threading\nbuiltins.go = threading.Event()\nbuiltins.end = threading.Event()\n"
        "def my_task():\n    breakpoint()\n    go.wait()\n"
        "my_task()\nprint('returned', flush=True)\nend.wait()\n"
    )
    job.all_paused()

    async def story() -> None:
        one = await attached(job)
        stop = await one.stopped(PATIENCE)
        frame = (await stops.frames(stop))[0]
        await one.move("continue", stop.thread_id)
        assert await stops.is_running(one.client, frame)
        await one.client.request("evaluate", {"expression": "go.set()", "context": "repl"})
        await asyncio.to_thread(job.until, lambda: job.debuggees[0].lines == ["returned"])
        assert not await stops.is_running(one.client, frame)
        await one.client.request("evaluate", {"expression": "end.set()", "context": "repl"})
        await one.leave()

    play(story())
    job.all_ended()


def test_nobody_there_is_an_error_at_once() -> None:
    async def story() -> None:
        with pytest.raises(DebuggerGone, match=r"no debugger answers at 127\.0\.0\.1:1"):
            await Client.connect("127.0.0.1", 1)

    play(story())
