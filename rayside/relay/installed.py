"""Settings of one debuggee: breakpoints, exception filters, reports of its output."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

from rayside.errors import RequestFailed
from rayside.plain import line
from rayside.relay.capabilities import ExceptionFilters
from rayside.relay.connection import DETACHING, SOON, Connection, Tracing
from rayside.relay.source_files import File, Files, Lines
from rayside.relay.stop_points import Breakpoint, FunctionBreakpoint, LineBreakpoint, Result
from rayside.worker.evaluated import exceptions, prints, reached, sources, stepped_calls, telling

NO_FILE = (
    "No task that is here now has this file, in its working_dir or py_modules, or installed;"
    " it is set in each that comes and has it."
)
# Limit in characters of a path.
_LONGEST_PATH = 4096
# Messages of breakpoints, by the kind of the debuggee's answer; `{}` is its path.
_NOTES = {
    "same": "Set in {}, which the task runs: its text is the same.",
    "likely": "Set in {}, which the task runs: the package and its name are the same, its text is unknown.",
    "differs": "The task runs {}, whose text is another: install this one there, or open that file,"
    " or map its folder with pathMappings.",
    "several": "The task has it more than once: {}. Map the folder of the right one with pathMappings.",
}
NO_FUNCTION = "No task has loaded a function of this name so far; it is set in each that does."


class Installed:
    """Breakpoints, exception filters and other settings of one debuggee.

    Args:
        key: the debuggee's key in results of breakpoints.
        node_ip: the node with the debuggee's files.

    Attributes:
        tracing: turns the debuggee's tracing on and off.
        notes: messages for breakpoints in the debuggee's files, by path.
    """

    def __init__(self, connection: Connection, files: Files, *, key: Hashable, node_ip: str) -> None:
        self.tracing = Tracing(connection)
        self._connection, self._files, self._key, self._node_ip = connection, files, key, node_ip
        self._setting = asyncio.Lock()  # keeps requests in order
        self._set: dict[str, list[tuple[int, Breakpoint]]] = {}  # debugpy's ids, by the debuggee's path
        self._set_functions: list[tuple[int, FunctionBreakpoint]] = []  # debugpy's ids
        self._missing: set[str] = set()  # files with breakpoints that it does not have
        self._awaited: set[str] = set()  # missing files that it was asked to await
        self.notes: dict[str, str] = {}
        self._by_value: dict[str, Lines] = {}  # lines of functions pickled by value, by path
        # Keys of breakpoints that the debuggee has (`Breakpoint.point`), and of those that it can delete.
        self._points: set[int] = set()
        self._stale: set[int] = set()
        self._filters: list[Breakpoint] = []  # the conditions of exception filters
        self._prints = False
        self._edits: dict[str, int] = {}  # hash of the text of each edited file
        self._tasks: dict[int, tuple[str, str]] = {}  # tasks at whose first line it is to stop

    @property
    def _patience(self) -> float:
        return self._connection.patience

    async def changed(self, timeout: float) -> None:
        """Waits for pending changes, for at most `timeout` seconds."""
        if not self._setting.locked():
            return
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._setting.acquire(), timeout)
            self._setting.release()

    async def set_breakpoints(self, path: str, breakpoints: Sequence[LineBreakpoint]) -> None:
        """Replaces the breakpoints of its file `path`, and puts its answers into the breakpoints' results.

        Raises:
            RequestFailed, DebuggerGone: as `Client.request`.
        """
        async with self._setting:
            if not breakpoints and path not in self._set:
                return
            self._missing.discard(path)
            placed = await self._placed(path, [each for each in breakpoints if not each.problem])
            if placed:
                await self.tracing.notice_lines()
            elif path not in self._set:
                return
            now = [breakpoint_ for breakpoint_, _ in placed]
            decides = self._connection.has_package
            specs = [breakpoint_.inner(line, decides=decides) for breakpoint_, line in placed]
            await self._set_points(now)
            # After a timeout they may be set nevertheless, so they have to be removed later.
            self._set.setdefault(path, [])
            arguments = {"source": {"path": path, "name": path.rpartition("/")[2]}, "breakpoints": specs}
            body = await self._connection.client.request("setBreakpoints", arguments, timeout=self._patience)
            self._replaced([earlier for _, earlier in self._set[path]], now)
            if not placed:
                del self._set[path]
                return
            self._set[path] = []
            for (breakpoint_, line), answer in zip(placed, body.get("breakpoints", []), strict=False):
                moved = f"moved to line {line}, the next with code" if line != breakpoint_.line else ""
                moved = " ".join(filter(None, [self.notes.get(path), moved]))
                verified = bool(answer.get("verified"))
                message = moved if verified else str(answer.get("message") or moved)
                breakpoint_.results[self._key] = Result(verified, answer.get("line") or line, message)
                self._set[path].append((answer.get("id", -1), breakpoint_))

    def edited(self, texts: Mapping[str, str]) -> None:
        """Records the texts that it runs in place of its files, by its paths."""
        self._edits |= {path: hash(text) for path, text in texts.items()}

    async def find(self, wanted: Mapping[str, str]) -> dict[str, str]:
        """Returns the debuggee's path of each of the editor's files that it certainly has; updates `notes`.

        `wanted` is as in `own_files` of evaluated/sources.py. Raises RequestFailed, DebuggerGone.
        """
        answers = await self._connection.ask(self._patience, sources.own_files, {**wanted})
        found: dict[str, str] = {}
        for path, answer in answers.items() if isinstance(answers, dict) else ():
            kind, files = answer if isinstance(answer, tuple) and len(answer) == 2 else ("", [])
            if not (path in wanted and isinstance(kind, str) and kind in _NOTES and isinstance(files, list)):
                continue
            if files := [each for each in files if isinstance(each, str) and len(each) <= _LONGEST_PATH]:
                own = files[0] if kind in ("same", "likely") else ""
                self.notes[own or path] = _NOTES[kind].format(line(", ".join(files), _LONGEST_PATH))
                found |= {path: own} if own else {}
        return found

    async def file(self, path: str) -> File | None:
        """Returns a file of the debuggee; None if it has none, or has no package. Raises as `Files.read`."""
        if not self._connection.has_package:
            return None
        return await self._files.read(self._connection, self._node_ip, path, self._edits.get(path))

    async def lines(self, path: str) -> Lines | None:
        """Returns the lines of its file, or of functions pickled by value; None if it has neither.

        Raises as `file`.
        """
        return self._lines_of(await self.file(path), path)

    def _lines_of(self, file: File | None, path: str) -> Lines | None:
        return file.lines if file is not None else self._by_value.get(path)

    async def _placed(
        self, path: str, breakpoints: Sequence[LineBreakpoint]
    ) -> list[tuple[LineBreakpoint, int]]:
        """Returns the breakpoints that can be set, each with its line; the others get a failed result."""
        if not self._connection.has_package:  # debugpy decides
            return [(breakpoint_, breakpoint_.line) for breakpoint_ in breakpoints]
        file = await self.file(path) if breakpoints else None
        if file is None and breakpoints:
            self._missing.add(path)
        lines = self._lines_of(file, path)
        placed: list[tuple[LineBreakpoint, int]] = []
        for breakpoint_ in breakpoints:
            line: int | None = breakpoint_.line
            if file is None and lines is None:
                line, message = None, self.notes.get(path, NO_FILE)
            else:
                line = lines.nearest(breakpoint_.line) if lines is not None else line
                message = "There is no code at this line, nor below it in its function."
            if line is None:
                breakpoint_.results[self._key] = Result(False, breakpoint_.line, message)
            else:
                placed.append((breakpoint_, line))
        return placed

    async def await_missing(self) -> list[str]:
        """Makes the debuggee report functions that arrive pickled by value, from files that it does not have.

        Returns:
            The paths of files whose functions it has already, and whose breakpoints have to be set again.
        """
        if self._missing == self._awaited:
            return []
        paths = sorted(self._missing)
        tables = await self._connection.ask(self._patience, sources.await_files, paths)
        self._awaited = {*paths}
        known = tables if isinstance(tables, dict) else {}
        return [path for path in paths if self._learns(path, known.get(path))]

    async def learn(self, path: str) -> bool:
        """Reads the lines of functions pickled by value from a file; returns whether they are new."""
        if path not in self._missing:
            return False
        return self._learns(path, await self._connection.ask(self._patience, sources.table_by_value, path))

    def _learns(self, path: str, table: object) -> bool:
        lines = Lines.read(table)
        if lines is None or self._by_value.get(path) == lines:
            return False
        self._by_value[path] = lines
        return True

    def hit(self, ids: Sequence[int]) -> list[int]:
        """Returns the ids of the editor's breakpoints for debugpy's."""
        known = [*self._set_functions, *(pair for pairs in self._set.values() for pair in pairs)]
        return [breakpoint_.id for inner, breakpoint_ in known if inner in ids]

    @property
    def paths(self) -> list[str]:
        """Returns the debuggee's files with breakpoints."""
        return list(self._set)

    async def set_exceptions(self, filters: ExceptionFilters) -> None:
        async with self._setting:
            if filters.needs_tracing:
                await self.tracing.wake()
            conditions = filters.inner_conditions
            if conditions or filters.several:
                await self._connection.ask(self._patience, exceptions.stop_once)
            await self._connection.client.request(
                "setExceptionBreakpoints", filters.arguments, timeout=self._patience
            )
            if conditions:
                await self._set_points(filters.conditions.values())
                lacking = await self._connection.ask(self._patience, exceptions.set_conditions, conditions)
                filters.conditions_set(self._key, lacking)
            self._replaced(self._filters, filters.conditions.values())
            self._filters = list(filters.conditions.values())

    async def set_functions(self, breakpoints: Sequence[FunctionBreakpoint]) -> None:
        """Sets the function breakpoints; their results say whether the debuggee has such a function.

        Raises:
            RequestFailed, DebuggerGone: as `Client.request`.
        """
        async with self._setting:
            wanted = [breakpoint_ for breakpoint_ in breakpoints if not breakpoint_.problem]
            if wanted:
                await self.tracing.wake()
            decides = self._connection.has_package
            specs = [breakpoint_.inner(decides=decides) for breakpoint_ in wanted]
            await self._set_points(wanted)
            body = await self._connection.client.request(
                "setFunctionBreakpoints", {"breakpoints": specs}, timeout=self._patience
            )
            ids = [answer.get("id", -1) for answer in body.get("breakpoints") or []]
            self._replaced([breakpoint_ for _, breakpoint_ in self._set_functions], wanted)
            self._set_functions = list(zip(ids, wanted, strict=False))
            if not wanted:
                return
            names = [breakpoint_.function for breakpoint_ in wanted]
            loaded = await self._connection.ask(self._patience, sources.are_loaded, names)
            if not decides:
                loaded = [True] * len(names)  # as debugpy reports
            answers = loaded if isinstance(loaded, list) else []
            for breakpoint_, is_loaded in zip(wanted, answers, strict=False):
                is_set = is_loaded is True
                breakpoint_.results[self._key] = Result(is_set, 0, "" if is_set else NO_FUNCTION)

    async def give_back(self) -> None:
        """Removes settings that would delay the debuggee without the relay. Raises DebuggerGone."""
        with contextlib.suppress(RequestFailed):
            await self.set_prints(False, DETACHING)
        if self._tasks:
            with contextlib.suppress(RequestFailed):
                await self._connection.tell(DETACHING, stepped_calls.expect, {})
        await self.tracing.give_back()

    async def set_prints(self, are_told: bool, timeout: float | None = None) -> None:
        """Turns reports of its output on or off. Raises RequestFailed, DebuggerGone."""
        if self._prints is not are_told:
            what = prints.begin if are_told else prints.give_back
            await self._connection.tell(timeout or self._patience, what)
            self._prints = are_told

    async def _set_points(self, breakpoints: Iterable[Breakpoint]) -> None:
        """Sends the conditions of these breakpoints, before the breakpoints themselves."""
        points = {
            breakpoint_.key: breakpoint_.point
            for breakpoint_ in breakpoints
            if breakpoint_.point is not None and breakpoint_.key not in self._points
        }
        if not points:
            return
        stale, self._stale = self._stale, set()
        await self._connection.tell(self._patience, reached.set_points, points, sorted(stale))
        self._points |= set(points)

    def _replaced(self, earlier: Iterable[Breakpoint], now: Iterable[Breakpoint]) -> None:
        """Records removed breakpoints; their keys are sent with the next conditions."""
        stale = self._points & (
            {breakpoint_.key for breakpoint_ in earlier} - {breakpoint_.key for breakpoint_ in now}
        )
        self._stale |= stale
        self._points -= stale

    async def expect_tasks(self, tasks: Callable[[], Mapping[int, tuple[str, str]]]) -> None:
        """Makes it stop at the first line of these tasks, as in `expect` of evaluated/stepped_calls.py.

        Raises RequestFailed, DebuggerGone.
        """
        if not tasks() and not self._tasks:
            return
        self._tasks = {**tasks()}  # the current ones: the last request counts
        await self._connection.tell(self._patience, stepped_calls.expect, self._tasks)

    async def answer_thread(self, number: int, *answer: bool) -> None:
        """Answers a thread that waits in `ask` of evaluated/telling.py; `answer` is its result."""
        await self._connection.tell(SOON, telling.answered, number, *answer)
