"""Tests that the table of failures in the docs is what the tests produce and ask for."""

from __future__ import annotations

from tests.failures import jobs, pods
from tests.failures.failure import Failure, missed
from tests.failures.table import PAGE, with_tables

ALL = [*jobs.FAILURES, *pods.FAILURES]


def test_the_table_in_the_docs_is_that_of_the_tests() -> None:
    page = PAGE.read_text()
    assert with_tables(page) == page, "python -m tests.failures.table makes it anew"


def test_each_program_and_each_pod_has_a_row() -> None:
    assert {failure.name.partition(" ")[0] for failure in jobs.FAILURES} == {
        *(*jobs.PROGRAMS, *jobs.PLAIN, *jobs.COMMANDS),
        "the",
    }
    made = {document["metadata"]["name"] for document in pods.documents("image", "cluster", "node")}
    assert {failure.name for failure in pods.FAILURES} == made - {pods.HOLDER}


def test_no_two_failures_are_told_alike() -> None:
    assert len({failure.what for failure in ALL}) == len(ALL) >= 25


def test_a_finding_that_says_something_else_is_none() -> None:
    failure = Failure("x", "a way", "task-raised", "task f raised", "job x", "'seven'")
    said = {
        "id": "task-raised",
        "what": "task f raised",
        "where": "job x, f.py:1",
        "why": "no 'seven'",
        "hint": "go",
    }
    assert failure.told(said)
    for change in ({"id": "other"}, {"what": "task f raised it"}, {"where": ""}, {"why": ""}, {"hint": ""}):
        assert not failure.told({**said, **change})
    assert missed([failure], [said]) == ""
    assert '"untold": [\n  "x"' in missed([failure], [{**said, "why": ""}])
