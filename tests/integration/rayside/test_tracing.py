"""Tests tracing off and on in real debuggees: what sleeps is untraced, what is woken stops, in any thread.

Runs on every Python that has debugpy and is named in RAYSIDE_TEST_PYTHONS (paths, separated as in PATH);
on this one otherwise. What holds of sys.monitoring alone runs on each Python from 3.12 on that is on PATH or
in pyenv's folder, with this one's debugpy.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rayside.dap.framing import Message
from rayside.relay.connection import call
from rayside.worker import tracing
from rayside.worker.handshake import proof
from tests.integration.pythons import Debuggee, debuggee, environment_of, python_of
from tests.patience import PATIENCE

pytestmark = pytest.mark.gate
SLEEP, WAKE = call(tracing.sleep), call(tracing.wake)

TOKEN = "the token of the cluster"
PYTHONS = os.environ.get("RAYSIDE_TEST_PYTHONS", sys.executable).split(os.pathsep)

PROGRAM = """\
import _thread, asyncio, ctypes, sys, threading, time
import debugpy

def turn(name):
    total = 1  # turn
    total += 1
    return total

def raises():
    try:
        raise ValueError("caught")  # raises
    except ValueError:
        pass

def run(name):
    while "end" not in said:
        time.sleep(0.01)
        turn(name)

async def coroutine():
    while "end" not in said:
        await asyncio.sleep(0.01)
        turn("async")

def loop():
    # One frame, no calls: as hot as code can be.
    began = time.perf_counter()
    n = 0
    while time.perf_counter() - began < 0.05:
        n += 1
    return sys.gettrace() is not None

THREADS = {
    "python": lambda: threading.Thread(target=run, args=("python",)).start(),
    "asyncio": lambda: threading.Thread(target=asyncio.run, args=(coroutine(),)).start(),
    # Unknown to the module `threading`, as are Ray's own.
    "raw": lambda: _original_start(run, ("raw",)),
}
_original_start = _thread.start_new_thread
said = []
debugpy.configure(subProcess=False)
print(debugpy.listen(("127.0.0.1", 0))[1], flush=True)
if "hook" in sys.argv:
    sys.path.insert(0, sys.argv[1])
    from rayside.worker import tracing
    tracing.sleep()
    tracing.wake_by_itself()
for line in sys.stdin:
    word = line.strip()
    said.append(word)
    if word in THREADS:
        THREADS[word]()
    elif word == "traced":
        print(loop(), flush=True)
    elif word == "main":
        turn("main")
    elif word == "raises":
        raises()
    elif word == "breakpoint":
        breakpoint()
        after = 1
        after += 1
    elif word == "end":
        break
