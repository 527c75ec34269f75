"""Tests what debuggees made of breakpoints: which result decides, and that nothing looks at all of them."""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Iterator
from typing import Any

import pytest

from rayside.dap.framing import Message
from rayside.relay.configuration import SOON, Configuration, Desired
from rayside.relay.editor import CurrentEditor
from rayside.relay.fan_out import BackgroundTasks
from rayside.relay.source_files import Paths
from rayside.relay.stop_points import LineBreakpoint, Result, Results
from rayside.relay.worker import Workers

YES, MOVED = Result(True, 1), Result(True, 3, "moved to line 3")
NO, OTHER, SILENT = Result(False, 1, "no such file"), Result(False, 1, "no code"), Result(False, 1)
CROWD = 300


@pytest.mark.parametrize(
    ("put", "deciding", "refusal"),
    [
        ([], None, None),
        ([SILENT], None, None),
        ([SILENT, NO, OTHER], NO, NO),
        ([NO, YES, MOVED], YES, NO),
        ([MOVED, YES, OTHER, NO], MOVED, OTHER),
    ],
)
def test_the_first_that_is_verified_decides_else_the_first_that_says_why(
    put: list[Result], deciding: Result | None, refusal: Result | None
) -> None:
    results = Results()
    for debuggee, result in enumerate(put):
        results[debuggee] = result
    assert (results.deciding, results.refusal) == (deciding, refusal)


def test_what_a_debuggee_says_anew_takes_the_place_of_what_it_said() -> None:
    results = Results()
    for result, deciding in ((YES, YES), (NO, NO), (SILENT, None), (MOVED, MOVED), (YES, YES)):
        results["w"] = result
        assert results.deciding == deciding
        assert results.get("w") == result
    results.forget("w")
    results.forget("w")
    assert (results.deciding, results.get("w")) == (None, None)


def test_only_another_result_that_decides_is_a_change() -> None:
    changes: list[Result | None] = []
    results = Results(lambda: changes.append(results.deciding))
    for debuggee in range(CROWD):
        results[debuggee] = NO
    assert changes == [NO]
    for debuggee in range(CROWD):
        results[debuggee] = YES
    assert changes == [NO, YES]
    for debuggee in range(CROWD):
        results.forget(debuggee)
    assert changes == [NO, YES, None]


class Counted(collections.OrderedDict[Any, Any]):
    """Counts the values that are looked at."""

    looks = 0

    def values(self) -> Any:
        def each() -> Iterator[Any]:
            for key in self:
                Counted.looks += 1
                yield self[key]

        return each()


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> type[Counted]:
    monkeypatch.setattr("rayside.relay.stop_points.OrderedDict", Counted)
    monkeypatch.setattr(Counted, "looks", 0)
    return Counted


@pytest.mark.parametrize("result", [NO, SILENT, YES])
def test_a_verdict_costs_the_same_however_many_debuggees_there_are(
    looks: type[Counted], result: Result
) -> None:
    breakpoint_ = LineBreakpoint("/a.py", {"line": 1})
    for debuggee in range(CROWD):
        breakpoint_.results[debuggee] = result
    assert looks.looks <= 2 * CROWD  # before and after each
    looks.looks = 0
    assert breakpoint_.document()["verified"] is result.verified
    assert looks.looks <= 1


class RecordedEditor(CurrentEditor):
    """Keeps what an editor would be told, as the event's name and its body."""

    listens = True

    def __init__(self) -> None:
        super().__init__(lambda _: None)
        self.told: list[tuple[str, Message]] = []

    def event(self, name: str, body: Message) -> None:
        self.told.append((name, body))


def test_only_breakpoints_of_which_something_changed_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[int] = []
    document = LineBreakpoint.document

    def counted(self: LineBreakpoint) -> Message:
        looked_at.append(self.id)
        return document(self)

    monkeypatch.setattr(LineBreakpoint, "document", counted)
    editor = RecordedEditor()

    async def story() -> None:
        log: list[str] = []
        configuration = Configuration(
            Workers(), paths=Paths(), editor=editor, work=BackgroundTasks(log.append), log=log.append
        )
        specs = [{"line": line} for line in range(1, 101)]
        await configuration.set_breakpoints("/a.py", specs)
        looked_at.clear()
        breakpoints = {breakpoint_.id: breakpoint_ for breakpoint_ in configuration.desired.breakpoints}

        async def answer(result: Result, *debuggees: int) -> list[int]:
            editor.told.clear()
            for debuggee in debuggees:
                breakpoints[7].results[debuggee] = result
                configuration.tell_changes()
            await asyncio.sleep(2 * SOON)
            return [body["breakpoint"]["id"] for _, body in editor.told]

        assert await answer(YES, *range(CROWD)) == [7]
        assert looked_at == [7]
        # What was told already, and what a breakpoint that is no more is said to be, is told to nobody.
        assert await answer(YES, CROWD) == []
        assert looked_at == [7]
        await configuration.set_breakpoints("/a.py", specs)
        looked_at.clear()
        assert await answer(MOVED, *range(CROWD)) == []
        assert looked_at == []
        assert log == []

    asyncio.run(story())


def test_what_was_exchanged_meanwhile_is_not_told() -> None:
    desired = Desired()
    (old,) = desired.replace("/a.py", [{"line": 1}])
    (new,) = desired.replace("/a.py", [{"line": 1}])
    old.results["w"] = YES
    assert desired.take_changed() == []
    new.results["w"] = YES
    assert desired.take_changed() == [new]
    assert desired.take_changed() == []
    new.results["v"] = YES
    assert desired.take_changed() == []
    desired.replace("/a.py", [])
    new.results.forget("w")
    assert desired.take_changed() == []
