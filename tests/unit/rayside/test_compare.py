"""Tests what a value is summed up to, how values are grouped, and how the groups are drawn."""

from __future__ import annotations

import json
import math
import sys
from collections import Counter, OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from rayside.dap.drawn_values import drawn
from rayside.dap.expressions import LONGEST as LONGEST_EXPRESSION
from rayside.dap.expressions import refusal_of
from rayside.dap.framing import Message
from rayside.relay.comparison import grouped
from rayside.worker.evaluated.shown import LONGEST, LONGEST_WITHIN, shown
from rayside.worker.evaluated.summary import asked, summary


def value_of(expression: str, **names: Any) -> dict[str, Any]:
    """Returns what a debuggee says of an expression in a frame that has these variables."""
    asked(1, 60)
    return late_value_of(expression, **names)


def late_value_of(expression: str, **names: Any) -> dict[str, Any]:
    """Returns the same where the process was not told to begin it, or too long ago."""
    variables = {"summary": summary, "expression": expression, **names}
    return dict(json.loads(eval("summary(1, expression)", variables))["value"])


# --- what is shown -----------------------------------------------------------------------


@dataclass
class Point:
    x: int
    rows: list[int]


@dataclass
class Named:
    x: int

    def __repr__(self) -> str:
        return "named"


class Hostile(list[int]):
    """Has methods that nobody may call to show it."""

    def __len__(self) -> int:
        raise ValueError

    def __iter__(self) -> Iterator[int]:
        raise ValueError

    def __repr__(self) -> str:
        raise ValueError


class Pretender:
    """Is asked for its class, and for whatever else, in vain."""

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        raise ValueError

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)

    def __repr__(self) -> str:
        return "pretender"


class LikeAnArray:
    """Has what an array has, of a library that nobody knows: its elements are not asked for."""

    dtype = "float64"

    def __init__(self, shape: tuple[float, ...], text: str) -> None:
        self.shape, self._text = shape, text

    def __array__(self, *_: object, **__: object) -> Any:
        raise AssertionError("it is computed")

    tolist = __getitem__ = __array__

    def __repr__(self) -> str:
        return self._text


class Large:
    def __repr__(self) -> str:
        return "x" * 10_000_000


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1, "1"),
        (True, "True"),
        (None, "None"),
        (1 << 300, "an int of 301 bits"),
        ("it's", '"it\'s"'),
        (b"\0", "b'\\x00'"),
        (bytearray(b"a"), "bytearray(b'a')"),
        ("x" * 5_000, f"'{'x' * LONGEST}'..."),
        ([1, 2], "[1, 2]"),
        (list(range(10)), "[0, 1, 2, 3, 4, 5, ...]"),
        ((1,), "(1,)"),
        ((), "()"),
        ({}, "{}"),
        ({"a": [1]}, "{'a': [1]}"),
        (set(), "set()"),
        ({1}, "{1}"),
        (frozenset({1}), "frozenset({1})"),
        (deque([1]), "deque([1])"),
        (Counter("aab"), "Counter({'a': 2, 'b': 1})"),
        ({"a": 1}.values(), "dict_values([1])"),
        ([[[[1]]]], "[[[[...]]]]"),
        (["x" * 500], f"['{'x' * LONGEST_WITHIN}'...]"),
        (Point(1, [*range(9)]), "Point(x=1, rows=[0, 1, 2, 3, 4, 5, ...])"),
        (Named(1), "named"),
        (Hostile([1, 2]), "Hostile([1, 2])"),
        (Large(), f"{'x' * LONGEST}..."),
        ([Large()], f"[{'x' * LONGEST_WITHIN}...]"),
        (range(3), "range(0, 3)"),
        (object(), "<object object at 0x...>"),
    ],
)
def test_a_value_is_shown_as_its_repr_and_cut(value: object, text: str) -> None:
    assert shown(value) == text


