"""Tests what real debuggees stop at: conditions, counts, messages, functions, exceptions."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from rayside.errors import RequestFailed
from tests.integration.pythons import POST_MORTEM
from tests.integration.relay_debuggees import Session, Wire, relay_over
from tests.patience import PATIENCE

pytestmark = [pytest.mark.gate, pytest.mark.usefixtures("answers_in_full")]

LOOP = """\
def work(x):
    y = x * 2
    return y

for i in range(10):
    work(i)
print("done", flush=True)
"""
TWICE = """\
class Actor:
    def work(self, x):
        return x
class Other:
    def work(self, x):
        return x
def by_value():
    def inner():
        return 1
    return inner
Other().work(1)
Actor().work(2)
by_value()()
print("done", flush=True)
"""
FAILS = f"""\
import sys, threading
sys.path.insert(0, "LIBRARY")
import library
{POST_MORTEM}
def task(x):
    raise ValueError(x)
for x in (1, 2):
    library.run(task, x, post_mortem)
print("done", flush=True)
"""
LIBRARY = """\
def run(task, x, failed):
    try:
        task(x)
    except ValueError:
        failed()
"""


# A pydevd that keeps what stops elsewhere than the one we know.
LACKS = """\
import pydevd
pydevd.PyDB.break_on_user_uncaught_exceptions = property(lambda self: {}, lambda self, value: None)
print("ready", flush=True)
print("done", flush=True)
"""


# --- conditions and counts ---------------------------------------------------------------


async def test_hits_are_counted_over_all_debuggees(tmp_path: Path) -> None:
    async with relay_over(tmp_path) as setting:
        processes = await setting.cluster.start(LOOP, count=3)
        editor = await setting.attach({"job.py": [{"line": 3, "hitCondition": "25"}]})
        # Each has ten: counted by each, none would stop.
        stop = await editor.event("stopped")
        await editor.resume(stop)
        assert [await process.end() for process in processes] == [["done"]] * 3
        await editor.nothing("stopped", 0)


async def test_a_condition_and_a_count_both_have_to_hold(tmp_path: Path) -> None:
    async with relay_over(tmp_path) as setting:
        (process,) = await setting.cluster.start(LOOP)
        spec = {"line": 3, "condition": "x % 2 == 1", "hitCondition": "%2"}
        editor = await setting.attach({"job.py": [spec]})
        for expected in ("3", "7"):
            stop = await editor.event("stopped")
            assert await editor.evaluate(stop, "x") == expected
            assert (await editor.frames(stop))[0]["line"] == 3
            await editor.resume(stop)
        assert await process.end() == ["done"]
        await editor.nothing("stopped", 0)


async def test_a_count_that_can_not_change_any_more_is_not_asked_for(tmp_path: Path) -> None:
    async with relay_over(tmp_path) as setting:
        (process,) = await setting.cluster.start(LOOP.replace("range(10)", "range(30000)"))
        editor = await setting.attach({"job.py": [{"line": 3, "hitCondition": "2"}]})
        stop = await editor.event("stopped")
        assert await editor.evaluate(stop, "x") == "1"
        await editor.resume(stop)
        # At 1 ms each, they would take half a minute.
        assert await asyncio.wait_for(process.end(), PATIENCE) == ["done"]


async def test_a_condition_that_raises_is_told_once_and_counts_as_false(tmp_path: Path) -> None:
    async with relay_over(tmp_path) as setting:
        processes = await setting.cluster.start(LOOP, count=2)
        editor = await setting.attach({"job.py": [{"line": 3, "condition": "nope > 1"}]})
        output = await editor.event("output", category="console")
        path = setting.cluster.here / "job.py"
        sentence = f"The condition of {path}:3 raised NameError: name 'nope' is not defined in task-"
        assert output["output"].startswith(sentence)
        assert output["output"].endswith("; it counts as false.\n")
        assert [await process.end() for process in processes] == [["done"]] * 2
        await editor.nothing("output", 0, category="console")
        await editor.nothing("stopped", 0)


async def test_a_condition_that_only_the_tasks_python_can_read_is_told_when_it_is_reached(
    tmp_path: Path,
) -> None:
    async with relay_over(tmp_path) as setting:
        (process,) = await setting.cluster.start(LOOP)
        # To the relay it is too deep to be looked at.
        spec = {"line": 3, "condition": f"{'(' * 60}x >{')' * 60}"}
        editor = await setting.attach({"job.py": [spec]})
        assert "raised SyntaxError" in (await editor.event("output", category="console"))["output"]
        assert await process.end() == ["done"]


# --- messages ----------------------------------------------------------------------------


async def test_a_logpoint_says_of_which_task_and_place_it_is(tmp_path: Path) -> None:
    async with relay_over(tmp_path) as setting:
        (process,) = await setting.cluster.start(LOOP)
        spec = {"line": 3, "logMessage": "x is {x}, twice {x * 2}", "condition": "x > 6"}
        editor = await setting.attach({"job.py": [spec]})
        title = f"task-1 · {process.process.pid}@127.0.0.1"
        for x in (7, 8, 9):
            output = await editor.event("output", category="stdout")
            assert output["output"] == f"{title}: x is {x}, twice {x * 2}\n"
            assert (output["source"]["path"], output["line"]) == (str(setting.cluster.here / "job.py"), 3)
            ray = output["data"]["ray"]
            assert (ray["task"], ray["workerId"], ray["nodeIp"]) == ("task-1", "w1", "127.0.0.1")
        assert await process.end() == ["done"]
        await editor.nothing("stopped", 0)


async def test_a_logpoints_count_is_of_all_debuggees_too(tmp_path: Path) -> None:
    async with relay_over(tmp_path) as setting:
        processes = await setting.cluster.start(LOOP, count=3)
        spec = {"line": 3, "logMessage": "reached", "hitCondition": "% 10"}
        editor = await setting.attach({"job.py": [spec]})
        for _ in range(3):
            await editor.event("output", category="stdout")
        for process in processes:
            await process.end()
        await editor.nothing("output", 0, category="stdout")


async def test_messages_that_come_too_fast_are_counted(tmp_path: Path) -> None:
    async with relay_over(tmp_path) as setting:
        # Without end: how many a busy machine makes in a second is not known.
        await setting.cluster.start(LOOP.replace("range(10)", "range(10**9)"))
        editor = await setting.attach({"job.py": [{"line": 3, "logMessage": "x is {x}"}]})
        began = time.monotonic()
        output = await editor.event("output", category="console")
        assert "left out here, for they came too fast" in output["output"]
        shown = sum(event["event"] == "output" for event in editor.unmatched)
        seconds = time.monotonic() - began + 1  # it began to run a moment before
        assert 100 <= shown <= 1000 + 200 * seconds


# --- functions ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "stops"),
    [("work", ["Other", "Actor"]), ("Actor.work", ["Actor"]), ("__main__.Actor.work", ["Actor"])],
)
async def test_a_function_breakpoint_stops_in_functions_of_that_name(
    tmp_path: Path, name: str, stops: list[str]
) -> None:
    async with relay_over(tmp_path) as setting:
        (process,) = await setting.cluster.start(TWICE)
        client = await setting.attach(requests={"setFunctionBreakpoints": {"breakpoints": [{"name": name}]}})
        for expected in stops:
            stop = await client.event("stopped", reason="function breakpoint")
            assert await client.evaluate(stop, "type(self).__name__") == repr(expected)
            assert len(stop["hitBreakpointIds"]) == 1
            await client.resume(stop)
        assert await process.end() == ["done"]


BOUND = """\
import functools
def kept(function):
    @functools.wraps(function)
    def inner(*args):
        return function(*args)
    return inner
