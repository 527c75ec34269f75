"""Tests which stop an editor is to look at, and that a crowd is not searched for each stop."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from rayside.dap.framing import Message
from rayside.relay.debuggee import Debuggee
from rayside.relay.fan_out import BackgroundTasks
from rayside.relay.remote_calls import RemoteCall, RemoteCalls
from rayside.relay.source_files import Files
from rayside.relay.threads import Threads
from rayside.relay.translation import Ids
from rayside.relay.worker import Worker, Workers
from tests.unit.rayside.test_results import CROWD, RecordedEditor


class Counted(Workers):
    """Counts the questions after one debuggee, and how often all were listed."""

    def __init__(self) -> None:
        super().__init__()
        self.questions = self.listed = 0

    def has(self, worker: Worker) -> bool:
        self.questions += 1
        return super().has(worker)

    @property
    def attached(self) -> list[Worker]:
        self.listed += 1
        return super().attached


def is_reported(worker: Worker) -> bool:
    return any(stop.reported for stop in worker.stops.values())


class Setting:
    """Holds debuggees that are attached to."""

    def __init__(self, count: int) -> None:
        self.workers, self.editor = Counted(), RecordedEditor()
        ids, work = Ids(), BackgroundTasks(lambda _: None)
        self.calls = calls = RemoteCalls(self.workers, ids=ids, work=work, say=pytest.fail)
        self.threads = Threads(self.workers, ids=ids, editor=self.editor, calls=calls, work=work)
        self.all = [self.comes(number) for number in range(count)]

    def comes(self, number: int) -> Worker:
        nobody: Any = None
        worker = Worker(Debuggee(f"w{number}", "h", 1, number, "h"), Files(), nobody)
        worker.takes_requests()
        self.workers[worker.debuggee.worker_id] = worker
        return worker

    def stop(self, worker: Worker) -> bool:
        """Returns whether the editor is to keep looking at what it looks at."""
        worker.stopped(1, {"reason": "breakpoint"})
        self.threads.tell_stop(worker, 1)
        return bool(self.last["preserveFocusHint"])

    @property
    def last(self) -> Message:
        """The body of the last `stopped` event."""
        return [body for name, body in self.editor.told if name == "stopped"][-1]


def test_the_task_that_a_step_goes_into_is_looked_at_and_who_called_it_is_not() -> None:
    setting = play(3)
    caller, task, other = setting.all
    call = RemoteCall(1, caller, 1, 1, "work", [], task="ab")
    setting.calls._known["ab"] = call
    setting.stop(other)
    setting.threads.resumed = caller
    task.stopped(1, {"reason": "step"}).task_id = "ab"
    setting.threads.tell_stop(task, 1)
    assert (setting.last["preserveFocusHint"], setting.threads.focus) == (False, task)
    assert setting.last["ray"]["calledBy"]
    assert setting.stop(caller)
    # Later stops of the task are as any others.
    task.stopped(1, {"reason": "step"}).task_id = "ab"
    setting.threads.tell_stop(task, 1)
    assert "calledBy" not in setting.last["ray"]


def play(count: int) -> Setting:
    async def make() -> Setting:
        return Setting(count)

    return asyncio.run(make())


def test_a_stop_costs_the_same_however_many_stand_still() -> None:
    setting = play(CROWD)
    assert [setting.stop(worker) for worker in setting.all] == [False, *[True] * (CROWD - 1)]
    assert setting.workers.listed == 0
    assert setting.workers.questions <= 2 * CROWD
    setting.workers.questions = 0
    for worker in setting.all:
        worker.resumed([1])
    # Those that went on are put aside once, and not once for each stop.
    assert [setting.stop(worker) for worker in setting.all[::-1]] == [False, *[True] * (CROWD - 1)]
    assert setting.workers.listed == 0
    assert setting.workers.questions <= 3 * CROWD


@pytest.mark.parametrize("seed", range(20))
def test_a_stop_does_not_take_the_focus_where_another_debuggee_stands_still(seed: int) -> None:
    setting, chance = play(5), random.Random(seed)
    for _ in range(200):
        number = chance.randrange(5)
        worker = setting.all[number]
        others = [each for each in setting.workers.attached if each is not worker and is_reported(each)]
        what = chance.choice(("stops", "stops", "stops", "goes on", "told", "left", "gone"))
        if what == "stops" and not worker.has_left:
            assert setting.stop(worker) is bool(others)
        elif what == "goes on":
            worker.resumed([1])
        elif what == "told":  # another editor has come
            worker.unreported()
        elif what == "left":
            worker.leaves()
        elif what == "gone" and worker.has_left:
            setting.threads.forget(worker)
            setting.all[number] = setting.comes(number)
