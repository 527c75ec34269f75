"""Tracing off and on in real debuggees: what sleeps runs untraced, what is woken stops, whatever the thread.

Runs on every Python that has debugpy and is named in RAYSIDE_TEST_PYTHONS (paths, separated as in PATH);
on this one otherwise.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bootstrap.debug.client import Client
from bootstrap.debug.dap import Message
from bootstrap.debug.tracing import SLEEP, WAKE
from bootstrap.settings import ROOT

PATIENCE = 20.0  # seconds; only a broken test waits so long
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
    from rayside_hook import tracing
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


class Debuggee:
    """A process that does what it is told, line by line."""

    def __init__(self, python: str, script: Path, *, hook: bool) -> None:
        self.script = script
        script.write_text(PROGRAM)
        how = ["hook"] if hook else []
        self.process = subprocess.Popen(
            [python, script, ROOT / "bootstrap" / "ray" / "hook", *how],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={"PYDEVD_USE_SYS_MONITORING": "0", "PYDEVD_DISABLE_FILE_VALIDATION": "1"},
        )
        self.port = int(self.hear())
        self.client: Client

    def say(self, word: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()

    def hear(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline().strip()

    def line(self, marker: str) -> int:
        return next(n for n, text in enumerate(PROGRAM.splitlines(), 1) if text.endswith(f"# {marker}"))

    async def attach(self, **how: Any) -> None:
        self.client = await Client.connect("127.0.0.1", self.port)
        await self.client.attach(**how)

    async def evaluate(self, expression: str) -> str:
        answer = await self.client.request("evaluate", {"expression": expression, "context": "clipboard"})
        return str(answer["result"])

    async def breakpoints(self, *markers: str) -> None:
        lines = [{"line": self.line(marker)} for marker in markers]
        await self.client.set_breakpoints(str(self.script), lines)

    async def traced(self) -> bool:
        self.say("traced")
        return await asyncio.wait_for(asyncio.to_thread(self.hear), PATIENCE) == "True"

    async def stopped(self) -> Message:
        async def wait() -> Message:
            while event := await self.client.events.get():
                if event["event"] == "stopped":
                    body: Message = event["body"]
                    return body
            raise AssertionError("the debuggee ended")

        return await asyncio.wait_for(wait(), PATIENCE)

    async def frame(self, stop: Message) -> Message:
        trace = await self.client.request("stackTrace", {"threadId": stop["threadId"], "levels": 1})
        frame: Message = trace["stackFrames"][0]
        return frame

    async def go_on(self, stop: Message, command: str = "continue") -> None:
        await self.client.request(command, {"threadId": stop["threadId"]})


@contextmanager
def debuggee(python: str, folder: Path, *, hook: bool) -> Iterator[Debuggee]:
    one = Debuggee(python, folder / "program.py", hook=hook)
    try:
        yield one
    finally:
        one.process.kill()
        one.process.wait()
        for pipe in (one.process.stdin, one.process.stdout):
            assert pipe
            pipe.close()


def play(
    python: str, folder: Path, scene: Callable[[Debuggee], Coroutine[Any, Any, None]], *, hook: bool
) -> None:
    with debuggee(python, folder, hook=hook) as one:
        asyncio.run(scene(one))


pythons = pytest.mark.parametrize("python", PYTHONS)
with_or_without_hook = pytest.mark.parametrize("hook", [True, False])


@pythons
def test_with_the_hook_nothing_is_traced_until_there_is_a_breakpoint(python: str, tmp_path: Path) -> None:
    async def scene(one: Debuggee) -> None:
        assert not await one.traced()
        await one.attach()
        assert not await one.traced()
        await one.breakpoints("turn")
        assert await one.traced()
        one.say("main")
        stop = await one.stopped()
        assert (await one.frame(stop))["line"] == one.line("turn")
        await one.go_on(stop)
        await one.breakpoints()
        assert not await one.traced()
        await one.breakpoints("turn")
        await one.client.disconnect()
        assert not await one.traced()

    play(python, tmp_path, scene, hook=True)


@pythons
def test_without_the_hook_the_expressions_do_it(python: str, tmp_path: Path) -> None:
    async def scene(one: Debuggee) -> None:
        assert await one.traced()
        await one.attach()
        await one.evaluate(SLEEP)
        assert not await one.traced()
        for _ in range(2):
            await one.evaluate(WAKE)
            await one.breakpoints("turn")
            assert await one.traced()
            one.say("main")
            stop = await one.stopped()
            await one.evaluate(SLEEP)  # must not disturb what stands still
            await one.go_on(stop, "next")
            stop = await one.stopped()
            assert (await one.frame(stop))["line"] == one.line("turn") + 1
            await one.go_on(stop)
            await one.breakpoints()
            await one.evaluate(SLEEP)
            await one.evaluate(SLEEP)
            assert not await one.traced()

    play(python, tmp_path, scene, hook=False)


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
def test_threads_of_every_kind_stop_whenever_they_began(
    python: str, tmp_path: Path, hook: bool, kind: str, began: str
) -> None:
    async def scene(one: Debuggee) -> None:
        if began == "before":
            one.say(kind)
        await one.attach()
        await one.evaluate(SLEEP)
        if began == "asleep":
            one.say(kind)
            assert not await one.traced()
        await one.evaluate(WAKE)
        if began == "awake":
            one.say(kind)
        await one.breakpoints("turn")
        for _ in range(2):
            stop = await one.stopped()
            assert (await one.frame(stop))["line"] == one.line("turn")
            await one.go_on(stop)
        await one.breakpoints()

    play(python, tmp_path, scene, hook=hook)


@pythons
def test_exceptions_and_pause_reach_a_process_that_was_asleep(python: str, tmp_path: Path) -> None:
    async def scene(one: Debuggee) -> None:
        await one.attach()
        await one.client.request("setExceptionBreakpoints", {"filters": ["raised"]})
        one.say("raises")
        stop = await one.stopped()
        assert stop["reason"] == "exception"
        assert (await one.frame(stop))["line"] == one.line("raises")
        await one.go_on(stop)
        await one.client.request("setExceptionBreakpoints", {"filters": []})
        assert not await one.traced()
        one.say("python")
        threads = (await one.client.request("threads"))["threads"]
        thread = next(thread["id"] for thread in threads if "run" in thread["name"])
        await one.client.request("pause", {"threadId": thread})
        stop = await one.stopped()
        assert stop["reason"] == "pause"
        await one.go_on(stop)

    play(python, tmp_path, scene, hook=True)


@pythons
@with_or_without_hook
def test_a_breakpoint_call_stops_and_steps_while_asleep(python: str, tmp_path: Path, hook: bool) -> None:
    async def scene(one: Debuggee) -> None:
        await one.attach()
        await one.evaluate(SLEEP)
        one.say("breakpoint")
        lines = []
        for command in ("next", "continue"):
            stop = await one.stopped()
            lines.append((await one.frame(stop))["line"])
            await one.go_on(stop, command)
        assert lines[1] == lines[0] + 1
        await one.evaluate(SLEEP)
        assert not await one.traced()

    play(python, tmp_path, scene, hook=hook)


def test_the_expressions_leave_nothing_behind_in_the_users_module(tmp_path: Path) -> None:
    async def scene(one: Debuggee) -> None:
        await one.attach()
        before = await one.evaluate("sorted(globals())")
        await one.evaluate(WAKE)
        await one.evaluate(SLEEP)
        assert await one.evaluate("sorted(globals())") == before

    play(PYTHONS[0], tmp_path, scene, hook=False)