# --- what is summed up -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "fields"),
    [
        ("7", {"kind": "number", "type": "int", "number": 7, "nan": 0, "inf": 0}),
        ("math.nan", {"kind": "number", "type": "float", "number": None, "nan": 1}),
        ("-math.inf", {"kind": "number", "number": None, "inf": 1}),
        ("10**400", {"kind": "number", "number": None, "nan": 0, "inf": 0}),
        ("True", {"kind": "object", "type": "bool", "number": None}),
        ("'abc'", {"kind": "text", "size": 3}),
        ("[1.0, math.nan, {'a': -math.inf}]", {"kind": "container", "size": 3, "nan": 1, "inf": 1}),
        ("list(range(200_000))", {"kind": "container", "size": 200_000, "sample": 100_000}),
        ("Hostile([1])", {"kind": "container", "size": 1, "shown": "Hostile([1])"}),
        ("Pretender()", {"kind": "object", "shown": "pretender"}),
        (
            "1 / 0",
            {"kind": "error", "type": "ZeroDivisionError", "shown": "ZeroDivisionError: division by zero"},
        ),
        ("exit()", {"kind": "error", "type": "SystemExit"}),
        ("x y", {"kind": "error", "type": "SyntaxError"}),
        ("[row for row in range(3) if row in rows]", {"size": 2}),
        ("  rows # all of them", {"size": 2}),
    ],
)
def test_a_value_is_summed_up(expression: str, fields: dict[str, Any]) -> None:
    names = {"math": math, "Hostile": Hostile, "Pretender": Pretender, "rows": [1, 2], "exit": sys.exit}
    value = value_of(expression, **names)
    assert {name: value.get(name) for name in fields} == fields
    assert all(math.isfinite(part) for part in value.values() if isinstance(part, float))


def test_the_digest_is_that_of_the_whole_content_and_the_same_in_every_process() -> None:
    long = list(range(1_000))
    differing = [*long[:-1], 7]
    assert shown(long) == shown(differing)
    assert value_of("x", x=long)["digest"] != value_of("x", x=differing)["digest"]
    for one, other in (
        ("a" * 3_000, "a" * 2_999 + "b"),
        (1, True),
        (1, 1.0),
        ([1, [2]], [[1], 2]),
        ({"a": 1}, OrderedDict(a=1)),
        (b"a", "a"),
        (0.0, -0.0),
        (1 + 2j, 1 + 3j),
        ([Decimal(1)] * 7, [*[Decimal(1)] * 6, Decimal(2)]),
        ({"a": {"b": [[[[Decimal(1)]]]]}}, {"a": {"b": [[[[Decimal(2)]]]]}}),
        ([date(2024, 1, n) for n in range(1, 9)], [date(2024, 1, n) for n in (*range(1, 8), 9)]),
        (Point(1, [*range(9)]), Point(1, [*range(8), 7])),
        ([LikeAnArray((1,), "a")], [LikeAnArray((1,), "b")]),
    ):
        assert value_of("x", x=one)["digest"] != value_of("x", x=other)["digest"], (one, other)
    # Another process has a set's members in another order, as one that was filled in another order.
    for members in ([0, 8, 16], [(0,), (8, 1), "0", 8, None, 16, 24]):
        forwards, backwards = set[Any](), set[Any]()
        forwards.update(members)
        for member in reversed(members):
            backwards.add(member)
        assert value_of("x", x=forwards)["digest"] == value_of("x", x=backwards)["digest"]
    assert value_of("x", x=set(range(200_000)))["sample"] == 1
    deep: list[Any] = []
    deep.append(deep)
    assert value_of("x", x=deep)["sample"] > 1


def test_what_it_shows_of_an_error_is_bounded_and_never_raises() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise ValueError

    def fail(error: Exception) -> None:
        raise error

    assert value_of("fail(error)", fail=fail, error=Mute())["shown"] == "Mute"
    long = value_of("fail(error)", fail=fail, error=KeyError("x" * 10_000))
    assert len(long["shown"]) < 2_100


