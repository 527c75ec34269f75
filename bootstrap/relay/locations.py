"""Answers DAP's breakpointLocations, where in a file breakpoints can be set, by debuggees' files."""

from __future__ import annotations

import asyncio
import sys

from bootstrap.dap.framing import Message
from bootstrap.relay.lines import Lines
from bootstrap.relay.paths import Paths
from bootstrap.relay.work import FAN_OUT, Work
from bootstrap.relay.worker import Worker

# The most lines of one answer.
MOST_LINES = 10_000
# The most debuggees that are asked for one file. All of a job have the same, and one answer does for them
# (`files`).
MOST_ASKED = 8


async def lines_of(path: str, workers: list[Worker], paths: Paths, work: Work) -> Lines | None:
    """Returns the lines of the editor's file, as the first debuggee that answers has it.

    It is None where no debuggee is known to have it. Waits for at most FAN_OUT seconds.
    """
    # Debuggees that have the file's package come first, then those that may have a file of the same path.
    packed: list[tuple[Worker, str]] = []
    others: list[tuple[Worker, str]] = []
    for worker in workers:
        remote = paths.remote(path, worker.layout)
        (others if remote == path else packed).append((worker, remote))
        if len(packed) >= MOST_ASKED:
            break
    asking = {
        work.start(worker.installed.lines(remote)) for worker, remote in [*packed, *others][:MOST_ASKED]
    }
    until = asyncio.get_running_loop().time() + FAN_OUT
    while asking:
        left = until - asyncio.get_running_loop().time()
        done, asking = await asyncio.wait(asking, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        if not done:
            break
        for each in done:
            lines: Lines | None = None if each.cancelled() or each.exception() else each.result()
            if lines is not None:
                return lines
    return None


def locations(lines: Lines, asked: Message) -> list[Message]:
    """Returns DAP's BreakpointLocation for each line with code in the range.

    A debugger of Python stops at lines: the location of a line is where its text begins.

    Args:
        asked: the arguments of the request, `line` with `column`, `endLine` and `endColumn`.
    """
    first: int = asked["line"]
    last: int = asked.get("endLine", first)
    # Without a column, DAP's range begins with the first, and ends with the last.
    begin, end = (first, asked.get("column", 1)), (last, asked.get("endColumn", sys.maxsize))
    code_lines = sorted(line for line in lines.code if begin <= (line, lines.column(line)) <= end)
    return [{"line": line} for line in code_lines[:MOST_LINES]]
