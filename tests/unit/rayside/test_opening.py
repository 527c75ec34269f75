"""Tests the answer of the job that opens debuggers in others: it comes from the cluster."""

from __future__ import annotations

import json

import pytest

from rayside.relay_actor.opening import ANSWER, BUSY, OPENED, Outcome, outcomes

ROW = {"worker_id": "a1", "result": OPENED, "why": "", "stack": ""}


def test_the_answer_is_one_line_of_what_is_printed() -> None:
    rows = [ROW, {"worker_id": "b2", "result": BUSY, "why": "it is in a call", "stack": "f (x.py:1)"}]
    printed = f"2026-11-23 INFO starting\n{ANSWER}{json.dumps(rows)}\nshutting down\n"
    assert outcomes(printed) == {
        "a1": Outcome("a1", OPENED),
        "b2": Outcome("b2", BUSY, "it is in a call", "f (x.py:1)"),
    }


def test_another_result_is_none() -> None:
    assert outcomes(ANSWER + json.dumps([{**ROW, "result": "root"}])) == {}


@pytest.mark.parametrize(
    "printed",
    [
        *("", "Traceback (most recent call last):", ANSWER, f"{ANSWER}{{", f"{ANSWER}7", f"{ANSWER}[7]"),
        f"{ANSWER}[{{}}]",
        ANSWER + json.dumps([{**ROW, "more": "x"}]),
        ANSWER + "[" * 200_000,
        ANSWER + json.dumps([{**ROW, "stack": "x" * 2_000_000}]),
    ],
    ids=lambda printed: printed[:30],
)
def test_what_is_no_answer_is_refused(printed: str) -> None:
    with pytest.raises(ValueError):
        outcomes(printed)