def test_an_array_of_an_unknown_library_is_its_repr_and_not_computed() -> None:
    value = value_of("x", x=LikeAnArray((2, 3), "lazy"))
    assert [value[name] for name in ("kind", "shape", "shown", "sample")] == ["array", [2, 3], "lazy", 0]
    for shape in ((math.nan, 3.0), (1,) * 65, (-1,)):
        value = value_of("x", x=LikeAnArray(shape, "lazy"))
        assert (value["kind"], value["shown"]) == ("object", "lazy")
    assert value_of("x", x=LikeAnArray((1,) * 64, ""))["shape"] == [1] * 64


def test_an_object_counts_as_several_items() -> None:
    assert value_of("x", x=[Decimal(1)] * 50_000)["sample"] < 10_010


@pytest.mark.parametrize(
    "expression",
    [
        *("numpy.array(['a'] * 20 + ['{}'], dtype=object)", "pandas.Series(['a'] * 20 + ['{}'])"),
        "pandas.Index(['a'] * 20 + ['{}'])",
        "pandas.Series(pandas.to_datetime(['2024-01-0{}'], utc=True).repeat(20))",
        *("polars.Series([[1]] * 20 + [[{}]])", "pandas.DataFrame({{'x': [[1]] * 20 + [[{}]]}})"),
        "polars.DataFrame({{'x': [[1]] * 20 + [[{}]]}})",
        "[pandas.DataFrame({{'x': [1] * 200 + [{}] + [1] * 200}})]",
        "numpy.array([(1, 'a')] * 2_000 + [({}, 'b')] + [(1, 'a')] * 9, dtype=[('a', int), ('b', object)])",
    ],
)
def test_two_values_of_a_library_that_differ_have_two_digests(expression: str) -> None:
    names = {name: pytest.importorskip(name) for name in ("numpy", "pandas", "polars")}
    one, other, again = (value_of(expression.format(number), **names) for number in (1, 2, 1))
    assert one["kind"] in ("array", "table", "container"), one
    assert one["digest"] != other["digest"]
    assert one == again
    assert "sample" not in one


def test_what_begins_later_than_it_may_is_not_evaluated() -> None:
    rows: list[int] = []
    asked(1, -1)
    assert late_value_of("rows.append(1)", rows=rows)["type"] == "TimeoutError"
    assert rows == []
    value_of("rows.append(1)", rows=rows)
    assert rows == [1]


# --- groups ------------------------------------------------------------------------------


def told(*expressions: Any, shapes: bool = False) -> list[tuple[Message, Message]]:
    """Returns what tasks have told, each of which has one of these values."""
    return [
        (value_of("x", x=x) if not isinstance(x, dict) or "kind" not in x else x, {"task": str(place)})
        for place, x in enumerate(expressions)
    ]


def rows(*values: Any) -> list[tuple[str, str, int]]:
    answer = grouped(told(*values))
    assert answer["left_out"] == 0
    return [(group["value"]["shown"], group["mark"], group["count"]) for group in answer["groups"]]


def array(least: float, most: float, mean: float, **more: Any) -> Message:
    its = {
        "kind": "array",
        "type": "numpy.ndarray",
        "shown": "",
        "size": 6,
        "shape": [2, 3],
        "dtype": "float32",
    }
    measured = {"nan": 0, "inf": 0, "min": least, "max": most, "mean": mean}
    return {**its, **measured, "digest": f"{least}{most}{mean}", **more}


def error(text: str) -> Message:
    return {"kind": "error", "type": "ValueError", "shown": text, "digest": ""}