def lost(function):
    return lambda *args: function(*args)
class Worker:
    @kept
    def init(self):
        return "init"
    @lost
    def train(self):
        return "train"
    def save(self):
        return "save"
    @classmethod
    def made(cls):
        return cls()
class Fused(Worker):
    def save(self):
        return super().save()
def step(self, size):
    return size
Fused.step = step
Fused.half = functools.partialmethod(step, 2)
ready = True
fused = Fused.made()
fused.init(), fused.train(), fused.save(), fused.step(1), fused.half()
print("done", flush=True)
"""


@pytest.mark.parametrize(
    ("name", "stops"),
    [
        ("Worker.init", 1),
        ("Fused.init", 1),
        ("Worker.train", 1),
        ("Fused.save", 1),
        ("Worker.save", 1),
        ("Fused.made", 1),
        ("Fused.step", 2),
        ("__main__.Fused.step", 2),
    ],
)
async def test_a_method_has_the_names_of_all_classes_that_have_it(
    tmp_path: Path, name: str, stops: int
) -> None:
    async with relay_over(tmp_path) as setting:
        (process,) = await setting.cluster.start(BOUND)
        editor = await setting.attach({"job.py": [BOUND.splitlines().index("ready = True") + 1]})
        stop = await editor.event("stopped")
        named = [{"name": name}]
        (answer,) = (await editor.request("setFunctionBreakpoints", breakpoints=named))["breakpoints"]
        assert answer["verified"]
        await editor.resume(stop)
        for _ in range(stops):
            stop = await editor.event("stopped", reason="function breakpoint")
            (frame, *_) = await editor.frames(stop)
            assert frame["name"].rpartition(".")[2] == name.rpartition(".")[2]
            await editor.resume(stop)
        assert await process.end() == ["done"]
        await editor.nothing("stopped", 0)


async def test_a_function_is_verified_once_some_debuggee_has_it(tmp_path: Path) -> None:
    async with relay_over(tmp_path) as setting:
        (process,) = await setting.cluster.start(TWICE)
        # The last comes to be while the job runs.
        names = [{"name": "Actor.work"}, {"name": "nowhere"}, {"name": "inner"}]
        editor = await setting.attach({"job.py": [11]})
        stop = await editor.event("stopped")
        answer = (await editor.request("setFunctionBreakpoints", breakpoints=names))["breakpoints"]
        assert [each["verified"] for each in answer] == [True, False, False]
        assert "No task has loaded a function of this name" in answer[1]["message"]
        assert len({each["id"] for each in answer}) == 3
        await editor.resume(stop)
        stop = await editor.event("stopped", reason="function breakpoint")
        assert stop["hitBreakpointIds"] == [answer[0]["id"]]
        await editor.resume(stop)
        await editor.event("breakpoint", breakpoint={"id": answer[2]["id"], "verified": True})
        stop = await editor.event("stopped", reason="function breakpoint")
        await editor.resume(stop)
        assert await process.end() == ["done"]


# --- exceptions --------------------------------------------------------------------------


async def failing(setting: Any, folder: Path, *, rules: bool = True, **filters: Any) -> tuple[Session, Any]:
    """Returns an editor that set these filters, and the process of FAILS that it debugs."""
    library = folder / "library"
    library.mkdir()
    (library / "library.py").write_text(LIBRARY)
    (process,) = await setting.cluster.start(FAILS.replace("LIBRARY", str(library)))
    options = {"rules": [{"path": f"{library}/**", "include": False}]} if rules else {}
    editor = await setting.attach(requests={"setExceptionBreakpoints": filters}, **options)
    return editor, process


async def values(editor: Session, process: Any) -> list[tuple[str, str]]:
    """Returns the function and its `x` at each stop, until the process has ended."""
    evaluated: list[tuple[str, str]] = []
    ending = asyncio.ensure_future(process.end())
    while True:
        stopping = asyncio.ensure_future(editor.event("stopped"))
        await asyncio.wait({stopping, ending}, return_when=asyncio.FIRST_COMPLETED)
        if not stopping.done():
            stopping.cancel()
            assert ending.result() == ["done"]
            return evaluated
        stop = stopping.result()
        assert stop["reason"] == "exception"
        frames = await editor.frames(stop)
        answer = await editor.request("evaluate", expression="x", frameId=frames[0]["id"])
        evaluated.append((frames[0]["name"].split()[0], answer["result"]))
        await editor.resume(stop)


@pytest.mark.parametrize(
    "filters",
    [["userUnhandled"], ["uncaught"], ["userUnhandled", "uncaught"], ["raised", "userUnhandled", "uncaught"]],
)
async def test_an_exception_stops_once_however_many_filters_are_on(
    tmp_path: Path, filters: list[str]
) -> None:
    async with relay_over(tmp_path) as setting:
        editor, process = await failing(setting, tmp_path, filters=filters)
        assert await values(editor, process) == [("task", "1"), ("task", "2")]


async def test_the_post_mortem_can_be_switched_off(tmp_path: Path) -> None:
    async with relay_over(tmp_path) as setting:
        editor, process = await failing(setting, tmp_path, filters=[])
        assert await values(editor, process) == []


async def test_a_filter_stops_where_its_condition_holds(tmp_path: Path) -> None:
    async with relay_over(tmp_path) as setting:
        options = [{"filterId": "userUnhandled", "condition": "x > 1"}]
        editor, process = await failing(setting, tmp_path, filters=[], filterOptions=options)
        assert await values(editor, process) == [("task", "2")]


async def test_a_filters_condition_that_raises_is_told(tmp_path: Path) -> None:
    async with relay_over(tmp_path) as setting:
        options = [{"filterId": "userUnhandled", "condition": "nope"}]
        editor, process = await failing(setting, tmp_path, filters=[], filterOptions=options)
        output = await editor.event("output", category="console")
        assert "The condition of the filter userUnhandled raised NameError" in output["output"]
        assert await values(editor, process) == []


async def test_a_filter_that_can_have_no_condition_is_not_verified(tmp_path: Path) -> None:
    async with relay_over(tmp_path) as setting:
        (process,) = await setting.cluster.start(LACKS)
        editor = await setting.attach({"job.py": [3]})
        stop = await editor.event("stopped")
        options = [{"filterId": name, "condition": "x"} for name in ("raised", "userUnhandled")]
        answer = await editor.request("setExceptionBreakpoints", filters=[], filterOptions=options)
        raised, unhandled = answer["breakpoints"]
        assert raised == {"verified": True}
        assert unhandled["verified"] is False
        assert "can give this filter no condition" in unhandled["message"]
        await editor.resume(stop)
        assert await process.end() == ["ready", "done"]


# --- what editors ask and are told -------------------------------------------------------


async def test_locations_of_breakpoints_are_the_lines_with_code(tmp_path: Path) -> None:
    async with relay_over(tmp_path) as setting:
        editor = await setting.attach({"job.py": [7]})
        source = {"path": str(setting.cluster.here / "job.py")}

        async def locations(**where: Any) -> list[int]:
            answer = await editor.request("breakpointLocations", source=source, **where)
            return [each["line"] for each in answer["breakpoints"]]

        assert await locations(line=1, endLine=7) == []  # there is no task yet
        await setting.cluster.start(LOOP)
        await editor.event("stopped")
        assert await locations(line=1, endLine=99) == [1, 2, 3, 5, 6, 7]
        assert await locations(line=4) == []
        # Their text begins in column 5.
        assert await locations(line=2, endLine=3, endColumn=4) == [2]
        assert await locations(line=2, column=6, endLine=3) == [3]
        source["path"] = str(setting.cluster.here / "other.py")
        assert await locations(line=1, endLine=99) == []


@pytest.mark.parametrize("where", [{"line": -1}, {"line": 2**31}, {"line": 1, "endLine": "9"}, {}])
async def test_locations_of_no_lines_are_refused(tmp_path: Path, where: dict[str, Any]) -> None:
    async with relay_over(tmp_path) as setting:
        editor = await setting.attach()
        with pytest.raises(RequestFailed, match="breakpointLocations: `"):
            await editor.request("breakpointLocations", source={"path": "/a.py"}, **where)


async def test_launch_is_answered_with_what_to_do(tmp_path: Path) -> None:
    async with relay_over(tmp_path) as setting:
        wire = await Wire.open(setting.port)
        answer = await wire.ask("launch", program="job.py")
        assert answer["success"] is False
        assert '"request": "attach"' in answer["message"]
        assert "`submit --debug`" in answer["message"]
        await wire.close()
