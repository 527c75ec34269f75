"""Tests that a stream whose prints are heard is the program's own all the same."""

from __future__ import annotations

from typing import Any

from rayside.worker.evaluated.prints import _Tee


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
        """Is called for each print."""


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
