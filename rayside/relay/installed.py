"""Settings of one debuggee: breakpoints, exception filters, reports of what it prints."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

from rayside.errors import RequestFailed
from rayside.relay.breakpoint_state import Result
from rayside.relay.connection import DETACHING, SOON, Connection
from rayside.relay.desired import Desired
from rayside.relay.source_files import File, Files, Lines
from rayside.relay.stop_points import Breakpoint, FunctionBreakpoint, LineBreakpoint
from rayside.worker import tracing
from rayside.worker.evaluated import by_value, compiled, exceptions, functions, prints, reached, task_starts

_SWITCH = "RAYSIDE_COMPILED_BREAKPOINTS"  # in the relay's environment; 0 leaves it all to pydevd
NO_FILE = (
    "No task that is here now has this file, in its working_dir or py_modules, or installed;"
    " it is set in each that comes and has it."
)
NO_FUNCTION = "No task has loaded a function of this name so far; it is set in each that does."


class Tracing:
    """Turns a debuggee's tracing off and on, whichever of `submit --debug` and Ray opened its port.

    It calls functions of rayside/worker/tracing.py there. They are harmless in every process that debugpy is
    in, on every Python, however often they are called.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._awake: bool | None = None
        self._compiles = False  # whether it decides by itself

    async def notice_lines(self) -> None:
        """Makes it stop at breakpoints set from now on: they are compiled in, or else it is traced."""
        if os.environ.get(_SWITCH) == "0":
            await self.wake()
            return
        if self._compiles or self._awake:
            return
        compiles = await self._connection.ask(self._connection.patience, compiled.begin)
        self._compiles = compiles is True
        if compiles is False:
            self._awake = True
        await self.wake()

    async def wake(self) -> None:
        """Makes it trace its code, so that it stops at what is set."""
        await self._trace(True, self._connection.patience)

    async def sleep(self) -> None:
        """Lets its code run at full speed; a `breakpoint()` call stops all the same."""
        await self._trace(False, self._connection.patience)

    async def give_back(self) -> None:
        """Ends what we have begun: without us it runs at full speed."""
        if self._awake:
            await self._trace(False, DETACHING)

    def resumed(self) -> None:
        """Notes that a thread resumed: a `breakpoint()` call, or a step, has it trace its code, too."""
        self._awake = self._awake or None

    async def _trace(self, awake: bool, timeout: float) -> None:
        if self._awake is awake or (awake and self._compiles):
            return
        self._awake = awake
        with contextlib.suppress(RequestFailed):  # private interfaces: without them it is just slower
            await self._connection.tell(timeout, tracing.wake if awake else tracing.sleep)


