"""Tests what a debuggee tells of prints: whose lines, which of a long print, and each thread's share."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from bootstrap.hook.evaluated import reached, scope, telling
from bootstrap.hook.evaluated.telling import AT_ONCE, LONGEST_PRINT, RATE, Print, Shares, cut


class Clock:
    """Stands unless it is moved."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


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
    print_ = Print("stdout", "work", None, True)
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


Sent = list[dict[str, Any]]


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Iterator[Sent]:
    """Returns the bodies of what is sent, by a debuggee that has no Ray."""
    bodies: Sent = []

    def send(event: str, body: dict[str, Any]) -> None:
        assert event == telling.EVENT
        bodies.append(body)

    connected = SimpleNamespace(send=send, described=reached.described, task=lambda: "train")
    monkeypatch.setitem(sys.modules, "_rayside_reached", connected)
    monkeypatch.setitem(sys.modules, scope.MODULE, scope)
    yield bodies
    telling.choose("")
    assert telling.is_chosen()


def test_lines_of_a_task_that_is_not_chosen_are_counted_and_told(sent: Sent) -> None:
    telling.choose("ray.pid == 0")
    assert not telling.is_chosen()
    assert telling.hide(3)
    assert not telling.hide(4)  # whoever was first tells it
    telling.tell_hidden()
    assert sent == [{"number": 7, "text": "", "task": ""}]
    assert not telling.has_to_tell()
    telling.choose("ray.pid > 0 and ray.rank is None")
    assert telling.is_chosen()


def test_where_the_expression_raises_lines_are_told_and_that_once(sent: Sent) -> None:
    telling.choose("nobody == 3")
    assert telling.is_chosen()
    telling.tell_hidden()
    assert telling.is_chosen()
    telling.tell_hidden()
    assert sent == [{"number": 0, "text": "NameError: name 'nobody' is not defined", "task": "train"}]
