"""Tests the debugger, through a real relay, against real debugpy in real processes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rayside.client import scripted, stops
from rayside.client.commands import Place
from rayside.client.events import Lost, Notice, Stop
from rayside.client.session import Session
from rayside.errors import RequestFailed
from tests.integration.real_debuggee import TASK, RealJob, attachment, relay_over
from tests.patience import PATIENCE

pytestmark = pytest.mark.gate

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


async def attached(job: RealJob, port: int, **options: Any) -> Session:
    session = Session(attachment(port, **options), job)
    await session.start()
    return session


async def stop_of(session: Session) -> Stop:
    """Returns the next stop, and passes over what else happens before."""
    while not isinstance(happening := await session.events.get(), Stop):
        assert not isinstance(happening, Lost), happening
    return happening


async def test_a_stop_is_in_the_users_frame_and_can_be_read(start: Start) -> None:
    job = start(TASK)

    async with relay_over(job) as port:
        session = await attached(job, port)
        stop, client = await stop_of(session), session.client
        frame = (await stops.frames(client, stop))[0]
        assert (frame.function, Path(frame.path).name) == ("my_task", "task0.py")
        assert frame.line in {3, 4}  # the call, or what follows it: debugpy's choice
        assert await stops.variables(client, frame) == {"numbers": "[0, 1, 2, 3]", "x": "4"}
        assert await stops.evaluate(client, frame, "sum(numbers)") == "6"
        with pytest.raises(RequestFailed) as raised:
            await stops.evaluate(client, frame, "y")
        assert raised.value.message == "NameError: name 'y' is not defined"
        assert await stops.execute(client, frame, "numbers.append(10)") in {"", "None"}
        with pytest.raises(RequestFailed) as raised:
            await stops.execute(client, frame, "z = 1 / 0")
        assert raised.value.message == "ZeroDivisionError: division by zero"
        assert await stops.source(client, frame) == TASK
        assert stop.title == f"task-1 · {job.processes[0].process.pid}@127.0.0.1"
        await session.resume("continue", stop)
        await asyncio.to_thread(job.all_ended)
        await session.close()
    assert job.processes[0].lines == ["result 16"]


async def test_several_tasks_are_recorded_and_the_job_succeeds(start: Start) -> None:
    job = start(TASK, TASK, TWICE)

    async with relay_over(job) as port:
        document = await scripted.run(
            attachment(port, job="raysubmit_1"),
            job,
            evaluate=["x", "nope"],
            timeout=PATIENCE,
            on_event=lambda text: None,
        )
    evaluated = sorted((stop["task"], stop["evaluated"]["x"]) for stop in document["stopped"])
    assert evaluated == [("task-1", "4"), ("task-2", "4"), ("task-3", "1"), ("task-3", "2")]
    assert {stop["evaluated"]["nope"] for stop in document["stopped"]} == {
        "<NameError: name 'nope' is not defined>"
    }
    assert {stop["function"] for stop in document["stopped"]} == {"my_task"}
    assert document["job"] == {"submission_id": "raysubmit_1", "status": "SUCCEEDED"}
    assert [debuggee.lines for debuggee in job.processes] == [["result 6"], ["result 6"], ["1", "2"]]


async def test_a_breakpoint_of_a_condition_stops_where_it_holds_and_a_moved_one_says_so(start: Start) -> None:
    job = start("breakpoint()\nfor i in range(5):\n    j = i\n\n# nothing\nprint('end')\n")
    file = str(job.processes[0].script)
    places = [Place(file, 3, "i == 3 or {1:2}.get(i) == 9"), Place(file, 5, None)]

    async with relay_over(job) as port:
        session = await attached(job, port, breakpoints=places)
        evaluated: list[tuple[int, str]] = []
        texts: list[str] = []
        while len(evaluated) < 3:
            happening = await session.events.get()
            if isinstance(happening, Notice):
                texts.append(happening.text)
            if not isinstance(happening, Stop):
                continue
            frame = (await stops.frames(session.client, happening))[0]
            i = await stops.evaluate(session.client, frame, "globals().get('i')")
            evaluated.append((frame.line, i))
            await session.resume("continue", happening)
        await asyncio.to_thread(job.all_ended)
        await session.close()
        assert evaluated[0][0] in {1, 2}
        assert evaluated[1:] == [(3, "3"), (6, "4")]
        [moved] = [text for text in texts if text.startswith(f"breakpoint at {file}:6")]
        assert texts.count(moved) == 1
    assert job.processes[0].lines == ["end"]


async def test_what_is_left_stopped_is_found_again_with_nothing_run_in_between(start: Start) -> None:
    job = start("runs = []\n" + TASK.replace("breakpoint()", "runs.append(1)\n    breakpoint()"), TASK)

    async with relay_over(job) as port:
        for _ in range(3):
            session = await attached(job, port)
            both = {stop.worker_id: stop for stop in [await stop_of(session) for _ in range(2)]}
            frame = (await stops.frames(session.client, both["w1"]))[0]
            assert await stops.evaluate(session.client, frame, "(x, numbers, runs)") == (
                "(4, [0, 1, 2, 3], [1])"
            )
            await session.close(keep_stopped=True)
        session = await attached(job, port)
        await stop_of(session)
        await session.close()
        await asyncio.to_thread(job.all_ended)
    assert [debuggee.lines for debuggee in job.processes] == [["result 6"], ["result 6"]]
