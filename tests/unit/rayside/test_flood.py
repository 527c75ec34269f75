"""Tests the bound on debuggees' output, by a clock that stands unless it is moved."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from rayside.relay.reports import (
    ALL_AT_ONCE,
    EACH,
    EACH_AT_ONCE,
    ENDED,
    LASTING,
    WIDTH,
    Flood,
    left_out_line,
    logs_command,
)


class Clock:
    """Holds the seconds, and what is to be done at which of them."""

    def __init__(self) -> None:
        self.now = 100.0
        self.due: list[tuple[float, Callable[[], None]]] = []

    def __call__(self) -> float:
        return self.now

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        self.due.append((self.now + seconds, call))

    def move(self, seconds: float) -> None:
        self.now += seconds
        due, self.due = self.due, []
        for at, call in due:
            if at <= self.now:
                call()
            else:
                self.due.append((at, call))


class Debuggee:
    """A debuggee of which only its identity matters."""


ONE, TWO = Debuggee(), Debuggee()


def flood() -> tuple[Flood[Debuggee], Clock, list[dict[Debuggee, int]]]:
    clock = Clock()
    reports: list[dict[Debuggee, int]] = []

    def tell(left_out: Mapping[Debuggee, int]) -> None:
        reports.append(dict(left_out))

    return Flood(tell, clock=clock, later=clock.later), clock, reports


def passed(output: Flood[Debuggee], debuggee: Debuggee, count: int, text: str = "a line\n") -> int:
    return sum(output.passes(debuggee, text) for _ in range(count))


def test_ordinary_output_passes_and_nothing_is_told() -> None:
    output, clock, reports = flood()
    for _ in range(100):
        assert passed(output, ONE, 100) == 100
        clock.move(1)
    assert (reports, clock.due) == ([], [])


def test_a_flood_is_cut_and_what_was_left_out_is_counted_and_told_once() -> None:
    output, clock, reports = flood()
    assert passed(output, ONE, 50_000) == EACH_AT_ONCE
    assert reports == []
    clock.move(ENDED)
    assert reports == [{ONE: 50_000 - EACH_AT_ONCE}]
    clock.move(10 * ENDED)
    assert len(reports) == 1


def test_a_flood_that_lasts_passes_at_the_rate_and_is_told_seldom() -> None:
    output, clock, reports = flood()
    left_out = 50_000 - passed(output, ONE, 50_000)
    for _ in range(int(3 * LASTING)):
        clock.move(1)
        assert passed(output, ONE, 5_000) == EACH
        left_out += 5_000 - int(EACH)
    clock.move(ENDED)
    assert 3 <= len(reports) <= 4
    assert sum(report[ONE] for report in reports) == left_out


def test_two_bursts_are_told_as_two() -> None:
    output, clock, reports = flood()
    for _ in range(2):
        output.leave_out(ONE, 7)
        clock.move(1)
        output.leave_out(ONE, 1)
        clock.move(1)
        clock.move(ENDED)
    assert reports == [{ONE: 8}, {ONE: 8}]


def test_the_flood_of_one_debuggee_leaves_room_for_the_others() -> None:
    output, _, _ = flood()
    passed(output, ONE, 100_000)
    assert passed(output, TWO, 100) == 100


def test_all_together_are_bounded_too_and_told_in_one() -> None:
    output, clock, reports = flood()
    crowd = [Debuggee() for _ in range(1_000)]
    shown = sum(passed(output, each, 100) for each in crowd)
    assert 0.9 * ALL_AT_ONCE < shown <= ALL_AT_ONCE
    clock.move(ENDED)
    assert len(reports) == 1
    assert sum(reports[0].values()) == 100_000 - shown


@pytest.mark.parametrize(
    ("count", "text", "most"),
    [(100, "x" * WIDTH * 100, EACH_AT_ONCE / 100), (50_000, "x", EACH_AT_ONCE)],
    ids=["few long lines", "pieces without an end of line"],
)
def test_what_is_no_ordinary_line_is_bounded_as_well(count: int, text: str, most: float) -> None:
    assert passed(flood()[0], ONE, count, text) == most


def test_what_users_read() -> None:
    text = left_out_line([("work · 7@n", 1234)], ["raysubmit_7"])
    assert text.startswith("work · 7@n: 1,234 more lines were left out")
    assert text.endswith(": `logs --job raysubmit_7`")
    assert left_out_line([("work · 7@n", 1)], []).startswith("work · 7@n: 1 more line was left out")
    assert left_out_line([("a", 1000), ("b", 1)], ["j"]).startswith("2 tasks: 1,001 more lines were left out")


@pytest.mark.parametrize("submissions", [[], [""], ["one", "two"], ["; rm -r ."], ["a\x1b[2J"], ["x" * 200]])
def test_only_one_job_with_a_plain_name_is_in_the_command(submissions: list[str]) -> None:
    assert logs_command(submissions) == "`logs`"