def test_errors_nan_other_types_and_outliers_come_first_then_the_largest() -> None:
    values = [0.5, 0.25, 0.5, 0.75, None, math.nan, error("ValueError: no"), 0.5, 90.0, 0.25, math.inf]
    assert rows(*values) == [
        ("ValueError: no", "error", 1),
        ("nan", "nan", 1),
        ("inf", "nan", 1),
        ("None", "shape", 1),
        ("90.0", "outlier", 1),
        ("0.5", "", 3),
        ("0.25", "", 2),
        ("0.75", "", 1),
    ]


def test_the_same_values_are_one_group_with_all_its_tasks() -> None:
    answer = grouped(told(1, 2, 1, 1))
    assert [[row["task"] for row in group["tasks"]] for group in answer["groups"]] == [["1"], ["0", "2", "3"]]
    assert (answer["tasks"], answer["numbers"]) == (4, {"count": 4, "min": 1, "median": 1, "max": 2})


@pytest.mark.parametrize(
    ("values", "outliers"),
    [
        ([1, 2], []),
        ([1, 1, 9], ["9"]),
        ([1, 2, 3], []),
        ([1, 2, 3, 4, 5, 60], ["60"]),
        ([1.0, 1.1, 0.9, 1.05, 0.95, -3.0], ["-3.0"]),
        ([5, 5, 5, 5, 6], ["6"]),
        # More than half are the same, but for the last digit of a float.
        ([0.3, 0.3, 0.1 + 0.2], []),
        ([1e308, -1e308, 1e308, 1e308], ["-1e+308"]),
        # Half and half: neither lies far from the other.
        ([1, 1, 1, 9, 9, 9], []),
    ],
)
def test_a_number_is_an_outlier_by_the_modified_z_score(values: list[float], outliers: list[str]) -> None:
    assert [text for text, mark, _ in rows(*values) if mark == "outlier"] == outliers


def test_an_array_is_an_outlier_by_its_least_its_most_or_its_mean_and_else_by_its_shape() -> None:
    usual = [array(0.0, 1.0 + n / 100, 0.5) for n in range(5)]
    answer = grouped(told(*usual, array(0.0, 50.0, 0.5), array(0.0, 1.0, 0.5, shape=[3, 2])))
    assert [group["mark"] for group in answer["groups"]][:3] == ["shape", "outlier", ""]
    assert answer["groups"][1]["value"]["max"] == 50.0
    assert answer["numbers"] is None
    (nan, *_) = grouped(told(*usual, array(0.0, 1.0, 0.5, nan=2)))["groups"]
    assert nan["mark"] == "nan"


def test_without_a_most_common_type_all_are_marked_and_lengths_of_lists_count() -> None:
    assert [mark for _, mark, _ in rows(1, "a")] == ["shape", "shape"]
    assert rows([1], [2], [1, 2]) == [("[1, 2]", "shape", 1), ("[1]", "", 1), ("[2]", "", 1)]
    assert [mark for _, mark, _ in rows("a", "bcd")] == ["", ""]


def test_what_differs_where_nothing_is_shown_is_said() -> None:
    long = list(range(100))
    answer = grouped(told(long, [*long[:-1], 7], [1]))
    assert [group["alike"] for group in answer["groups"]] == [False, True, True]
    assert "digest" not in json.dumps(answer)


