"""Tests what is said of an expression before any debuggee gets it."""

from __future__ import annotations

import sys

import pytest

from rayside.dap.expressions import DEEPEST, LONGEST, problem_of, problem_of_message


@pytest.mark.parametrize(
    "text",
    [
        *("x > 3", "  x > (\n3) ", "ray.task == 'train'", "(n := n + 1) > 3", "items.pop()"),
        "x is 1",  # Python warns of it
        "{'a': [1, {2}]}",
        "",
        " ",
    ],
)
def test_an_expression_has_no_problem(text: str) -> None:
    assert problem_of(text) == ""


@pytest.mark.parametrize(
    ("text", "why"),
    [
        *((text, "invalid syntax") for text in ("x >", "x = 3", "import os", "yield")),
        ("f(x", "was never closed"),
        ("'x", "unterminated string literal"),
        ("x\x00", ""),
        ("'\ud800'", "characters that no program can have"),
    ],
)
def test_what_is_no_expression_says_why(text: str, why: str) -> None:
    problem = problem_of(text)
    assert problem
    assert why in problem


@pytest.mark.parametrize(
    "text",
    [
        "x > " + "1" * LONGEST + " >",
        "[" * (DEEPEST + 1) + ">",
        "-" * (LONGEST - 1) + "x",
        "not " * (LONGEST // 4 - 1) + "x",
        "lambda: " * (LONGEST // 8 - 1) + "x",
    ],
)
def test_of_what_is_too_large_to_be_compiled_here_nothing_is_said(text: str) -> None:
    assert problem_of(text) == ""


def test_of_a_syntax_that_a_newer_python_may_have_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    problem_of.cache_clear()
    newer = ["f'{x['a']}' ==", "t'{x}' ==", "Rf'{x}' =="]
    monkeypatch.setattr(sys, "version_info", (3, 11, 0))
    assert [problem_of(text) for text in newer] == [""] * 3
    assert problem_of("shift'x'")  # is none of them
    monkeypatch.setattr(sys, "version_info", (3, 14, 0))
    problem_of.cache_clear()
    assert all(problem_of(text) for text in newer)


@pytest.mark.parametrize(
    ("message", "why"),
    [
        ("x is {x}, twice {x * 2}", ""),
        ("{ {'a': 1}['a'] } of {d}", ""),
        ("nothing } in {} braces", ""),
        ("x is {x +}", "invalid syntax: x +"),
        ("x is {x!r}", "x!r"),
        ("x is {x", "a brace is not closed"),
        ("{a} {b} {c d}", "c d"),
    ],
)
def test_each_expression_of_a_message_is_looked_at(message: str, why: str) -> None:
    problem = problem_of_message(message)
    assert why in problem
    assert bool(problem) == bool(why)
