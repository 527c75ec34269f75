"""Source files of debuggees, read through their own debuggers: checksums, lines with code, their paths."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import sys
import time
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from rayside.dap.client import QUIETLY, Client
from rayside.dap.framing import Message
from rayside.errors import RequestFailed
from rayside.plain import line
from rayside.relay.connection import Connection, call
from rayside.worker.evaluated import line_table, own_files

_MOST_LINES = 10**6


@dataclass(frozen=True)
class Lines:
    """Describes the lines of one source, counted from 1.

    Attributes:
        code: the lines that have code of their own.
        statements: first and last of each statement that is spread over several, and has none in it.
        functions: first and last of each function.
        indents: how far each line is indented; 0 for an empty one.
    """

    code: frozenset[int]
    statements: tuple[tuple[int, int], ...]
    functions: tuple[tuple[int, int], ...]
    indents: tuple[int, ...]

    @classmethod
    def read(cls, document: object) -> Lines | None:
        """Reads what a debuggee answered (`line_table`); None where it is nothing of the kind."""
        if not isinstance(document, dict):
            return None
        lists: list[list[int]] = []
        for name in ("code", "statements", "functions", "indents"):
            numbers = document.get(name)
            if not isinstance(numbers, list) or not all(map(_is_line, numbers)):
                return None
            lists.append(numbers)
        code, statements, functions, indents = lists
        return cls(frozenset(code), _pairs(statements), _pairs(functions), tuple(indents))

    def nearest(self, line: int) -> int | None:
        """Returns the line where a breakpoint on `line` stops: that one, one of its statement, or the next
        with code of the same function; None where there is none."""
        if line in self.code:
            return line
        for first, last in self.statements:
            if first <= line <= last:
                return min((at for at in self.code if first <= at <= last), default=None)
        after = sorted(at for at in self.code if line < at)
        function, *functions = self._functions([line, *after])
        at = next((at for at, its in zip(after, functions, strict=True) if its == function), None)
        if at is None or function is not None:
            return at
        # A comment at the end of a function is not the next function's.
        return at if self._indent(line) <= self._indent(at) else None

    def column(self, line: int) -> int:
        """Returns the column at which the text of a line begins, counted from 1."""
        return self._indent(line) + 1

    def _indent(self, line: int) -> int:
        return self.indents[line - 1] if 0 < line <= len(self.indents) else 0

    def _functions(self, lines: Iterable[int]) -> Iterator[tuple[int, int] | None]:
        """Yields, for lines in ascending order, the innermost function whose body each is in."""
        later, begun = sorted(self.functions, reverse=True), []
        for at in lines:
            while later and later[-1][0] < at:
                begun.append(later.pop())
            while begun and begun[-1][1] < at:
                begun.pop()
            yield begun[-1] if begun else None


def _pairs(numbers: list[int]) -> tuple[tuple[int, int], ...]:
    return tuple(zip(numbers[::2], numbers[1::2], strict=False))


def _is_line(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and 0 <= number <= _MOST_LINES


# The most lines of one answer.
MOST_LOCATIONS = 10_000


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
    return [{"line": line} for line in code_lines[:MOST_LOCATIONS]]


# Packages are named by the hash of what is in them, so their files never change.
_PACKAGE = re.compile(r"/(?:working_dir|py_modules)_files/(_ray_pkg_[^/]+/.+)$")
# Seconds for which any other file is taken as unchanged: many debuggees are asked for it at once.
_FRESH = 5.0
# Seconds to wait for what another debuggee was asked for already; each answers within milliseconds.
_WAITING = 0.2


@dataclass(frozen=True)
class File:
    """Describes a file; `lines` is None where it is not a Python source."""

    sha256: str
    lines: Lines | None


class Files:
    """Keeps what was read; every debuggee that unpacked the same package has the same files."""

    def __init__(self) -> None:
        self._read: dict[Hashable, tuple[float, asyncio.Future[File | None]]] = {}

    async def read(self, client: Client, node: str, path: str, *, timeout: float) -> File | None:
        """Returns the file, None where there is none; `timeout` is in seconds.

        Raises:
            RequestFailed, DebuggerGone: as `Client.request`.
        """
        package = _PACKAGE.search(path)
        key: Hashable = package[1] if package else (node, path)
        since, reading = self._read.get(key, (0.0, None))
        if reading is not None and (package or time.monotonic() - since < _FRESH):
            # The debuggee that was asked may be frozen, or have ended.
            await asyncio.wait({reading}, timeout=_WAITING)
            if reading.done() and not reading.cancelled() and reading.exception() is None:
                return reading.result()
        reading = asyncio.ensure_future(_read(client, path, timeout))
        self._read[key] = (time.monotonic(), reading)
        reading.add_done_callback(lambda done: self._done(key, done))
        return await asyncio.shield(reading)

    def _done(self, key: Hashable, reading: asyncio.Future[File | None]) -> None:
        failed = reading.cancelled() or reading.exception() is not None
        if failed and self._read.get(key, (0.0, None))[1] is reading:
            del self._read[key]

    def clear(self) -> None:
        self._read.clear()


def sha256_of(path: str) -> str | None:
    """Returns the SHA-256, in hex, of a file of this machine; None where it can't be read."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 (the path is the editor's string)
            return hashlib.sha256(file.read()).hexdigest()
    except (OSError, ValueError):
        return None


async def _read(client: Client, path: str, timeout: float) -> File | None:
    expression = call(line_table.answer, path)
    answer = await client.request("evaluate", {"expression": expression, "context": QUIETLY}, timeout=timeout)
    text = str(answer.get("result", ""))
    try:
        document = json.loads(text) if len(text) <= line_table.LONGEST_ANSWER else None
    except (ValueError, RecursionError) as error:
        raise RequestFailed(f"{path} can't be read: {error}", hint="Try again.") from error
    if not isinstance(document, dict) or not isinstance(document.get("sha256"), str):
        return None
    return File(document["sha256"], Lines.read(document.get("lines")))


# The most characters of a path.
_LONGEST_PATH = 4096
# What a breakpoint says, by the answer's kind; `{}` is the debuggee's path.
_NOTES = {
    "same": "Set in {}, which the task runs: its text is the same.",
    "likely": "Set in {}, which the task runs: the package and its name are the same, its text is unknown.",
    "differs": "The task runs {}, whose text is another: install this one there, or open that file,"
    " or map its folder with pathMappings.",
    "several": "The task has it more than once: {}. Map the folder of the right one with pathMappings.",
}


async def find_installed(
    connection: Connection, wanted: Mapping[str, str], *, timeout: float
) -> dict[str, tuple[str, str]]:
    """Returns, by the editor's path, the debuggee's, empty where none is certain, and what to say of it.

    `wanted` is as in `find` of evaluated/own_files.py. Raises RequestFailed, DebuggerGone.
    """
    answers = await connection.ask(timeout, own_files.find, {**wanted})
    found: dict[str, tuple[str, str]] = {}
    for path, answer in answers.items() if isinstance(answers, dict) else ():
        kind, files = answer if isinstance(answer, tuple) and len(answer) == 2 else ("", [])
        if not (isinstance(kind, str) and isinstance(files, list)):
            continue
        files = [each for each in files if isinstance(each, str) and len(each) <= _LONGEST_PATH]
        if path in wanted and kind in _NOTES and files:
            note = _NOTES[kind].format(line(", ".join(files), _LONGEST_PATH))
            found[path] = files[0] if kind in ("same", "likely") else "", note
    return found