"""


def started(python: str, folder: Path, *, hook: bool) -> AbstractContextManager[Debuggee]:
    return debuggee(python, folder, PROGRAM, ["hook"] if hook else [])


pythons = pytest.mark.parametrize("python", PYTHONS)
with_or_without_hook = pytest.mark.parametrize("hook", [True, False])


@pythons
async def test_with_the_hook_nothing_is_traced_until_there_is_a_breakpoint(
    python: str, tmp_path: Path
) -> None:
    with started(python, tmp_path, hook=True) as process:
        assert not await process.traced()
        await process.attach()
        assert not await process.traced()
        await process.breakpoints("turn")
        assert await process.traced()
        process.say("main")
        stop = await process.stopped()
        assert (await process.frame(stop))["line"] == process.line("turn")
        await process.go_on(stop)
        await process.breakpoints()
        assert not await process.traced()
        await process.breakpoints("turn")
        await process.client.disconnect()
        assert not await process.traced()


@pythons
async def test_without_the_hook_the_expressions_do_it(python: str, tmp_path: Path) -> None:
    with started(python, tmp_path, hook=False) as process:
        assert await process.traced()
        await process.attach()
        await process.evaluate(SLEEP)
        assert not await process.traced()
        for _ in range(2):
            await process.evaluate(WAKE)
            await process.breakpoints("turn")
            assert await process.traced()
            process.say("main")
            stop = await process.stopped()
            await process.evaluate(SLEEP)  # must not disturb what stands still
            await process.go_on(stop, "next")
            stop = await process.stopped()
            assert (await process.frame(stop))["line"] == process.line("turn") + 1
            await process.go_on(stop)
            await process.breakpoints()
            await process.evaluate(SLEEP)
            await process.evaluate(SLEEP)
            assert not await process.traced()


@pythons
@with_or_without_hook
@pytest.mark.parametrize(
    ("kind", "began"),
    [
        (kind, began)
        for kind in ("python", "asyncio", "raw")
        for began in ("before", "asleep", "awake")
        # Nothing tells pydevd of such a thread until the next WAKE; for Ray's own the hook does.
        if (kind, began) != ("raw", "awake")
    ],
)
async def test_threads_of_every_kind_stop_whenever_they_began(
    python: str, tmp_path: Path, hook: bool, kind: str, began: str
) -> None:
    with started(python, tmp_path, hook=hook) as process:
        if began == "before":
            process.say(kind)
        await process.attach()
        await process.evaluate(SLEEP)
        if began == "asleep":
            process.say(kind)
            assert not await process.traced()
        await process.evaluate(WAKE)
        if began == "awake":
            process.say(kind)
        await process.breakpoints("turn")
        for _ in range(2):
            stop = await process.stopped()
            assert (await process.frame(stop))["line"] == process.line("turn")
            await process.go_on(stop)
        await process.breakpoints()


@pythons
async def test_exceptions_and_pause_reach_a_process_that_was_asleep(python: str, tmp_path: Path) -> None:
    with started(python, tmp_path, hook=True) as process:
        await process.attach()
        await process.client.request("setExceptionBreakpoints", {"filters": ["raised"]})
        process.say("raises")
        stop = await process.stopped()
        assert stop["reason"] == "exception"
        assert (await process.frame(stop))["line"] == process.line("raises")
        await process.go_on(stop)
        await process.client.request("setExceptionBreakpoints", {"filters": []})
        process.say("python")
        # It answers when the thread that it was asked for before is there.
        assert not await process.traced()
        threads = (await process.client.request("threads"))["threads"]
        thread = next(thread["id"] for thread in threads if "run" in thread["name"])
        await process.client.request("pause", {"threadId": thread})
        stop = await process.stopped()
        assert stop["reason"] == "pause"
        await process.go_on(stop)


@pythons
@with_or_without_hook
async def test_a_breakpoint_call_stops_and_steps_while_asleep(
    python: str, tmp_path: Path, hook: bool
) -> None:
    with started(python, tmp_path, hook=hook) as process:
        await process.attach()
        await process.evaluate(SLEEP)
        process.say("breakpoint")
        lines = []
        for command in ("next", "continue"):
            stop = await process.stopped()
            lines.append((await process.frame(stop))["line"])
            await process.go_on(stop, command)
        assert lines[1] == lines[0] + 1
        await process.evaluate(SLEEP)
        assert not await process.traced()


async def test_the_expressions_leave_nothing_behind_in_the_users_module(tmp_path: Path) -> None:
    with started(PYTHONS[0], tmp_path, hook=False) as process:
        await process.attach()
        before = await process.evaluate("sorted(globals())")
        await process.evaluate(WAKE)
        await process.evaluate(SLEEP)
        assert await process.evaluate("sorted(globals())") == before


# --- sys.monitoring, as the hook itself has it -------------------------------------------------------------

MONITORED = """\
import json, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
earlier = ThreadPoolExecutor(1)
earlier.submit(int).result()  # it runs before there is a debugger
sys.path.insert(0, sys.argv[1])
from rayside.worker import attach
print(attach.listen("127.0.0.1", sys.argv[2].encode()), flush=True)

def turn():
    total = 1  # turn
    total += 1
    return total

def hot():
    for n in range(100):
        str(n)

def beat():
    beats = 0
    while True:
        time.sleep(0.01)
        beats += 1  # beat

monitoring, number = sys.monitoring, sys.monitoring.DEBUGGER_ID

