"""Keeps the relay's side of one debuggee: its connection, what is set in it, and where it is stopped."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any, Protocol

from bootstrap.dap.client import QUIETLY, Client
from bootstrap.dap.debuggee import Debuggee
from bootstrap.dap.framing import Message
from bootstrap.errors import DebuggerGone, RequestFailed
from bootstrap.relay import tracing
from bootstrap.relay.desired import Desired
from bootstrap.relay.files import File, Files
from bootstrap.relay.lines import Lines
from bootstrap.relay.paths import Layout
from bootstrap.relay.results import Result
from bootstrap.relay.sent import BY_VALUE, EXCEPTIONS, INTERRUPTION, PRINTS, REACHED, Sent
from bootstrap.relay.stop_points import Breakpoint, FunctionBreakpoint, LineBreakpoint

# Seconds for a debuggee's answer to an editor's request, before the debuggee counts as frozen.
PATIENCE = 15.0
# Seconds for what a debuggee answers within milliseconds unless it is frozen.
SOON = 2.0
# Seconds that an evaluation has to end by itself before its thread resumes.
GRACE = 0.5
# Seconds for each answer while the relay detaches: the cluster is to run on.
DETACHING = 0.6
# Seconds for what is in flight when the relay detaches: whoever leaves earlier spoils the debuggee (see
# `client`), and while a thread evaluates, it can't resume anyway.
DRAINING = 60.0
# Seconds for a debuggee that does not answer while it is attached to. Waiting costs nobody anything, and
# detaching in haste would spoil it.
ATTACHING = 600.0

NO_FILE = (
    "No task that is here now has this file, in its working_dir or py_modules;"
    " it is set in each that comes and has it."
)
NO_FUNCTION = "No task has loaded a function of this name so far; it is set in each that does."

# Without a mapping, debugpy says that a file which the editor can't see isn't there; with one that
# matches nothing, it serves the text.
_NOWHERE = {"localRoot": "/rayside/nowhere", "remoteRoot": "/rayside/nowhere"}
_FOLDERS = (
    "(lambda os, sys: {p: [] if 'working_dir_files' in p else os.listdir(p)"
    " for p in dict.fromkeys([*sys.path, os.getcwd()])"
    " if ('/working_dir_files/' in p or '/py_modules_files/' in p) and os.path.isdir(p)}"
    ")(__import__('os'), __import__('sys'))"
)
# This asks only a Ray that is loaded already: importing it into a process that isn't Ray's costs seconds.
_JOB = "__import__('sys').modules['ray'].get_runtime_context().get_job_id()"


class NotWanted(Exception):
    """Says that the debuggee is of another job than any editor asked for."""


Configure = Callable[["Worker"], Awaitable[None]]


class Holder(Protocol):
    """Owns a debuggee: a debug session."""

    def event(self, worker: Worker, message: Message) -> None:
        """Takes an event of the debuggee."""

    def attached_to(self, worker: Worker) -> None:
        """Notes that the debuggee takes requests now."""

    def refused(self, worker: Worker, error: Exception) -> None:
        """Notes that the debuggee could not be attached to, or that no editor asked for its job."""

    def end(self, worker: Worker) -> None:
        """Notes that the debuggee's connection has ended."""


