"""Text drawing of all stacks of a job, which the relay has merged into a tree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from rayside.plain import counted, line

# Limit of threads that are named at the end of a stack, and of line numbers of one function.
_MOST_NAMED = 3
# Limit of consecutive calls in libraries that are drawn.
_MOST_OF_LIBRARIES = 3


@dataclass(frozen=True)
class Row:
    """Line of the drawing.

    Attributes:
        text: the whole line.
        name: the line without file and line numbers.
        function: the relay's data of the function in this line; None for other lines.
    """

    text: str
    name: str
    function: Mapping[str, Any] | None = None


def drawn(answer: Mapping[str, Any]) -> Iterator[str]:
    """Draws the relay's answer to `stacks`, line by line."""
    return (row.text for row in rows(answer))


def rows(answer: Mapping[str, Any]) -> Iterator[Row]:
    """Draws the relay's answer to `stacks`, starting at the outermost user functions.

    Threads outside of user functions are only counted.
    """
    processes, threads = answer["processes"], answer["threads"]
    yield _remark(f"{counted(threads, 'thread')} of {counted(processes, 'process', 'processes')}")
    roots, elsewhere = _own(answer["stacks"])
    for root in sorted(roots, key=lambda node: -node["threads"]):
        yield from _node(root, "", "")
    if elsewhere:
        yield _remark(f"{counted(elsewhere, 'more thread')} in no code of yours (--json has them)")
    if answer["left_out"]:
        yield _remark(f"{counted(answer['left_out'], 'thread')} left out: too many")
    for process in answer["unanswered"]:
        yield _remark(f"{line(process['task'])} is not among them: {line(process['why'])}")


def _remark(text: str) -> Row:
    return Row(text, text)


def _own(nodes: Sequence[Mapping[str, Any]]) -> tuple[list[Mapping[str, Any]], int]:
    """Returns the outermost user functions, and the number of threads outside of these."""
    roots, elsewhere = [], 0
    for node in nodes:
        if node["own"]:
            roots.append(node)
            continue
        inner, others = _own(node["calls"])
        roots += inner
        elsewhere += others + len(node["here"])
    return roots, elsewhere


def _node(node: Mapping[str, Any], mark: str, indent: str) -> Iterator[Row]:
    """Draws a function and its calls: a chain without a fork line by line, each fork as branches."""
    chain = [node]
    while len(chain[-1]["calls"]) == 1 and not chain[-1]["here"]:
        chain += chain[-1]["calls"]
    for own, group in groupby(chain, key=lambda each: bool(each["own"])):
        run = [_row(each) for each in group]
        if not own and len(run) > _MOST_OF_LIBRARIES:
            run[1:-1] = [_remark(f"...  {len(run) - 2} calls in libraries")]
        for row in run:
            yield Row(f"{mark}{row.text}", f"{mark}{row.name}", row.function)
            mark = indent
    last = chain[-1]
    calls = last["calls"]
    if last["here"]:
        yield _remark(f"{indent}{'│' if calls else ' '}    {_named(last['here'])}")
    for call in calls:
        branch, below = ("└─ ", "   ") if call is calls[-1] else ("├─ ", "│  ")
        yield from _node(call, indent + branch, indent + below)


def _row(node: Mapping[str, Any]) -> Row:
    lines = ", ".join(
        f":{number}" + (f" ({count})" if len(node["lines"]) > 1 else "")
        for number, count in node["lines"][:_MOST_NAMED]
    )
    lines += ", ..." if len(node["lines"]) > _MOST_NAMED else ""
    odd = "  <- the odd one out" if node["odd"] else ""
    name = f"{node['threads']}  {line(node['function'])}"
    return Row(f"{name}  {line(node['file'])}{lines}{odd}", f"{name}{odd}", node)


def _named(threads: Sequence[Mapping[str, Any]]) -> str:
    names = [
        line(thread["task"])
        + ("" if thread["thread"] == "MainThread" else f" ({line(thread['thread'])})")
        + (", stopped" if thread["stopped"] else "")
        for thread in threads[:_MOST_NAMED]
    ]
    more = len(threads) - len(names)
    return "; ".join(names) + (f"; {more} more" if more else "")