def state():
    hot()  # after its first turn pydevd has seen what is in it
    tool = monitoring.get_tool(number)
    told = {"tool": tool, "settrace": any(f() is not None for f in (sys.gettrace, threading.gettrace))}
    if tool is not None:
        # Where a function begins pydevd is asked once, whether there is something to stop at.
        begins = monitoring.events.PY_START | monitoring.events.PY_RESUME
        told["more"] = monitoring.get_events(number) & ~begins
        told["in hot"] = monitoring.get_local_events(number, hot.__code__)
    return told

for line in sys.stdin:
    word = line.strip()
    if word == "turn":
        print(turn(), flush=True)
    elif word == "beat":
        threading.Thread(target=beat, daemon=True).start()
    elif word == "state":
        later = ThreadPoolExecutor(1)
        print(json.dumps([state(), *(pool.submit(state).result() for pool in (earlier, later))]), flush=True)
        later.shutdown()
"""


def monitored(
    version: str, folder: Path, scene: Callable[[Debuggee], Coroutine[Any, Any, None]], **environment: str
) -> None:
    """Plays a scene with a process that the hook itself has opened."""
    python = python_of(version)
    whole = environment_of("debugpy") | environment
    with debuggee(python, folder, MONITORED, [TOKEN], whole) as started:
        asyncio.run(scene(started))


async def states(process: Debuggee) -> list[Message]:
    """Returns the states in the main thread, in an earlier one, and in a new one."""
    answered: list[Message] = json.loads(await process.ask("state"))
    return answered


async def stops_at(process: Debuggee, marker: str, *commands: str) -> None:
    for command in (*commands, "continue"):
        stop = await process.stopped()
        if marker:
            assert (await process.frame(stop))["line"] == process.line(marker)
            marker = ""
        await process.go_on(stop, command)


newer = pytest.mark.parametrize("version", ["3.12", "3.13", "3.14"])
KNOWS = partial(proof, TOKEN.encode())
OFF: Message = {"tool": None, "settrace": False}


@newer
def test_with_sys_monitoring_a_breakpoint_elsewhere_costs_nothing(version: str, tmp_path: Path) -> None:
    async def scene(process: Debuggee) -> None:
        expected = {"tool": "pydevd", "settrace": False, "more": 0, "in hot": 0}
        assert await states(process) == [OFF] * 3
        await process.attach(prove=KNOWS)
        assert await states(process) == [OFF] * 3
        await process.breakpoints("beat")
        assert await states(process) == [expected] * 3
        await process.breakpoints()
        process.say("beat")
        for _ in range(2):
            await process.breakpoints("turn")
            process.say("turn")
            # From there through its caller, so that pydevd looks at more than the one function.
            await stops_at(process, "turn", "next", "next", "next")
            assert await asyncio.to_thread(process.hear) == "2"
            assert await states(process) == [expected] * 3
            await process.breakpoints()
            assert await states(process) == [OFF] * 3
        for goodbye in (True, False):
            await process.breakpoints("turn", "beat")
            await stops_at(process, "beat", "next")
            await process.stopped()
            if not goodbye:
                process.client.close()
            await process.client.disconnect()
            began = time.monotonic()
            while await states(process) != [OFF] * 3:  # its debuggee hears of the end a while later
                assert time.monotonic() - began < PATIENCE
            await process.attach(prove=KNOWS)

    monitored(version, tmp_path, scene)


@newer
def test_for_post_mortem_sys_monitoring_is_off(version: str, tmp_path: Path) -> None:
    async def scene(process: Debuggee) -> None:
        await process.attach(prove=KNOWS)
        assert await states(process) == [OFF] * 3
        await process.breakpoints("turn")
        process.say("turn")
        await stops_at(process, "turn")
        assert await asyncio.to_thread(process.hear) == "2"
        # Not in `turn`, which is called there: with sys.settrace it would stop.
        await process.breakpoints("beat")
        assert await states(process) == [{**OFF, "settrace": True}] * 3
        await process.breakpoints()
        assert await states(process) == [OFF] * 3

    monitored(version, tmp_path, scene, RAY_DEBUG_POST_MORTEM="1")
