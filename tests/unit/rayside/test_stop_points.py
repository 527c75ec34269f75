"""Tests what an editor asks debuggees to stop at (exceptions, functions, counts), and its answer."""

from __future__ import annotations

from typing import Any

import pytest

from rayside.relay.capabilities import ExceptionFilters
from rayside.relay.configuration import Desired
from rayside.relay.stop_points import WITHIN, FunctionBreakpoint, Gather, HitCondition, LineBreakpoint
from rayside.worker.evaluated.reached import PATIENCE

ALL = [{"names": ["Python Exceptions"]}]
KEY_ERRORS = {"path": [*ALL, {"names": ["KeyError"]}], "breakMode": "always"}


@pytest.mark.parametrize(
    ("text", "stops"),
    [
        ("3", [3]),
        ("== 3", [3]),
        (" >=3 ", [3, 4, 5, 6, 7]),
        (">3", [4, 5, 6, 7]),
        ("<= 3", [1, 2, 3]),
        ("<3", [1, 2]),
        ("%3", [3, 6]),
        ("0", []),
        ("first", [1]),
    ],
)
def test_a_hit_condition_holds_for_these_hits(text: str, stops: list[int]) -> None:
    condition = HitCondition.of(text)
    assert condition is not None
    hits = [condition.holds(hit) for hit in range(1, 20)]
    assert [hit for hit in range(1, 8) if hits[hit - 1]] == stops
    for hit in range(1, 19):
        # Settled: nothing that comes later is anything else.
        assert not condition.is_settled(hit) or set(hits[hit:]) == {hits[hit - 1]}
    assert condition.is_settled(8) == (text != "%3")


@pytest.mark.parametrize("text", ["", "x", "% 0", "1.5", "=> 3", "3; print()", "9" * 10, "\u0663"])
def test_any_other_hit_condition_is_none(text: str) -> None:
    assert HitCondition.of(text) is None


@pytest.mark.parametrize(
    ("text", "gather"),
    [
        ("gather 8", Gather(8, WITHIN)),
        (" gather  2 within 30 s ", Gather(2, 30)),
        ("gather 9999 within 999", Gather(9999, 999)),
        ("gather 1", None),
        ("gather", None),
        ("gather 10000", None),
        ("gather 8 within 0", None),
        ("gather 8 in 5", None),
        ("gathers 8", None),
        ("8", None),
    ],
)
def test_a_hit_condition_may_gather(text: str, gather: Gather | None) -> None:
    assert Gather.of(text) == gather


def test_whoever_is_gathered_waits_for_the_relay_a_little_longer_than_for_the_others() -> None:
    breakpoint_ = LineBreakpoint("/a.py", {"line": 1, "hitCondition": "gather 8 within 30"})
    assert breakpoint_.point == ("", "", True, "", 30 + PATIENCE)
    assert breakpoint_.problem == ""


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"condition": "x >"}, "The condition 'x >' is no Python expression: invalid syntax."),
        ({"logMessage": "x is {x +}"}, "The message can't be made: invalid syntax: x +."),
        ({"logMessage": "here", "hitCondition": "gather 8"}, "A logpoint stops nobody"),
        ({"hitCondition": "gather 1"}, "is not understood"),
        ({"hitCondition": "often"}, "The hit condition 'often' is not understood: it is a number"),
    ],
)
def test_what_can_not_be_read_is_not_verified_and_says_why(spec: dict[str, str], why: str) -> None:
    line = LineBreakpoint("/a.py", {"line": 1, **spec})
    function = FunctionBreakpoint({"name": "f", **spec})
    for document in (line.document(), function.document()):
        assert document["verified"] is False
        assert why in document["message"]


def test_a_filter_is_off_whose_condition_can_not_be_read_and_none_is_kept_of_another() -> None:
    options = [{"filterId": "raised", "condition": "x >"}, {"filterId": "userUnhandled"}]
    exceptions = ExceptionFilters.of({"filterOptions": options})
    assert [verdict["verified"] for verdict in exceptions.verdicts] == [False, True]
    assert "The condition 'x >' is no Python expression" in exceptions.verdicts[0]["message"]
    assert exceptions.arguments == {"filters": ["userUnhandled"]}
    assert not exceptions.conditions
    # Nor is there a condition where the filter is on without one, too.
    options = [{"filterId": "raised", "condition": "x > 1"}, {"filterId": "userUnhandled", "condition": " "}]
    assert list(ExceptionFilters.of({"filterOptions": options}).conditions) == ["raised"]
    assert not ExceptionFilters.of({"filters": ["raised"], "filterOptions": options}).conditions


