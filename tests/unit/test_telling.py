"""Tests what a debuggee tells of prints: which of a long print, and each thread's share."""

from __future__ import annotations

import pytest

from bootstrap.hook.evaluated.telling import AT_ONCE, LONGEST_PRINT, RATE, Print, Shares, cut
from tests.unit.test_relay_process import Clock


def passed(shares: Shares, taker: str, count: int) -> int:
    return sum(shares.passes(taker, 1) for _ in range(count))


def test_one_alone_has_half_at_once_and_the_whole_rate_in_the_long_run() -> None:
    clock = Clock()
    shares = Shares(RATE, AT_ONCE, clock)
    assert passed(shares, "one", 10_000) == AT_ONCE / 2
    told = []
    for _ in range(100):
        clock.now += 1
        told.append(passed(shares, "one", 10_000))
    assert sum(told[50:]) / 50 == pytest.approx(RATE, rel=0.05)


def test_who_takes_little_gets_it_beside_any_number_who_take_all() -> None:
    clock = Clock()
    shares = Shares(RATE, AT_ONCE, clock)
    for tick in range(300):
        clock.now += 0.1
        for number in range(10):
            passed(shares, f"greedy {number}", 100)
        if tick > 50 and not tick % 10:
            assert passed(shares, "modest", 2) == 2


def printed(*pieces: str, most_lines: int = 500) -> tuple[str, int]:
    print_ = Print("stdout", "work", None)
    for piece in pieces:
        print_.add(piece)
    print_.is_ended = pieces[-1].endswith("\n")
    return print_.shown(most_lines)


@pytest.mark.parametrize(
    ("pieces", "shown", "left_out"),
    [
        (["a", " ", "1", "\n"], "a 1", 0),
        (["two\nlines", "\n"], "two\nlines", 0),
        (["\n"], "", 0),
        (["a\n\n"], "a\n", 0),
        (["without an end"], "without an end", 0),
        (["\rstep 1", "\rstep 2", "\rstep 3\n"], "\rstep 3", 0),
        (["kept\n", "\rstep 1", "\rstep 2"], "kept\n\rstep 2", 0),
        (["dos\r\n"], "dos\r", 0),
        (["x" * LONGEST_PRINT + "yz", "\n"], "x" * LONGEST_PRINT + "... (3 more characters)", 0),
        (["a\n" + "x" * LONGEST_PRINT, "\nb\n"], "a", 2),
        (["1\n2\n3\n4\n5", "\n"], "1\n2\n3", 2),
        (["1\n2\n3\n4\n5"], "1\n2\n3", 2),
        (["1\n2\n3\n"], "1\n2\n3", 0),
    ],
)
def test_a_print_is_kept_whole_or_what_is_left_out_is_counted(
    pieces: list[str], shown: str, left_out: int
) -> None:
    assert printed(*pieces, most_lines=3) == (shown, left_out)


def test_a_message_that_is_cut_says_how_much_is_missing() -> None:
    assert cut("abc", 3) == "abc"
    assert cut("abcdefgh", 3) == "abc... (5 more characters)"
