"""Tests breakpoints in functions that came by value, from a driver's file that no debuggee has."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rayside.dap.client import Client
from rayside.relay import messages
from rayside.relay.connection import call
from rayside.relay.installed import NO_FILE
from rayside.worker import evaluated
from rayside.worker.evaluated import telling
from rayside.worker.evaluated.reached import EVENT, PATIENCE
from tests.integration.relay_debuggees import Cluster, Process, Session, relay_over

pytestmark = pytest.mark.usefixtures("answers_in_full")

# What cloudpickle does with a function of a driver's own; `make` is looked up anew, as unpickling does.
RECEIVES = """\
import os, sys, time, types
name = "ray.cloudpickle.cloudpickle"
sys.modules[name] = cloudpickle = types.ModuleType(name)
def _make_function(code, globals, name, argdefs, closure):
    return types.FunctionType(code, globals, name, argdefs, closure)
cloudpickle._make_function = _make_function
def receive(source):
    module = compile(source, "DRIVER", "exec")
    code = next(constant for constant in module.co_consts if hasattr(constant, "co_code"))
    return sys.modules[name]._make_function(code, {}, code.co_name, None, None)
"""
SQUARE = "def square(x):\n    y = x * x\n\n    return y\n"
WAITS = """\
print("there", flush=True)
while not os.path.exists("go"):
    time.sleep(0.01)