def test_groups_are_bounded_and_what_is_odd_stays() -> None:
    values = [*(f"{number:05} {'x' * 200}" for number in range(1_000)), math.nan]
    whole = len(json.dumps(grouped(told(*values))))
    answer = grouped(told(*values), whole // 10)
    assert answer["groups"][0]["mark"] == "nan"
    assert len(json.dumps(answer)) < 1.2 * whole / 10
    assert answer["left_out"] + len(answer["groups"]) == answer["tasks"] == 1_001


# --- drawn -------------------------------------------------------------------------------


def lines(*values: Any, expression: str = "loss", **more: Any) -> list[str]:
    tasks = [
        (value, {"task": "train", "pid": 800 + place, "node": "10.0.0.4", "thread": "MainThread"})
        for place, (value, _) in enumerate(told(*values))
    ]
    return [*drawn({"expression": expression, **grouped(tasks), "failed": [], **more})]


def test_values_are_drawn_with_their_tasks_and_marks_in_words() -> None:
    assert lines(0.5, 0.5, math.nan, 90.0, 0.5, 0.5) == [
        *("loss  in 6 stopped tasks: 0.5 to 90, median 0.5", "1  nan  <- NaN or infinity"),
        *("     train · 802@10.0.0.4", "1  90.0  <- far from the others", "     train · 803@10.0.0.4"),
        *("4  0.5", "     train · 800@10.0.0.4; train · 801@10.0.0.4; train · 804@10.0.0.4; 1 more"),
    ]


def test_each_kind_of_value_has_its_words() -> None:
    numbers = {"dtype": "float64", "min": 0.5, "max": 2, "mean": 1.23456789, "nan": 2, "inf": 0}
    columns = [{"name": "loss", **numbers}, {"name": "name", "dtype": "str"}]
    table = {
        "kind": "table",
        "type": "pandas.DataFrame",
        "shown": "",
        "shape": [1_000, 3],
        "digest": "",
        "nan": 2,
    }
    table["columns"] = columns
    for value, text in (
        ("abc", "'abc'  (str of 3)"),
        ([1.0, math.nan], "[1.0, nan]  (list of 2, 1 NaN)  <- NaN or infinity"),
        (None, "None"),
        (Named(1), f"named  ({__name__}.Named)"),
        (error("ValueError: no"), "ValueError: no  <- raises"),
        (
            array(0, 1, 0.5, nan=2, inf=1, sample=4, device="cuda:0"),
            "numpy.ndarray (2, 3) float32 on cuda:0: 0 to 1, mean 0.5, 2 NaN, 1 infinite, of a sample of 4"
            "  <- NaN or infinity",
        ),
        (array(0, 1, 0.5, shown="[0, 1]"), "numpy.ndarray (2, 3) float32: [0, 1], 0 to 1, mean 0.5"),
        (
            table,
            "pandas.DataFrame (1000, 3): loss float64 0.5 to 2, mean 1.23457, 2 NaN; name str; 1 more columns"
            "  <- NaN or infinity",
        ),
    ):
        assert lines(value)[1] == f"1  {text}"


def test_many_values_are_cut_and_nothing_reaches_the_terminal_raw() -> None:
    many = lines(*(f"{number}" for number in range(50)), left_out=3)
    assert many[-2:] == [
        "30 tasks with 30 other values (debug --compare --json has them)",
        "3 tasks left out: too many",
    ]
    who = {"task": "evil\x1b[2J", "pid": 1, "node": "n", "thread": "t\u202e"}
    failed = [{**who, "why": "it\nwaits", "waiting": True}] * 30
    rows = lines(error("E\x1b]0;x\x07\n"), expression="x\x1b[1m", failed=failed)
    assert not [row for row in rows if not row.isprintable()]
    assert rows[-2:] == [
        "evil\\x1b[2J · 1@n (t\\u202e) is not among them: it\\nwaits",
        "10 more tasks not among them",
    ]


# --- expressions -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "expression",
    ["loss", " len(rows) # all", "(a,\n b)", "f'{x!r}'", "(lambda: (yield))", "x" * LONGEST_EXPRESSION],
)
def test_an_expression_has_no_problem(expression: str) -> None:
    assert refusal_of(expression) == ""


@pytest.mark.parametrize(
    "text",
    [
        *("loss =", "x = 1", "import os", "1), (2", "yield", "await x", "\ud800", "x\0", ""),
        "x" * (LONGEST_EXPRESSION + 1),
        "(" * 5_000,
        "-" * 9_990 + "1",
    ],
)
def test_what_is_no_expression_has_one_and_no_warning_is_shown(text: str) -> None:
    assert refusal_of(text)
    assert refusal_of("1 is 1") == ""