class Worker:
    """Represents a debuggee, from the moment it was found until it has ended or the relay has detached.

    Attributes:
        debuggee: its description, as discovery last gave it, with its task's name as the last stop gave it.
        ready: set once it takes requests.
        detached: whether it has ended, or is being detached from.
        stops: the body of the `stopped` event of each stopped thread.
        resumes: how often each thread was resumed; what is known of its stop holds only for the same number.
        tasks: the name of each stopped thread's task, as the thread itself gave it.
        since: the moment of each thread's stop, ISO 8601 in UTC.
        named: the stopped threads whose task is known.
        reported: the stopped threads that the editor knows of.
        threads: the threads that an editor has a row for.
        others: the names of its Python threads when one of them last stopped.
        resuming: the request that resumes a thread, by thread, until it is answered.
        layout: where the debuggee's files lie.
        main_thread: debugpy's number of the main thread.
        holder: the session that the debuggee belongs to now.
        revision: the revision of the editor's breakpoints that was set last.
        late: whether something is to be set once it answers again.
    """

    def __init__(self, debuggee: Debuggee, files: Files, holder: Holder) -> None:
        self.debuggee = debuggee
        self.holder = holder
        self.ready = asyncio.Event()
        self.detached = False
        self.stops: dict[int, Message] = {}
        self.resumes: Counter[int | None] = Counter()
        self.tasks: dict[int, str] = {}
        self.since: dict[int, str] = {}
        self._resumed_at = 0.0  # the moment, of `time.monotonic`, in which it was resumed last
        self.named: set[int] = set()
        self.reported: set[int] = set()
        self.threads: set[int] = set()
        self.others: dict[int, str] = {}
        self.resuming: dict[int, asyncio.Future[Any]] = {}
        self.layout = Layout()
        self.main_thread = 0
        self.revision = 0
        self.late = False
        self._files = files
        self._client: Client | None = None
        self._setting = asyncio.Lock()
        self._set: dict[str, list[tuple[int, Breakpoint]]] = {}  # debugpy's ids, by the debuggee's path
        self._set_functions: list[tuple[int, FunctionBreakpoint]] = []  # debugpy's ids
        self._missing: set[str] = set()  # files that it does not have, and breakpoints are to be set in
        self._awaited: set[str] = set()  # the missing files that it was told to await
        self._by_value: dict[str, Lines] = {}  # the lines of its functions whose files it does not have
        self._sent: set[Sent] = set()
        # The keys of the breakpoints that it knows (`Breakpoint.point`), and of those to be forgotten.
        self._points: set[int] = set()
        self._stale: set[int] = set()
        self._filters: list[Breakpoint] = []  # the conditions of exception filters
        self._prints = False
        self._awake: bool | None = None
        self._evaluations: set[asyncio.Future[Message]] = set()

    @property
    def client(self) -> Client:
        """Returns the connection. Raises DebuggerGone before it is attached."""
        if self._client is None:
            raise DebuggerGone(f"{self.debuggee.title} is not attached", hint="Wait for it to be listed.")
        return self._client

    async def attach(
        self, options: Mapping[str, Any], claim: Callable[[Worker], Awaitable[Configure]]
    ) -> None:
        """Attaches.

        Args:
            options: debugpy's `attach` arguments.
            claim: returns, once the debuggee answers, what sets breakpoints in it before it runs.

        Raises:
            AttachFailed: the debuggee has another client.
            DebuggerGone: it has ended, or did not answer in time.
            NotWanted: no editor asked for its job; it waits on, for somebody else.
        """
        debuggee = self.debuggee
        client = self._client = await Client.connect(
            debuggee.host, debuggee.port, on_event=self._event, of_stranger=True
        )

        async def configure_debuggee() -> None:
            configure = await claim(self)
            folders = await self._literal(_FOLDERS, timeout=ATTACHING)
            self.layout = Layout.of(folders) if isinstance(folders, dict) else Layout()
            await self._find_main_thread()
            await configure(self)

        try:
            await client.attach(
                path_mappings=[_NOWHERE],
                options=options,
                configure=configure_debuggee,
                exception_filters=None,
                prove=debuggee.prove,
                timeout=ATTACHING,
            )
        except BaseException:
            await client.disconnect(timeout=DETACHING)
            raise

    async def ask_job(self) -> str:
        """Returns Ray's id of the job that it works for; empty where it knows none."""
        job = await self._literal(_JOB, timeout=ATTACHING)
        return job if isinstance(job, str) else ""

    async def _find_main_thread(self) -> None:
        threads = (await self.client.request("threads", timeout=ATTACHING)).get("threads")
        rows = [row for row in threads or [] if isinstance(row.get("id"), int)]
        main = [row for row in rows if row.get("name") == "MainThread"]
        self.main_thread = [*main, *rows, {"id": 0}][0]["id"]

    @property
    def ended(self) -> asyncio.Event:
        """Returns an event that is set once the connection has ended."""
        return self.client.closed

    async def detach(self) -> None:
        """Detaches: the debuggee runs on without us."""
        self.detached = True
        if self._client is not None:
            with contextlib.suppress(DebuggerGone):
                if self._evaluations:
                    await self.interrupt()
                with contextlib.suppress(RequestFailed):
                    await self._tell_prints(False, DETACHING)
                if self._awake:
                    await self._trace(False, DETACHING)
            await self._client.disconnect(timeout=DETACHING, drain=DRAINING)

    async def answer(self, command: str, arguments: Message, timeout: float = PATIENCE) -> Message:
        """Sends a request; returns the debuggee's whole response. Raises as `Client.answer`."""
        if command != "evaluate":
            return await self.client.answer(command, arguments, timeout=timeout)
        evaluation = asyncio.ensure_future(self.client.answer(command, arguments, timeout=timeout))
        self._evaluations.add(evaluation)
        try:
            return await evaluation
        except RequestFailed:  # it takes too long
            await self.interrupt()
            raise
        finally:
            self._evaluations.discard(evaluation)

    async def interrupt(self) -> None:
        """Ends what is evaluated in its threads; what can't be interrupted runs on."""
        with contextlib.suppress(RequestFailed, DebuggerGone):
            await self._run(INTERRUPTION.value("interrupt"), SOON)

    async def end_evaluations(self) -> None:
        """Makes its threads ready to resume: what does not end by itself soon is interrupted."""
        if self._evaluations:
            await asyncio.wait(self._evaluations, timeout=GRACE)
        if self._evaluations:
            await self.interrupt()
            await asyncio.wait(self._evaluations, timeout=SOON)

    @property
    def _patience(self) -> float:
        """Returns the seconds for an answer: many before the debuggee runs, for all has to be set by then."""
        return SOON if self.ready.is_set() else ATTACHING

    async def answers(self) -> None:
        """Waits until nothing is in flight, however long that takes."""
        while not self.detached and not await self.client.drain(timeout=ATTACHING):
            pass

    # --- what it stops at ----------------------------------------------------------------

    async def set_breakpoints(self, path: str, breakpoints: Sequence[LineBreakpoint]) -> None:
        """Makes these the breakpoints of its file `path`, and puts its answer for each in the results.

        Raises:
            RequestFailed, DebuggerGone: as `Client.request`.
        """
        async with self._setting:  # what was asked for last is set last
            if not breakpoints and path not in self._set:
                return
            self._missing.discard(path)
            placed = await self._placed(path, [each for each in breakpoints if not each.problem])
            if placed:
                await self.wake()
            elif path not in self._set:
                return
            now = [breakpoint_ for breakpoint_, _ in placed]
            specs = [breakpoint_.inner(line) for breakpoint_, line in placed]
            await self._set_points(now)
            body = await self.client.set_breakpoints(path, specs, timeout=self._patience)
            self._replaced([earlier for _, earlier in self._set.get(path, [])], now)
            if not placed:
                del self._set[path]
                return
            self._set[path] = []
            for (breakpoint_, line), answer in zip(placed, body.get("breakpoints", []), strict=False):
                moved = f"moved to line {line}, the next with code" if line != breakpoint_.line else ""
                verified = bool(answer.get("verified"))
                message = moved if verified else str(answer.get("message") or moved)
                breakpoint_.results[self] = Result(verified, answer.get("line") or line, message)
                self._set[path].append((answer.get("id", -1), breakpoint_))

    async def file(self, path: str) -> File | None:
        """Returns its file; None where it has none. Raises as `Files.read`."""
        return await self._files.read(self.client, self.debuggee.node_ip, path, timeout=self._patience)

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
        file = await self.file(path) if breakpoints else None
        if file is None and breakpoints:
            self._missing.add(path)
        lines = self._lines_of(file, path)
        placed: list[tuple[LineBreakpoint, int]] = []
        for breakpoint_ in breakpoints:
            line: int | None = breakpoint_.line
            if file is None and lines is None:
                line, message = None, NO_FILE
            else:
                line = lines.nearest(breakpoint_.line) if lines is not None else line
                message = "There is no code at this line, nor below it in its function."
            if line is None:
                breakpoint_.results[self] = Result(False, breakpoint_.line, message)
            else:
                placed.append((breakpoint_, line))
        return placed

    async def await_missing(self) -> list[str]:
        """Has it report functions that come by value from files that it does not have.

        Returns:
            The paths of files of which it has functions, and whose breakpoints are to be set once more.
        """
        if self._missing == self._awaited:
            return []
        await self._send_once(REACHED)
        await self._send_once(BY_VALUE)
        paths = sorted(self._missing)
        tables = await self._literal(BY_VALUE.call("await_files", paths), timeout=self._patience)
        self._awaited = {*paths}
        known = tables if isinstance(tables, dict) else {}
        return [path for path in paths if self._learns(path, known.get(path))]

    async def learn(self, path: str) -> bool:
        """Reads the lines of what came by value from that file; returns whether it may have breakpoints."""
        if path not in self._missing:
            return False
        return self._learns(path, await self._literal(BY_VALUE.call("table", path), timeout=self._patience))

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
        exceptions = desired.exceptions
        if exceptions.needs_tracing:
            await self.wake()
        conditions = exceptions.inner_conditions
        if conditions or exceptions.several:
            await self._send_once(EXCEPTIONS)
            await self._literal(EXCEPTIONS.call("stop_once"), timeout=self._patience)
        await self.client.request("setExceptionBreakpoints", exceptions.arguments, timeout=self._patience)
        if conditions:
            await self._set_points(exceptions.conditions.values())
            expression = EXCEPTIONS.call("set_conditions", conditions)
            exceptions.conditions_set(self, await self._literal(expression, timeout=self._patience))
        self._replaced(self._filters, exceptions.conditions.values())
        self._filters = list(exceptions.conditions.values())

    async def set_functions(self, desired: Desired) -> None:
        """Sets the function breakpoints, and puts into their results whether it has such a function.

        Raises:
            RequestFailed, DebuggerGone: as `Client.request`.
        """
        functions = [breakpoint_ for breakpoint_ in desired.functions if not breakpoint_.problem]
        if functions:
            await self.wake()
        specs = [breakpoint_.inner() for breakpoint_ in functions]
        await self._set_points(functions)
        body = await self.client.request(
            "setFunctionBreakpoints", {"breakpoints": specs}, timeout=self._patience
        )
        ids = [answer.get("id", -1) for answer in body.get("breakpoints") or []]
        self._replaced([breakpoint_ for _, breakpoint_ in self._set_functions], functions)
        self._set_functions = list(zip(ids, functions, strict=False))
        if not functions:
            return
        names = [breakpoint_.name for breakpoint_ in functions]
        loaded = await self._literal(REACHED.call("are_loaded", names), timeout=self._patience)
        for breakpoint_, is_loaded in zip(
            functions, loaded if isinstance(loaded, list) else [], strict=False
        ):
            breakpoint_.results[self] = Result(is_loaded is True, 0, "" if is_loaded is True else NO_FUNCTION)

    async def set_prints(self, prints: bool) -> None:
        """Turns reports of what it prints on or off. Raises RequestFailed, DebuggerGone."""
        await self._tell_prints(prints, self._patience)

    async def _tell_prints(self, prints: bool, timeout: float) -> None:
        if self._prints is prints:
            return
        if prints:
            await self._send_once(REACHED)
            await self._send_once(PRINTS)
        expression = PRINTS.call("begin" if prints else "give_back")
        await self._run(expression, timeout)
        self._prints = prints

    async def _set_points(self, breakpoints: Iterable[Breakpoint]) -> None:
        """Sends what these breakpoints decide by, before the debuggee is told to stop at them."""
        points = {
            breakpoint_.key: breakpoint_.point
            for breakpoint_ in breakpoints
            if breakpoint_.point is not None and breakpoint_.key not in self._points
        }
        if not points:
            return
        await self._send_once(REACHED)
        stale, self._stale = self._stale, set()
        await self._run(REACHED.call("set_points", points, sorted(stale)), self._patience)
        self._points |= set(points)

    def _replaced(self, earlier: Iterable[Breakpoint], now: Iterable[Breakpoint]) -> None:
        """Notes which breakpoints it need not know any more; it is told that with the next ones to know."""
        stale = self._points & (
            {breakpoint_.key for breakpoint_ in earlier} - {breakpoint_.key for breakpoint_ in now}
        )
        self._stale |= stale
        self._points -= stale

    async def _send_once(self, module: Sent) -> None:
        """Sends one of our modules to the debuggee; anew for each connection."""
        if module not in self._sent:
            self._sent.add(module)
            await self._run(module.anew(), self._patience)

    async def answer_thread(self, number: int, *answer: bool) -> None:
        """Resumes a thread that asked and waits; `answer` is for `ask` in evaluated/reached.py."""
        await self._run(REACHED.call("answered", number, *answer), SOON)

    async def wake(self) -> None:
        """Has it trace its code, so that it stops at what is set."""
        await self._trace(True, self._patience)

    async def sleep(self) -> None:
        """Lets its code run at full speed; a `breakpoint()` call stops all the same."""
        if not self.stops:
            await self._trace(False, self._patience)

    async def _trace(self, awake: bool, timeout: float) -> None:
        if self._awake is awake:
            return
        self._awake = awake
        expression = tracing.WAKE if awake else tracing.SLEEP
        with contextlib.suppress(RequestFailed):  # private interfaces: without them it is just slower
            await self._run(expression, timeout)

    async def _run(self, expression: str, timeout: float, frame: int | None = None) -> Message:
        """Evaluates an expression of ours; returns the answer's body. Raises RequestFailed, DebuggerGone."""
        arguments: Message = {"expression": expression, "context": QUIETLY}
        arguments |= {} if frame is None else {"frameId": frame}
        return await self.client.request("evaluate", arguments, timeout=timeout)

    # --- where it is stopped -------------------------------------------------------------

    async def name_task(self, thread: int) -> None:
        """Asks a stopped thread for its task, which Ray's tables have late, or not exactly."""
        if self.debuggee.driver:  # Ray would write an error into the job's log
            return
        try:
            body = await self.client.request("stackTrace", {"threadId": thread, "levels": 1}, timeout=SOON)
            frame = body["stackFrames"][0]["id"]
            await self._send_once(REACHED)
            name = await self._literal(REACHED.call("task"), frame)
        except (RequestFailed, DebuggerGone, LookupError, TypeError):
            return
        if isinstance(name, str) and name:
            self.tasks[thread] = name
            self.debuggee = replace(self.debuggee, task=name)

    def described_at(self, thread: int) -> Debuggee:
        """Returns its debuggee as that thread knows it: threads of one actor run tasks of their own."""
        task = self.tasks.get(thread, self.debuggee.task)
        return replace(self.debuggee, task=task, since=self.since.get(thread, self.debuggee.since))

    def described(self, debuggee: Debuggee) -> None:
        """Takes what discovery says of it now; what a stop said is surer."""
        task = self.debuggee.task if self.stops or debuggee.as_of < self._resumed_at else debuggee.task
        job_id = debuggee.job_id or self.debuggee.job_id
        submission_id = debuggee.submission_id or self.debuggee.submission_id
        self.debuggee = replace(debuggee, task=task, job_id=job_id, submission_id=submission_id)

    def stopped(self, thread: int, stop: Message) -> None:
        """Notes that a thread has stopped; `stop` is the body of debugpy's event."""
        self.stops[thread] = stop
        now = datetime.now(timezone.utc)
        self.since[thread] = now.isoformat(timespec="microseconds").replace("+00:00", "Z")

    def resumed(self, threads: Iterable[int]) -> dict[int, Message]:
        """Notes that these threads resume; returns the stops that they had."""
        stops = {thread: self.stops.pop(thread) for thread in [*threads] if thread in self.stops}
        # A `breakpoint()` call, or a step, has it trace its code, too.
        self._awake = self._awake or None
        self.named -= set(stops)
        self.reported -= set(stops)
        self.resumes.update([*stops, None])
        for thread in stops:
            self.tasks.pop(thread, None)
        if stops:
            self._resumed_at = time.monotonic()
        return stops

    async def _literal(self, expression: str, frame: int | None = None, *, timeout: float = SOON) -> object:
        """Returns the value of an expression that gives a literal; None where it raised."""
        # The expression is put into a list: of a string alone debugpy gives the text, and of None nothing.
        try:
            body = await self._run(f"[{expression}]", timeout, frame)
            return ast.literal_eval(str(body.get("result", "")))[0]
        except (RequestFailed, ValueError, SyntaxError, TypeError, LookupError, RecursionError, MemoryError):
            return None

    def _event(self, event: Message) -> None:
        self.holder.event(self, event)


class Workers(dict[str, Worker]):
    """Maps each debuggee's worker_id to its worker."""

    @property
    def attached(self) -> list[Worker]:
        """Returns the workers that take requests."""
        return [worker for worker in self.values() if worker.ready.is_set() and not worker.detached]

    def has(self, worker: Worker) -> bool:
        """Returns whether a worker is one of `attached`."""
        is_current = self.get(worker.debuggee.worker_id) is worker
        return is_current and worker.ready.is_set() and not worker.detached
