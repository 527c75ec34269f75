"""Tests what a step into `.remote()` does inside debuggees: on each Python, with a Ray that is made up.

The real one is in test_step_into_tasks.py, for one Python.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from rayside.dap.framing import Message
from rayside.relay import messages
from rayside.relay.connection import call
from rayside.worker import evaluated
from rayside.worker.evaluated import stepped_calls, telling
from rayside.worker.evaluated.stepped_calls import EVENT, MOST_FRAMES
from rayside.worker.evaluated.stepped_calls import PATIENCE as WAITS
from tests.integration.pythons import Debuggee, debuggee, each_python, hows_environment, python_of
from tests.patience import PATIENCE

# pydevd takes these for a part of Python, as it takes Ray for a library.
_RAY = """\
import functools, sys, threading, types
from collections import namedtuple

def made_up(name, code):
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(code, f"<frozen {name}>", "exec"), vars(module))
    return module

ray = made_up("ray", '''
import threading
of_thread = threading.local()
class Context:
    def get_task_id(self):
        return getattr(of_thread, "task", None)
    def get_task_name(self):
        return "work"
def get_runtime_context():
    return Context()
''')
made_up("ray.remote_function", '''
class Ref:
    def __init__(self, task):
        self.task = task
    def task_id(self):
        return self
    def hex(self):
        return self.task
class RemoteFunction:
    _function_name = "__main__.work"
    def _remote(self, n):
        if n < 0:
            raise ValueError(n)
        return Ref(f"{n:048x}")
    def remote(self, n):
        return self._remote(n)
''')
made_up("ray.actor", '''
class ActorMethod:
    def _remote(self):
        pass
class ActorClass:
    def _remote(self):
        pass
class ActorHandle:
    pass
''')
made_up("ray.library", '''
def maps(remote):
    return [remote.remote(n) for n in range(3)]
''')
Info = namedtuple("Info", ["function", "function_name", "max_calls"])
worker = made_up("ray._private.worker", '''
SCRIPT_MODE, WORKER_MODE = 0, 1
class Manager:
    def __init__(self):
        self.execution_infos, self.known = {}, {}
    def get_execution_info(self, job, descriptor):
        return self.known[descriptor]
class Worker:
    mode, function_actor_manager = 1, Manager()
global_worker = Worker()
''')
manager = worker.global_worker.function_actor_manager
begun = []

def execute(descriptor, task, *args):
    # As Ray does it, in a function of Ray's.
    return ray.execute(manager, descriptor, task, args)

exec(compile('''
def execute(manager, descriptor, task, args):
    of_thread.task = task
    if descriptor not in manager.execution_infos:
        manager.execution_infos[descriptor] = manager.get_execution_info("job", descriptor)
    return manager.execution_infos[descriptor].function(*args)
''', "<frozen ray>", "exec"), vars(ray))
"""
_BEGIN = """\
import json, sys, time
import debugpy
debugpy.configure(subProcess=False)
print(debugpy.listen(("127.0.0.1", 0))[1], flush=True)
"""
_PROGRAM = """
work = sys.modules["ray.remote_function"].RemoteFunction()
library = sys.modules["ray.library"]

def deep(n, depth):
    if depth:
        return deep(n, depth - 1)
    debugpy.breakpoint()
    before = n
    first = work.remote(n); second = work.remote(n + 1)  # call
    after = n  # after
    return first.hex()

def plain(n):
    m = n  # plain
    return m

def without(n):
    debugpy.breakpoint()
    before = n
    plain(n)  # local
    library.maps(work)  # library
    after = n  # end
    return after

def failing(n):
    debugpy.breakpoint()
    before = n
    try:
        work.remote(-n)  # fails
    except ValueError:
        return "raised"  # caught

def run(n):
    half = n / 2  # first
    return half

def stream(n):
    yield n  # stream

async def coroutine(n):
    m = n  # coroutine
    return m

def begins(descriptor, task, *args):
    return execute(descriptor, task, *args)

def drained(task, n):
    return list(execute("stream", task, n))

def awaited(task, n):
    try:
        execute("coroutine", task, n).send(None)
    except StopIteration as ended:
        return ended.value

manager.known.update(
    work=Info(run, "work", 0), other=Info(run, "other", 0), stream=Info(stream, "stream", 0),
    coroutine=Info(coroutine, "coroutine", 0), nothing=Info(abs, "nothing", 0),
)
for line in sys.stdin:
    word, _, rest = line.strip().partition(" ")
    print(json.dumps(globals()[word](*json.loads(rest or "[]"))), flush=True)