class Installed:
    """Sets what editors ask for, and knows what is set.

    Args:
        key: stands for the debuggee in breakpoints' results.
        node_ip: the node on which its files lie.

    Attributes:
        tracing: whether it traces its code.
        notes: what to say of the breakpoints in one of its files.
    """

    def __init__(self, connection: Connection, files: Files, *, key: Hashable, node_ip: str) -> None:
        self.tracing = Tracing(connection)
        self._connection, self._files, self._key, self._node_ip = connection, files, key, node_ip
        self._setting = asyncio.Lock()  # what was asked for last is set last
        self._set: dict[str, list[tuple[int, Breakpoint]]] = {}  # debugpy's ids, by the debuggee's path
        self._set_functions: list[tuple[int, FunctionBreakpoint]] = []  # debugpy's ids
        self._missing: set[str] = set()  # files that it does not have, and breakpoints are to be set in
        self._awaited: set[str] = set()  # the missing files that it was told to await
        self.notes: dict[str, str] = {}
        self._by_value: dict[str, Lines] = {}  # the lines of its functions whose files it does not have
        # The keys of the breakpoints that it knows (`Breakpoint.point`), and of those to be forgotten.
        self._points: set[int] = set()
        self._stale: set[int] = set()
        self._filters: list[Breakpoint] = []  # the conditions of exception filters
        self._prints = False
        self._tasks: dict[int, tuple[str, str]] = {}  # those at whose first line it is to stop

    @property
    def _patience(self) -> float:
        return self._connection.patience

    async def changed(self, timeout: float) -> None:
        """Waits for at most so many seconds until what was asked for by now is set, or could not be."""
        if not self._setting.locked():
            return
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._setting.acquire(), timeout)
            self._setting.release()

    async def set_breakpoints(self, path: str, breakpoints: Sequence[LineBreakpoint]) -> None:
        """Makes these the breakpoints of its file `path`, and puts its answer for each in the results.

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
            # Without its answer in time they may be set all the same, and are to be taken back some day.
            self._set.setdefault(path, [])
            body = await self._connection.client.set_breakpoints(path, specs, timeout=self._patience)
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

    async def file(self, path: str) -> File | None:
        """Returns its file; None where it has none, or can't say. Raises as `Files.read`."""
        if not self._connection.has_package:
            return None
        return await self._files.read(self._connection.client, self._node_ip, path, timeout=self._patience)

    async def lines(self, path: str) -> Lines | None:
        """Returns the lines of its file, or of its functions that came by value; None where it has neither.

        Raises as `file`.
        """
        return self._lines_of(await self.file(path), path)

    def _lines_of(self, file: File | None, path: str) -> Lines | None:
        return file.lines if file is not None else self._by_value.get(path)

    async def _placed(
        self, path: str, breakpoints: Sequence[LineBreakpoint]
    ) -> list[tuple[LineBreakpoint, int]]:
        """Returns those that can be set, each with its line; the others get their result."""
        if not self._connection.has_package:  # debugpy says which
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
        """Makes it report functions that come by value from files that it does not have.

        Returns:
            The paths of files of which it has functions, and whose breakpoints are to be set once more.
        """
        if self._missing == self._awaited:
            return []
        paths = sorted(self._missing)
        tables = await self._connection.ask(self._patience, by_value.await_files, paths)
        self._awaited = {*paths}
        known = tables if isinstance(tables, dict) else {}
        return [path for path in paths if self._learns(path, known.get(path))]

    async def learn(self, path: str) -> bool:
        """Reads the lines of what came by value from that file; returns whether it may have breakpoints."""
        if path not in self._missing:
            return False
        return self._learns(
            path,
            await self._connection.ask(self._patience, by_value.table, path),
        )

    def _learns(self, path: str, table: object) -> bool:
        lines = Lines.read(table)
        if lines is None or self._by_value.get(path) == lines:
            return False
        self._by_value[path] = lines
        return True

    def hit(self, ids: object) -> list[int]:
        """Returns the ids of the editor's breakpoints for debugpy's."""
        if not isinstance(ids, list):
            return []
        known = [*self._set_functions, *(pair for pairs in self._set.values() for pair in pairs)]
        return [breakpoint_.id for inner, breakpoint_ in known if inner in ids]

    @property
    def paths(self) -> list[str]:
        """Returns the debuggee's files that breakpoints are set in."""
        return list(self._set)

    async def set_exceptions(self, desired: Desired) -> None:
        async with self._setting:
            filters = desired.exceptions
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

    async def set_functions(self, desired: Desired) -> None:
        """Sets the function breakpoints, and puts into their results whether it has such a function.

        Raises:
            RequestFailed, DebuggerGone: as `Client.request`.
        """
        async with self._setting:
            wanted = [breakpoint_ for breakpoint_ in desired.functions if not breakpoint_.problem]
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
            names = [breakpoint_.name for breakpoint_ in wanted]
            loaded = await self._connection.ask(self._patience, functions.are_loaded, names)
            if not decides:
                loaded = [True] * len(names)  # as debugpy says
            for breakpoint_, is_loaded in zip(
                wanted, loaded if isinstance(loaded, list) else [], strict=False
            ):
                breakpoint_.results[self._key] = Result(
                    is_loaded is True, 0, "" if is_loaded is True else NO_FUNCTION
                )

    async def give_back(self) -> None:
        """Takes back what would hold the debuggee up without us. Raises DebuggerGone."""
        with contextlib.suppress(RequestFailed):
            await self._tell_prints(False, DETACHING)
        if self._tasks:
            with contextlib.suppress(RequestFailed):
                await self._connection.tell(DETACHING, task_starts.expect, {})
        await self.tracing.give_back()

    async def set_prints(self, desired: Desired) -> None:
        """Turns reports of what it prints on or off. Raises RequestFailed, DebuggerGone."""
        await self._tell_prints(desired.prints, self._patience)

    async def _tell_prints(self, are_told: bool, timeout: float) -> None:
        if self._prints is are_told:
            return
        await self._connection.tell(timeout, prints.begin if are_told else prints.give_back)
        self._prints = are_told

    async def _set_points(self, breakpoints: Iterable[Breakpoint]) -> None:
        """Sends what these breakpoints decide by, before the debuggee is told to stop at them."""
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
        """Notes which breakpoints it need not know any more; it is told that with the next ones to know."""
        stale = self._points & (
            {breakpoint_.key for breakpoint_ in earlier} - {breakpoint_.key for breakpoint_ in now}
        )
        self._stale |= stale
        self._points -= stale

    async def expect_tasks(self, tasks: Callable[[], Mapping[int, tuple[str, str]]]) -> None:
        """Makes it stop at the first line of these tasks: as in `expect` of evaluated/task_starts.py.

        Raises RequestFailed, DebuggerGone.
        """
        if not tasks() and not self._tasks:
            return
        self._tasks = {**tasks()}  # as they are by now: what is sent last holds
        await self._connection.tell(self._patience, task_starts.expect, self._tasks)

    async def answer_thread(self, number: int, *answer: bool) -> None:
        """Resumes a thread that asked and waits; `answer` is for `ask` in evaluated/reached.py."""
        await self._connection.tell(SOON, reached.answered, number, *answer)
