"""Draws what the terminal debugger shows: source, stack, variables, tasks. Gives text, prints nothing."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from bootstrap.debug.session import Stop
from bootstrap.debug.stops import Frame

_CURRENT, _HEADER, _PLAIN = "\x1b[1;33m", "\x1b[1m", "\x1b[0m"
_WIDEST = 400  # characters of one variable's value


def header(text: str, *, colour: bool) -> str:
    return f"{_HEADER}{text}{_PLAIN}" if colour else text


def source(
    text: str, current: int, *, first: int, last: int, colour: bool, breakpoints: Collection[int] = ()
) -> str:
    """Lines `first` to `last` (from 1, both included), with `->` at `current` and `B` at breakpoints."""
    lines = text.splitlines()
    width = len(str(min(last, len(lines))))
    drawn = []
    for number in range(max(1, first), min(last, len(lines)) + 1):
        mark = "->" if number == current else "B " if number in breakpoints else "  "
        line = f"{mark} {number:>{width}}  {plain(lines[number - 1])}".rstrip()
        drawn.append(f"{_CURRENT}{line}{_PLAIN}" if colour and number == current else line)
    return "\n".join(drawn)


def stack(frames: Sequence[Frame], selected: int) -> str:
    """One line a frame, innermost first."""
    return "\n".join(
        f"{'->' if index == selected else '  '} {index}  {frame.function}  {plain(frame.path)}:{frame.line}"
        for index, frame in enumerate(frames)
    )


def variables(values: Mapping[str, str]) -> str:
    if not values:
        return "no variables here"
    width = min(24, max(len(name) for name in values))
    return "\n".join(f"  {name:<{width}} = {_cut(plain(value))}" for name, value in sorted(values.items()))


def tasks(stops: Sequence[Stop], current: Stop | None) -> str:
    """The numbered list that `task N` chooses from."""
    return "\n".join(
        f"{'->' if stop is current else '  '} {number}  {plain(stop.title)}  stopped ({plain(stop.reason)})"
        for number, stop in enumerate(stops, 1)
    )


def plain(text: str) -> str:
    """Without what a terminal would obey: a task's values and names are not trusted with it."""
    return "".join(char if char.isprintable() or char in "\t\n" else f"\\x{ord(char):02x}" for char in text)


def _cut(value: str) -> str:
    return value if len(value) <= _WIDEST else f"{value[:_WIDEST]}... (`p NAME` shows it all)"