"""


class Process:
    """A debuggee that calls its own functions when it is told to."""

    def __init__(self, running: Debuggee) -> None:
        self.running = running

    def begin(self, function: str, *arguments: object) -> None:
        self.running.say(f"{function} {json.dumps(arguments)}")

    async def result(self) -> Any:
        return json.loads(await asyncio.wait_for(asyncio.to_thread(self.running.hear), PATIENCE))

    async def event(self, name: str = EVENT) -> Message:
        """Returns the body of the next such event, as the relay would have it."""
        while event := await asyncio.wait_for(self.running.client.events.get(), PATIENCE):
            if event["event"] == name:
                known = messages.event(event)
                assert known is not None and len(event["body"].get("frames", [])) <= MOST_FRAMES
                body: Message = known["body"]
                return body
        raise AssertionError("the debuggee ended")

    async def stop(self, marker: str) -> Message:
        stop = await self.running.stopped()
        assert (await self.running.frame(stop))["line"] == self.running.line(marker), stop
        return stop

    async def stop_untold(self, marker: str) -> Message:
        """Returns the next stop; no call is told before it."""
        while event := await asyncio.wait_for(self.running.client.events.get(), PATIENCE):
            assert event["event"] != EVENT
            if event["event"] == "stopped":
                body: Message = event["body"]
                assert (await self.running.frame(body))["line"] == self.running.line(marker)
                return body
        raise AssertionError("the debuggee ended")

    async def step(self, stop: Message, *commands: str) -> Message:
        """Steps that often; returns the last stop."""
        for command in commands:
            await self.running.go_on(stop, command)
            stop = await self.running.stopped()
        return stop

    async def expect(self, calls: dict[int, tuple[str, str]]) -> None:
        await self.running.evaluate(call(evaluated.begin, "a"))
        assert await self.running.evaluate(call(stepped_calls.expect, calls)) == "True"


@asynccontextmanager
async def played(version: str, how: str, folder: Path) -> AsyncIterator[Process]:
    environment = hows_environment(how)
    with debuggee(python_of(version), folder, _BEGIN + _RAY + _PROGRAM, [how], environment) as running:
        await running.attach()
        await running.evaluate(call(evaluated.begin, "a"))
        assert await running.evaluate(call(stepped_calls.begin)) == "True"
        yield Process(running)
        await running.client.disconnect()


# --- who calls -------------------------------------------------------------------------------


@each_python
async def test_the_first_call_of_a_step_is_told_before_it_is_made(
    version: str, how: str, tmp_path: Path
) -> None:
    async with played(version, how, tmp_path) as process:
        process.begin("deep", 7, 60)
        stop = await process.step(await process.running.stopped(), "next")
        await process.running.go_on(stop, "stepIn")
        told = await process.event()
        assert (told["what"], told["function"], told["threadId"]) == ("call", "work", stop["threadId"])
        assert len(told["frames"]) == MOST_FRAMES
        lines = [process.running.line("call")]
        assert [frame["line"] for frame in told["frames"][:1]] == lines
        assert {frame["name"] for frame in told["frames"]} == {"deep"}
        assert {frame["source"]["path"] for frame in told["frames"]} == {str(process.running.script)}
        await process.running.evaluate(call(telling.answered, told["number"], True))
        done = await process.event()
        assert (done["what"], done["key"], done["taskId"]) == ("called", told["key"], f"{7:048x}")
        # The second call of the line is not told.
        await process.running.go_on(await process.stop_untold("after"))
        assert await process.result() == f"{7:048x}"


@each_python
async def test_a_step_without_a_call_of_its_own_is_as_before(version: str, how: str, tmp_path: Path) -> None:
    async with played(version, how, tmp_path) as process:
        process.begin("without", 1)
        stop = await process.step(await process.running.stopped(), "next", "stepIn")
        assert (await process.running.frame(stop))["line"] == process.running.line("plain")
        stop = await process.step(stop, "stepOut", "next")
        assert (await process.running.frame(stop))["line"] == process.running.line("library")
        # It calls `.remote()`, but no line of the user's does.
        await process.running.go_on(stop, "stepIn")
        await process.running.go_on(await process.stop_untold("end"))
        assert await process.result() == 1


@each_python
async def test_a_call_that_fails_says_so_and_fails(version: str, how: str, tmp_path: Path) -> None:
    async with played(version, how, tmp_path) as process:
        process.begin("failing", 1)
        stop = await process.step(await process.running.stopped(), "next", "next")
        await process.running.go_on(stop, "stepIn")
        told = await process.event()
        await process.running.evaluate(call(telling.answered, told["number"], True))
        done = await process.event()
        assert (done["what"], done["taskId"]) == ("called", "")
        await process.running.go_on(await process.running.stopped())
        assert await process.result() == "raised"


# --- what is called --------------------------------------------------------------------------


@each_python
@pytest.mark.parametrize("is_known", [True, False], ids=["before", "by then"])
async def test_the_task_that_is_expected_stops_and_no_other(
    version: str, how: str, is_known: bool, tmp_path: Path
) -> None:
    async with played(version, how, tmp_path) as process:
        if is_known:
            process.begin("begins", "work", "00", 4)  # Ray knows the function by now
            assert await process.result() == 2
        await process.expect({3: ("work", ""), 4: ("else", "")})
        process.begin("begins", "other", "aa", 4)
        assert await asyncio.wait_for(process.result(), WAITS / 2) == 2
        process.begin("begins", "work", "ab", 6)  # it waits for its id
        await asyncio.sleep(0.3)
        await process.running.evaluate(call(stepped_calls.expect, {3: ("work", "ab")}))
        told = await process.event()
        assert (told["what"], told["key"]) == ("entered", 3)
        stop = await process.stop("first")
        assert stop["reason"] == "step"
        await process.running.go_on(stop)
        assert await process.result() == 3
        process.begin("begins", "work", "ab", 8)  # a retry
        assert await process.result() == 4
        await process.expect({})
        process.begin("begins", "work", "ab", 8)
        assert await process.result() == 4


@each_python
async def test_a_generator_and_a_coroutine_stop_when_they_begin(
    version: str, how: str, tmp_path: Path
) -> None:
    async with played(version, how, tmp_path) as process:
        for function, marker, result in (("drained", "stream", [5]), ("awaited", "coroutine", 5)):
            await process.expect({1: (marker, "ab")})
            process.begin(function, "ab", 5)
            await process.running.go_on(await process.stop(marker))
            assert await process.result() == result


@each_python
async def test_a_task_without_a_line_of_the_users_leaves_the_next_one_alone(
    version: str, how: str, tmp_path: Path
) -> None:
    async with played(version, how, tmp_path) as process:
        await process.expect({1: ("nothing", "ab")})
        process.begin("begins", "nothing", "ab", -4)
        assert await process.result() == 4
        process.begin("begins", "work", "ac", 4)
        assert await process.result() == 2
