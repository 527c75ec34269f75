"""Text drawing of source, stack, variables and tasks for the terminal debugger; it prints nothing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from rayside.client.events import Stop
from rayside.client.stops import Frame
from rayside.plain import line

_WIDEST = 400  # characters of one variable's value


def source(
    text: str, current: int, *, first: int, last: int, breakpoints: Collection[int] = ()
) -> list[tuple[str, bool]]:
    """Draws lines `first` to `last` (from 1, both included), with `->` at `current` and `B` at breakpoints.

    Returns:
        Each line, and whether it is the current one.
    """
    lines = text.splitlines()
    width = len(str(min(last, len(lines))))
    drawn = []
    for number in range(max(1, first), min(last, len(lines)) + 1):
        mark = "->" if number == current else "B " if number in breakpoints else "  "
        drawn.append((f"{mark} {number:>{width}}  {lines[number - 1]}".rstrip(), number == current))
    return drawn


def stack(frames: Sequence[Frame], selected: int) -> str:
    """Draws one line for each frame, the innermost first."""
    rows = [
        line(frame.function if frame.is_label else f"{n}  {frame.function}  {frame.path}:{frame.line}")
        for n, frame in enumerate(frames)
    ]
    return "\n".join(f"{'->' if index == selected else '  '} {row}" for index, row in enumerate(rows))


def variables(values: Mapping[str, str]) -> str:
    if not values:
        return "no variables here"
    width = min(24, max(len(name) for name in values))
    return "\n".join(f"  {name:<{width}} = {_cut(line(value))}" for name, value in sorted(values.items()))


def tasks(stops: Sequence[Stop], current: Stop | None, title: Callable[[Stop], str]) -> str:
    """Draws the numbered list for `task N`; `title` returns a task's name."""
    return "\n".join(
        f"{'->' if stop is current else '  '} {number}  {line(title(stop))}  stopped ({line(stop.reason)})"
        for number, stop in enumerate(stops, 1)
    )


def _cut(value: str) -> str:
    return value if len(value) <= _WIDEST else f"{value[:_WIDEST]}... (`p NAME` shows it all)"
