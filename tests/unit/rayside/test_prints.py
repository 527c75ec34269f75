"""Tests what is sent of a long print, and that a stream whose prints are heard stays the program's own."""

from __future__ import annotations

from typing import Any

import pytest

from rayside.worker.evaluated.prints import LONGEST_PRINT, Print, _Tee
from rayside.worker.evaluated.reached import cut


class Stream:
    """Writes as programs' own streams do, with more than a text."""

    def __init__(self) -> None:
        self.written: list[tuple[str, bool]] = []

    def write(self, text: str, urgent: bool = False) -> int:
        self.written.append((text, urgent))
        return len(text)


class Prints:
    """Hears nothing."""

    def begun(self, *_: object) -> None:
        """Takes each print."""


def test_what_else_a_stream_takes_is_passed_on() -> None:
    stream, prints = Stream(), Prints()
    tee = _Tee(stream, "stdout", prints)  # type: ignore[arg-type]
    assert (stream.write("a", urgent=True), stream.write("b", True)) == (1, 1)
    tee.end()
    assert "write" not in vars(stream)
    stream.write("c")
    assert stream.written == [("a", True), ("b", True), ("c", False)]


def test_a_stream_gets_the_write_back_that_it_was_given() -> None:
    stream: Any = Stream()
    texts: list[str] = []
    stream.write = own = texts.append
    tee = _Tee(stream, "stdout", Prints())  # type: ignore[arg-type]
    stream.write("a")
    tee.end()
    assert stream.write is own
    assert texts == ["a"]


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
