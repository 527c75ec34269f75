"""Tests how the relay follows steps into `.remote()`: whom it asks and tells, and which frames it shows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest

from rayside.dap.framing import Message
from rayside.relay import messages, remote_calls
from rayside.relay.connection import Connection
from rayside.relay.debuggee import Debuggee
from rayside.relay.fan_out import BackgroundTasks
from rayside.relay.installed import Installed
from rayside.relay.remote_calls import MOST_EXPECTED, RemoteCalls
from rayside.relay.remote_calls import MOST_FRAMES as MOST_SHOWN
from rayside.relay.source_files import Files
from rayside.relay.translation import Ids
from rayside.relay.worker import Worker, Workers
from rayside.worker.evaluated.stepped_calls import EVENT, MOST_FRAMES, begin, expect
from rayside.worker.evaluated.telling import answered as told
from tests.played import played

TASK = "ab" * 24


class Recorded:
    """A connection that keeps what it is asked; it has Ray or not."""

    patience = 1.0

    def __init__(self) -> None:
        self.has_ray = True
        self.asked = 0
        self.expected: list[dict[int, tuple[str, str]]] = []
        self.answers: list[tuple[int, bool]] = []

    async def ask(self, timeout: float, function: Callable[..., object]) -> object:
        assert function is begin
        self.asked += 1
        return self.has_ray

    async def tell(self, timeout: float, function: Callable[..., object], *arguments: Any) -> None:
        await asyncio.sleep(0)
        if function is expect:
            self.expected.append({**arguments[0]})
        else:
            assert function is told
            self.answers.append(arguments)


class Setting:
    """Holds a session's debuggees, the first of which is a driver."""

    def __init__(self, count: int = 3) -> None:
        self.workers, self.ids = Workers(), Ids()
        self.defects: list[str] = []
        self.said: list[str] = []
        self.calls = RemoteCalls(
            self.workers, ids=self.ids, work=BackgroundTasks(self.defects.append), say=self.said.append
        )
        self.driver, *self.others = [self.comes(number) for number in range(count)]

    def comes(self, number: int) -> Worker:
        nobody: Any = None
        name, task = f"w{number}", "" if number else "driver"
        described = Debuggee(name, "h", 1, number, "h", driver=not number, task=task)
        worker = Worker(described, Files(), nobody)
        worker.connection = cast(Connection, Recorded())
        worker.installed = Installed(worker.connection, Files(), key=worker, node_ip="h")
        worker.takes_requests()
        self.workers[worker.debuggee.worker_id] = worker
        return worker

    async def tells(self, worker: Worker, what: str, key: int = 1, **more: Any) -> None:
        event = messages.event({"event": EVENT, "body": {"what": what, "key": key, "threadId": 5, **more}})
        assert event is not None
        self.calls.take(worker, event["body"])
        for _ in range(20):
            await asyncio.sleep(0)

    async def step(self, worker: Worker, key: int = 1, **more: Any) -> None:
        """Has a thread step in, and call."""
        await self.calls.step_in(worker, 5)
        frames = [{"name": "main", "source": {"path": "/a.py"}, "line": 3}]
        told = {"number": 70 + key, "function": "work", "frames": frames, **more}
        await self.tells(worker, "call", key, **told)


def of(worker: Worker) -> Recorded:
    return cast(Recorded, worker.connection)


