"""Tests where breakpoints can be set, from what a debuggee says of its file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rayside.relay.source_files import MOST_LOCATIONS, Lines
from rayside.worker.evaluated import sources

SOURCE = """\
def work(x):

    # A comment.
    return (
        x +
        1)
print(work(1))
"""


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        ({"line": 1}, [1]),
        ({"line": 2}, []),
        ({"line": 1, "endLine": 7}, [1, 4, 5, 6, 7]),
        ({"line": 7, "endLine": 1}, []),
        ({"line": 4, "column": 5}, [4]),
        ({"line": 4, "column": 6, "endLine": 5}, [5]),
        ({"line": 4, "endLine": 5, "endColumn": 8}, [4]),
        ({"line": 4, "endLine": 5, "endColumn": 9}, [4, 5]),
        ({"line": 0, "endLine": 2**31 - 1}, [1, 4, 5, 6, 7]),
    ],
)
def test_locations_are_lines_with_code(arguments: dict[str, int], lines: list[int], tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(SOURCE)
    table = Lines.read(json.loads(sources.line_table(str(tmp_path / "a.py")))["lines"])
    assert table is not None
    assert table.locations(arguments) == [{"line": line} for line in lines]


def test_an_answer_is_bounded() -> None:
    table = Lines(frozenset(range(1, 3 * MOST_LOCATIONS)), (), (), ())
    places = table.locations({"line": 1, "endLine": 10**6})
    assert places == [{"line": line} for line in range(1, MOST_LOCATIONS + 1)]