def test_hits_are_kept_until_the_breakpoint_is_another() -> None:
    desired = Desired()
    (first,) = desired.replace("/a.py", [{"line": 1, "hitCondition": "5"}])
    first.hits = 3
    same, _ = desired.replace("/a.py", [{"line": 1, "hitCondition": "5"}, {"line": 2}])
    assert (same.id, same.key, same.hits) == (first.id, first.key, 3)
    (other,) = desired.replace("/a.py", [{"line": 1, "hitCondition": "6"}])
    assert (other.id, other.hits) == (first.id, 0)
    # For what debuggees still say of the one before is not of this one.
    assert other.key != first.key
    assert desired.by_key(other.key) is other
    assert desired.by_key(first.key) is None
    (function,) = desired.replace_functions([{"name": "f", "hitCondition": "5"}])
    function.hits = 2
    (same_function,) = desired.replace_functions([{"name": "f", "hitCondition": "5"}])
    assert (same_function.id, same_function.hits) == (function.id, 2)


def test_debuggees_get_the_last_part_of_a_functions_name_and_of_a_line_no_condition() -> None:
    breakpoint_ = FunctionBreakpoint({"name": "module.Actor.work"})
    # What they compile with each hit is short; what it decides by, they know before.
    assert breakpoint_.inner() == {"name": "work", "condition": f"__rayside__({breakpoint_.key})"}
    assert breakpoint_.point == ("", "", False, "module.Actor.work", PATIENCE)
    line = LineBreakpoint("/a.py", {"line": 1, "column": 4, "condition": " "})
    assert line.inner(3) == {"line": 3, "column": 4}


@pytest.mark.parametrize("what", ["files", "functions", "filters", "options"])
def test_what_needs_tracing(what: str) -> None:
    desired = Desired()
    assert not desired.needs_tracing  # Ray's post-mortem does not
    if what == "files":
        desired.replace("/a.py", [{"line": 1}])
    elif what == "functions":
        desired.replace_functions([{"name": "work"}])
    elif what == "filters":
        desired.exceptions = ExceptionFilters.of({"filterOptions": [{"filterId": "raised"}]})
    else:
        desired.exceptions = ExceptionFilters.of({"exceptionOptions": [{"breakMode": "always"}]})
    assert desired.needs_tracing


@pytest.mark.parametrize(
    ("arguments", "inner"),
    [
        ({"filters": []}, {"filters": []}),
        ({"filters": ["uncaught", "uncaught"]}, {"filters": ["uncaught"]}),
        ({"filterOptions": [{"filterId": "raised"}]}, {"filters": ["raised"]}),
        (
            {"filters": ["uncaught"], "exceptionOptions": [KEY_ERRORS]},
            {"filters": [], "exceptionOptions": [KEY_ERRORS, {"path": ALL, "breakMode": "unhandled"}]},
        ),
        (
            {"filters": ["nonsense"], "exceptionOptions": [{"breakMode": "userUnhandled"}]},
            {"filters": [], "exceptionOptions": [{"path": ALL, "breakMode": "userUnhandled"}]},
        ),
    ],
)
def test_debuggees_get_filters_beside_options(arguments: dict[str, Any], inner: dict[str, Any]) -> None:
    assert ExceptionFilters.of(arguments).arguments == inner


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"filters": ["nonsense"]}, "There is no filter 'nonsense'"),
        ({"filterOptions": [{"filterId": "nonsense"}]}, "There is no filter 'nonsense'"),
        ({"filterOptions": [{}]}, "There is no filter 'None'"),
        *(
            ({"exceptionOptions": [{"breakMode": "always", "path": [path]}]}, message)
            for path, message in (
                ({"names": ["C++ Exceptions"]}, "begins with"),
                ({"negate": True, **ALL[0]}, "begins with"),
                ({"names": []}, "list of objects with names"),
            )
        ),
        ({"exceptionOptions": [{}]}, "breakMode: never, always"),
    ],
)
def test_what_can_not_be_set_says_why(arguments: dict[str, Any], message: str) -> None:
    exceptions = ExceptionFilters.of(arguments)
    assert exceptions.arguments == {"filters": []}
    (verdict,) = exceptions.verdicts
    assert verdict["verified"] is False
    assert message in verdict["message"]


def test_the_verdicts_are_in_the_order_of_what_was_asked_for() -> None:
    exceptions = ExceptionFilters.of(
        {
            "filters": ["raised", "nonsense"],
            "filterOptions": [{"filterId": "uncaught"}],
            "exceptionOptions": [{"breakMode": "never"}],
        }
    )
    assert [verdict["verified"] for verdict in exceptions.verdicts] == [True, False, True, True]