began = time.monotonic()
"""
COMES = RECEIVES + WAITS + f"print(receive({SQUARE!r})(3), flush=True)\n"
IS_THERE = RECEIVES + f"square = receive({SQUARE!r})\n" + WAITS + "print(square(3), flush=True)\n"
# Python has a tuple that is being made of a generator grow only where nobody else holds it. It looks for the
# file seldom: who gives up Python's lock for moments only, more often than each 5 ms, gets it back each time.
MAKES_TUPLES = (
    f"{RECEIVES}functions = [lambda: n for n in range(20_000)]\nsquare = receive({SQUARE!r})\n"
    "print('there', flush=True)\nwhile not os.path.exists('go'):\n"
    "    for _ in range(10_000):\n        tuple(n for n in range(100))\nprint(square(3), flush=True)\n"
)
AT_ONCE = f"print('at once' if time.monotonic() - began < {PATIENCE / 2} else 'late', flush=True)\n"
OTHER = "def other(x):\n\n\n\n\n    return -x\n"
COMES_AGAIN = COMES + f"print(receive({OTHER!r})(3), flush=True)\nprint(receive({OTHER!r})(4), flush=True)\n"


@asynccontextmanager
async def played(folder: Path, script: str) -> AsyncIterator[Scene]:
    """Plays a process that is ready for functions to come, and an editor that has set nothing yet."""
    async with relay_over(folder) as setting:
        driver = str(folder / "laptop" / "driver.py")
        (process,) = await setting.cluster.start(script.replace("DRIVER", driver))
        editor = await setting.attach()
        for _ in ("the cluster's row", "the debuggee's, which takes requests from now on"):
            await editor.event("thread", reason="started")
        await process.until_printed()
        yield Scene(process, editor, driver)


def go(process: Process) -> None:
    (Path(f"/proc/{process.process.pid}/cwd") / "go").touch()


@dataclass
class Scene:
    process: Process
    editor: Session
    driver: str

    async def set(self, *lines: int) -> list[dict[str, Any]]:
        """Sets breakpoints, and returns the answer for each."""
        specs = [{"line": line} for line in lines]
        answer = await self.editor.request("setBreakpoints", source={"path": self.driver}, breakpoints=specs)
        return list(answer["breakpoints"])

    def go(self) -> None:
        go(self.process)

    async def stop(self) -> dict[str, Any]:
        return await self.editor.event("stopped", reason="breakpoint")

    async def resume(self, stop: dict[str, Any]) -> None:
        await self.editor.request("continue", threadId=stop["threadId"])


async def test_a_function_that_comes_by_value_stops_at_its_first_call(tmp_path: Path) -> None:
    async with played(tmp_path, COMES) as scene:
        (unset,) = await scene.set(3)
        assert (unset["verified"], unset["message"]) == (False, NO_FILE)
        scene.go()
        stop = await scene.stop()
        (frame, *_) = await scene.editor.frames(stop)
        # Line 3 is empty.
        assert (frame["name"], frame["line"], frame["source"]["path"]) == ("square", 4, scene.driver)
        assert not frame["source"].get("sourceReference")
        assert await scene.editor.evaluate(stop, "y") == "9"
        changed = (await scene.editor.event("breakpoint"))["breakpoint"]
        assert (changed["id"], changed["verified"], changed["line"]) == (unset["id"], True, 4)
        await scene.resume(stop)
        assert await scene.process.end() == ["there", "9"]


async def test_looking_for_functions_holds_nothing_that_the_program_makes(tmp_path: Path) -> None:
    async with played(tmp_path, MAKES_TUPLES) as scene:
        for _ in range(5):
            assert [each["verified"] for each in await scene.set(4)] == [True]
            await scene.set()
        for name in ("square", "missing") * 3:
            await scene.editor.request("setFunctionBreakpoints", breakpoints=[{"name": name}])
        await scene.editor.request("setFunctionBreakpoints", breakpoints=[])
        scene.go()
        assert await scene.process.end() == ["there", "9"]


async def test_a_function_that_came_before_gets_its_breakpoint_too(tmp_path: Path) -> None:
    async with played(tmp_path, IS_THERE) as scene:
        first, second = await scene.set(2, 40)
        assert (first["verified"], second["verified"]) == (True, False)
        scene.go()
        stop = await scene.stop()
        assert stop["hitBreakpointIds"] == [first["id"]]
        await scene.resume(stop)
        assert await scene.process.end() == ["there", "9"]


async def test_another_function_of_the_same_file_gets_its_own_when_it_comes(tmp_path: Path) -> None:
    async with played(tmp_path, COMES_AGAIN) as scene:
        await scene.set(6)
        scene.go()
        for expected in ("3", "4"):
            stop = await scene.stop()
            assert await scene.editor.evaluate(stop, "x") == expected
            await scene.resume(stop)
        assert await scene.process.end() == ["there", "9", "-3", "-4"]


async def test_what_is_taken_back_stops_nothing_that_comes_after(tmp_path: Path) -> None:
    async with played(tmp_path, COMES) as scene:
        await scene.set(2)
        await scene.set()
        scene.go()
        assert await scene.process.end() == ["there", "9"]
        await scene.editor.nothing("stopped", 0)


async def test_who_unpickles_does_not_wait_once_the_editor_has_gone(tmp_path: Path) -> None:
    async with played(tmp_path, COMES + AT_ONCE) as scene:
        await scene.set(2)
        await scene.editor.client.disconnect()
        scene.go()
        assert await scene.process.end() == ["there", "9", "at once"]


@pytest.mark.parametrize("in_process", [False, True], ids=["adapter", "in process"])
async def test_who_waits_for_an_answer_goes_on_when_the_debugger_detaches(
    tmp_path: Path, in_process: bool
) -> None:
    ask = call(telling.ask, EVENT, {"key": 1, "what": "hit"}, PATIENCE)
    asks = f"print({ask}, flush=True)\n"
    cluster = Cluster(tmp_path)
    script = "import os, sys, time\n" + WAITS + asks + AT_ONCE
    (process,) = await cluster.start(script, waits=False, in_process=in_process)
    try:
        client = await Client.connect("127.0.0.1", process.debuggee.port, tables=messages)
        await client.attach(exception_filters=None)
        await client.request("evaluate", {"expression": call(evaluated.begin, "a")})
        await process.until_printed()
        go(process)
        await Session(client).event(EVENT)
        await client.disconnect()
        assert await process.end() == ["there", "[]", "at once"]
    finally:
        await process.close()