def play(story: Callable[[Setting], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        setting = Setting()
        await story(setting)
        assert setting.defects == []

    asyncio.run(whole())


@played(play)
async def test_a_step_asks_once_with_ray_and_each_time_without(setting: Setting) -> None:
    for _ in range(3):
        await setting.calls.step_in(setting.driver, 5)
        await setting.calls.step_in(setting.others[0], 5)
        of(setting.others[0]).has_ray = False
    assert of(setting.driver).asked == of(setting.others[0]).asked == 1
    of(setting.others[1]).has_ray = False
    for _ in range(3):
        await setting.calls.step_in(setting.others[1], 5)
    assert of(setting.others[1]).asked == 3
    assert [of(worker).expected for worker in setting.workers.values()] == [[], [], []]


@played(play)
async def test_who_may_run_the_task_knows_before_the_call_is_made_and_then_its_id(setting: Setting) -> None:
    await setting.step(setting.driver)
    assert of(setting.driver).answers == [(71, True)]
    assert [of(worker).expected for worker in setting.others] == [[{1: ("work", "")}]] * 2
    assert of(setting.driver).expected == []  # it runs no tasks
    await setting.tells(setting.driver, "called", taskId=TASK)
    late = setting.comes(9)
    await setting.calls.put_into(late)
    assert [of(w).expected[-1] for w in [*setting.others, late]] == [{1: ("work", TASK)}] * 3
    await setting.tells(late, "entered")
    assert [of(w).expected[-1] for w in [*setting.others, late]] == [{}] * 3


@played(play)
async def test_what_nobody_steps_into_is_not_followed(setting: Setting) -> None:
    await setting.tells(setting.others[0], "call", number=3, function="work")
    assert of(setting.others[0]).answers == [(3, False)]
    await setting.step(setting.others[0])
    await setting.tells(setting.others[0], "call", 2, number=4, function="work")  # of the same step
    await setting.tells(setting.others[0], "call", 3, number=5, function="work", threadId=6)
    assert of(setting.others[0]).answers == [(3, False), (71, True), (4, False), (5, False)]
    assert of(setting.others[1]).expected == [{1: ("work", "")}]
    # What another debuggee says of that call, and an id that is none, count for nothing.
    await setting.tells(setting.others[1], "called", taskId=TASK)
    assert of(setting.others[1]).expected == [{1: ("work", "")}]
    await setting.tells(setting.others[0], "called", taskId="a task")
    assert of(setting.others[1]).expected[-1] == {}


@played(play)
async def test_the_newest_are_waited_for_until_the_editor_goes(setting: Setting) -> None:
    for number in range(MOST_EXPECTED + 2):
        await setting.step(setting.driver, number)
        await setting.tells(setting.driver, "called", number, taskId=f"{number:048x}")
    expected = of(setting.others[0]).expected[-1]
    assert list(expected) == [*range(3, MOST_EXPECTED + 3)]
    setting.calls.begin()
    for _ in range(20):
        await asyncio.sleep(0)
    assert of(setting.others[0]).expected[-1] == {}


@played(play)
async def test_the_callers_stop_waits_for_a_task(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_calls, "FIRST", 0.2)
    worker, loop = setting.others[1], asyncio.get_running_loop()

    async def seconds(key: int) -> float:
        """Returns how long the caller is held back, where its task stops after 20 ms, or never."""
        await setting.step(setting.driver, key)
        await setting.tells(setting.driver, "called", key, taskId=f"{key:048x}")
        stop = worker.stopped(8, {})
        stop.task_id = f"{key:048x}"
        if key == 1:
            await setting.tells(worker, "entered", 1)
            loop.call_later(0.02, setting.calls.arrive, stop)
        began = loop.time()
        await setting.calls.look_at_stop(setting.driver, 5)
        took = loop.time() - began
        assert (setting.calls.arrive(stop) is None) is (key == 1)
        return took

    assert 0.015 < await seconds(1) < 0.15
    assert setting.said == []
    assert await seconds(2) >= 0.2
    assert setting.said == ["work has not begun yet; it stops at its first line then, if it can be debugged."]
    await setting.calls.step_in(setting.driver, 5)  # it calls nothing
    began = loop.time()
    await setting.calls.look_at_stop(setting.driver, 5)
    assert loop.time() - began < 0.15


async def answered(setting: Setting, **arguments: int) -> Message:
    """Returns the answer to `stackTrace` of a task with two frames of its own, from `startFrame` on."""
    worker = setting.others[1]
    worker.stopped(8, {}).task_id = TASK
    start, levels = arguments.get("startFrame", 0), arguments.get("levels", 0)
    own = [{"id": number, "name": f"own {number}"} for number in (1, 2)]
    body = {"stackFrames": own[start : start + levels] if levels else own, "totalFrames": 2}
    return setting.calls.with_callers(worker, 8, arguments, body, lambda _, document: document)


@pytest.mark.parametrize(
    ("start", "levels", "names"),
    [
        (0, 0, ["own 1", "own 2", "called by: driver · 0@h", "main"]),
        (0, 2, ["own 1", "own 2"]),
        (1, 2, ["own 2", "called by: driver · 0@h"]),
        (3, 20, ["main"]),
        (4, 20, []),
    ],
)
@played(play)
async def test_callers_are_below_tasks(setting: Setting, start: int, levels: int, names: list[str]) -> None:
    await setting.step(setting.driver)
    await setting.tells(setting.driver, "called", taskId=TASK)
    whole = (await answered(setting))["stackFrames"]
    page = await answered(setting, startFrame=start, levels=levels)
    assert [frame["name"] for frame in page["stackFrames"]] == names
    assert page["totalFrames"] == 4
    # Their numbers are the same on each page, and end with the stop.
    assert [frame["id"] for frame in page["stackFrames"] if frame["name"] == "main"] in ([], [whole[3]["id"]])
    assert [setting.calls.is_callers(frame["id"]) for frame in whole[2:]] == [True, True]
    setting.ids.forget_stop(setting.others[1], 8)
    assert not setting.calls.is_callers(whole[3]["id"])


@played(play)
async def test_callers_of_callers_are_below_them_and_all_are_bounded(setting: Setting) -> None:
    frame = {"name": "deep", "source": {"path": "/a.py"}, "line": 1}
    above = ""
    for number in range(9):
        caller = setting.others[0] if number else setting.driver
        many = {"frames": [frame] * (MOST_FRAMES + 20), "taskId": above, "task": f"task{number}"}
        await setting.step(caller, number, **many)
        above = f"{number:048x}"
        await setting.tells(caller, "called", number, taskId=above)
    worker = setting.others[1]
    worker.stopped(8, {}).task_id = above
    answer = setting.calls.with_callers(worker, 8, {}, {"stackFrames": []}, lambda _, document: document)
    assert len(answer["stackFrames"]) == MOST_SHOWN
    labels = [frame["name"] for frame in answer["stackFrames"] if frame.get("presentationHint") == "label"]
    assert labels == [f"called by: task{number} · 1@h" for number in (8, 7, 6, 5)]
