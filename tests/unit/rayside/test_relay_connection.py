"""Tests whether the relay can call our package in a debuggee, what that forgets, and how long it waits."""

from __future__ import annotations

import asyncio
import sys
import tracemalloc
from collections.abc import Callable, Coroutine, Iterator
from types import ModuleType
from typing import Any

import pytest

from rayside.dap.channel import REQUEST_TIMEOUT
from rayside.dap.framing import Message
from rayside.errors import RequestFailed
from rayside.relay.connection import GRACE, PATIENCE, SOON, Connection
from rayside.relay.debuggee import Debuggee
from rayside.relay.installed import Installed
from rayside.relay.lifecycle import BESIDE
from rayside.relay.source_files import Files
from rayside.worker import evaluated
from rayside.worker.evaluated import scope, shown, telling
from tests.played import played

_REACHED = "rayside.worker.evaluated.reached"


class Debugged(Connection):
    """Evaluates here."""

    def __init__(self) -> None:
        super().__init__(Debuggee("w1", "127.0.0.1", 1, 1, "127.0.0.1", "01000000"), lambda event: None)
        self.expressions: list[str] = []

    async def run(self, expression: str, timeout: float, frame: int | None = None) -> Message:
        self.expressions.append(expression)
        try:
            return {"result": repr(eval(expression))}
        except Exception as error:
            raise RequestFailed(str(error), hint="") from error


@pytest.fixture(autouse=True)
def modules() -> Iterator[None]:
    """Leaves the worker side's modules as they were: `begin` has some imported anew."""
    before = {name: module for name, module in sys.modules.items() if name.startswith("rayside.worker")}
    yield
    for name in [name for name in sys.modules if name.startswith("rayside.worker")]:
        del sys.modules[name]
    sys.modules.update(before)


def play(story: Callable[[Debugged], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(story(Debugged()), 20))


@played(play)
async def test_what_is_sent_is_one_short_expression(debugged: Debugged) -> None:
    await debugged.begin()
    assert debugged.has_package
    assert await debugged.ask(SOON, shown.cut, "abcdef", most=3) == "abc..."
    expected = "__import__('importlib').import_module('rayside.worker.evaluated.shown').cut('abcdef', most=3)"
    assert debugged.expressions[1:] == [f"[{expected}]"]


@played(play)
async def test_every_literal_comes_as_it_is_also_nan_and_infinity(debugged: Debugged) -> None:
    await debugged.begin()
    inf, nan = float("inf"), float("nan")
    value = {1: ("a'", (2.5,), []), "b": [-inf, (), {None: True}], "c": (inf, nan)}
    assert await debugged.ask(SOON, shown.shown, value) == repr(value)


@played(play)
async def test_where_the_package_is_not_there_nothing_more_is_asked(debugged: Debugged) -> None:
    sys.modules[evaluated.__name__] = None  # type: ignore[assignment]
    await debugged.begin()
    assert not debugged.has_package and debugged.protocol is None
    assert await debugged.ask(SOON, scope.task) is None
    await debugged.tell(SOON, telling.detached)
    assert len(debugged.expressions) == 1


@played(play)
async def test_a_package_of_another_version_is_not_called(debugged: Debugged) -> None:
    older: Any = ModuleType(evaluated.__name__)
    older.begin = lambda connection: 0
    sys.modules[evaluated.__name__] = older
    await debugged.begin()
    assert not debugged.has_package and debugged.protocol == 0
    assert await debugged.ask(SOON, scope.task) is None


@played(play)
async def test_each_connection_has_the_modules_anew_and_once(debugged: Debugged) -> None:
    await debugged.begin()
    module: Any = sys.modules[_REACHED]
    module._reported.add(1)
    await debugged.begin()  # as where the relay has given up, and what was late runs
    assert sys.modules[_REACHED] is module
    await Debugged().begin()
    anew: Any = sys.modules[_REACHED]
    assert anew is not module and not anew._reported
    assert anew.telling is sys.modules["rayside.worker.evaluated.telling"] is not module.telling
    assert sys.modules["rayside.worker.evaluated"].reached is anew


@played(play)
async def test_what_has_changed_python_for_good_stays(debugged: Debugged) -> None:
    await debugged.begin()
    stopping: Any = eval("__import__('importlib').import_module('rayside.worker.evaluated.stopping')")
    await Debugged().begin()
    assert sys.modules[stopping.__name__] is stopping
    assert stopping._reached() is sys.modules[_REACHED]


class Answering(Debugged):
    """Gets the same result for everything."""

    def __init__(self, result: str) -> None:
        super().__init__()
        self._result = result

    async def run(self, expression: str, timeout: float, frame: int | None = None) -> Message:
        return {"result": self._result}


@pytest.mark.parametrize(
    "result",
    [
        "[" + "0," * 1_000_000 + "]",
        "[" + "'a'," * 60_000 + "]",
        "['" + "a" * 300_000 + "', 0]",
        "['a'],['" + "b" * 300_000 + "']",
        "['" + "\\" * 300_001 + "']",
    ],
    ids=["numbers", "texts", "a text and more", "two lists", "no end"],
)
def test_a_long_result_that_is_more_than_one_text_is_not_read(result: str) -> None:
    tracemalloc.start()
    assert asyncio.run(Answering(result).literal("x")) is None
    assert tracemalloc.get_traced_memory()[1] < 16 * 1024 * 1024
    tracemalloc.stop()


@pytest.mark.parametrize(
    "text",
    ["a" * 2_000_000, "'\\\n\"é" * 300_000, '{"it\'s": 1}' * 100_000],
    ids=["plain", "escapes", "JSON"],
)
def test_one_long_text_comes_through(text: str) -> None:
    assert asyncio.run(Answering(repr([text])).literal("x")) == text


@pytest.mark.parametrize(
    "found", [pytest.param("0x1" + "0" * 10_000, id="huge"), "1000000", "-1", "True", "1.0", "'1'"]
)
def test_a_forged_version_is_none(found: str) -> None:
    debugged = Answering(f"[{found}]")
    asyncio.run(debugged.begin())
    assert debugged.protocol is None and not debugged.has_package


@pytest.mark.parametrize(
    "answer",
    ["([], ['f'])", "({}, ['f'])", "('same', 5)", "('same', None)", "('same', [5])", "('same',)", "5"],
)
def test_what_is_no_answer_for_a_file_leaves_the_others_found(answer: str) -> None:
    debugged = Answering(f"[{{'/a.py': {answer}, '/b.py': ('same', ['/there/b.py'])}}]")
    debugged.protocol = evaluated.PROTOCOL
    installed = Installed(debugged, Files(), key="w", node_ip="h")
    assert asyncio.run(installed.find({"/a.py": "", "/b.py": ""})) == {"/b.py": "/there/b.py"}


def test_who_asks_the_relay_waits_longer_than_the_relay_for_a_debuggee_that_resumes() -> None:
    evaluations_end, breakpoints_are_set = GRACE + 2 * SOON, SOON
    assert BESIDE + evaluations_end + breakpoints_are_set + PATIENCE < REQUEST_TIMEOUT
