"""The relay's side of one debuggee: its connection, what is set in it, and where it stands."""

from __future__ import annotations

import ast
import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bootstrap.debug import tracing
from bootstrap.debug.client import QUIETLY, Client
from bootstrap.debug.dap import Message
from bootstrap.debug.debuggee import Debuggee
from bootstrap.debug.desired import Breakpoint, Desired, Result
from bootstrap.debug.files import File, Files
from bootstrap.debug.paths import Layout
from bootstrap.errors import DebuggerGone, RequestFailed

# Seconds for a debuggee's answer to what an editor asks of one, before it counts as frozen.
PATIENCE = 15.0
# Seconds for what a debuggee answers within milliseconds unless it is frozen.
SOON = 2.0
# The same where the cluster is to go on.
LEAVING = 0.6
# Seconds for what is in flight when it is left: whoever leaves earlier spoils it (see `client`), and while
# a thread evaluates, it can't go on anyway.
DRAINING = 60.0
# Seconds for one that does not answer while it is attached to. It costs nobody anything, and leaving it
# in haste would spoil it.
ATTACHING = 600.0

# Without a mapping, debugpy says that a file which the editor can't see isn't there; with one that
# matches nothing, it serves the text.
_NOWHERE = {"localRoot": "/rayside/nowhere", "remoteRoot": "/rayside/nowhere"}
_FOLDERS = (
    "(lambda os, sys: {p: [] if 'working_dir_files' in p else os.listdir(p)"
    " for p in dict.fromkeys([*sys.path, os.getcwd()])"
    " if ('/working_dir_files/' in p or '/py_modules_files/' in p) and os.path.isdir(p)}"
    ")(__import__('os'), __import__('sys'))"
)
# Both ask only a Ray that is loaded already: importing it into a process that isn't Ray's costs seconds.
_JOB = "__import__('sys').modules['ray'].get_runtime_context().get_job_id()"
_TASK = "__import__('sys').modules['ray'].get_runtime_context().get_task_name()"


class NotWanted(Exception):
    """The debuggee is of another job than the editor asked for."""


@dataclass(frozen=True)
class Asked:
    """How an editor attached, as far as debuggees have to know.

    Attributes:
        options: debugpy's `attach` arguments.
        job: the only job that is debugged, by its submission id or by Ray's id.
        submission: gives the submission id of Ray's job id, "" where there is none.
    """

    options: Mapping[str, Any]
    job: str | None = None
    submission: Callable[[str], Awaitable[str]] | None = None

    def is_wanted(self, debuggee: Debuggee) -> bool:
        return self.job is None or self.job in (debuggee.job_id, debuggee.submission_id)


class Worker:
    """A debuggee, from the moment it was found until it has ended or was left.

    Attributes:
        debuggee: as discovery last described it, with its task's name as the last stop gave it.
        ready: set once it takes requests.
        left: whether it has ended, or is being left.
        stops: the body of the `stopped` event of each thread that stands still.
        moves: how often it was let go; what is known of a stop holds only for the same number.
        named: the threads among them whose task is known.
        told: the threads among them that the editor knows of.
        threads: its threads that an editor has a row for.
        moving: the request that lets it go, until that is answered.
        layout: where its files lie.
        main_thread: debugpy's number of it.
        revision: of what the editor wants, as far as it was set.
        late: whether something is to be set once it answers again.
    """

    def __init__(self, debuggee: Debuggee, files: Files, on_event: Callable[[Worker, Message], None]) -> None:
        self.debuggee = debuggee
        self.ready = asyncio.Event()
        self.left = False
        self.stops: dict[int, Message] = {}
        self.moves = 0
        self.named: set[int] = set()
        self.told: set[int] = set()
        self.threads: set[int] = set()
        self.moving: asyncio.Future[Any] | None = None
        self.layout = Layout()
        self.main_thread = 0
        self.revision = 0
        self.late = False
        self._files = files
        self._on_event = on_event
        self._client: Client | None = None
        self._setting = asyncio.Lock()
        self._set: dict[str, list[tuple[int, Breakpoint]]] = {}  # debugpy's ids, by the debuggee's path
        self._awake: bool | None = None

    @property
    def client(self) -> Client:
        """Raises DebuggerGone before it is attached."""
        if self._client is None:
            raise DebuggerGone(f"{self.debuggee.title} is not attached", hint="Wait for it to be listed.")
        return self._client

    async def attach(self, asked: Asked, configure: Callable[[Worker], Awaitable[None]]) -> None:
        """Attaches; `configure` sets breakpoints before it moves.

        Raises:
            AttachFailed: it has another client.
            DebuggerGone: it has ended, or did not answer in time.
            NotWanted: it waits on, for somebody else.
        """
        debuggee = self.debuggee
        client = self._client = await Client.connect(debuggee.host, debuggee.port, on_event=self._event)

        async def before_it_moves() -> None:
            # Not known of a worker that waits before its first task.
            if asked.job and not self.debuggee.job_id:
                job = await self._literal(_JOB, timeout=ATTACHING)
                self.debuggee = replace(self.debuggee, job_id=job if isinstance(job, str) else "")
                if asked.submission is not None:
                    submission = await asked.submission(self.debuggee.job_id)
                    self.debuggee = replace(self.debuggee, submission_id=submission)
                if not asked.is_wanted(self.debuggee):
                    raise NotWanted
            folders = await self._literal(_FOLDERS, timeout=ATTACHING)
            self.layout = Layout.of(folders) if isinstance(folders, dict) else Layout()
            await self._find_main_thread()
            await configure(self)

        try:
            await client.attach(
                path_mappings=[_NOWHERE],
                options=asked.options,
                configure=before_it_moves,
                exception_filters=None,
                timeout=ATTACHING,
            )
        except BaseException:
            await client.disconnect(timeout=LEAVING)
            raise

    async def _find_main_thread(self) -> None:
        threads = (await self.client.request("threads", timeout=ATTACHING)).get("threads")
        rows = [row for row in threads or [] if isinstance(row.get("id"), int)]
        main = [row for row in rows if row.get("name") == "MainThread"]
        self.main_thread = [*main, *rows, {"id": 0}][0]["id"]

    @property
    def ended(self) -> asyncio.Event:
        """Set once the connection has ended."""
        return self.client.closed

    async def leave(self) -> None:
        """Lets it go on without us."""
        self.left = True
        if self._client is not None:
            with contextlib.suppress(DebuggerGone):
                if self._awake:
                    await self._trace(False, LEAVING)
            await self._client.disconnect(timeout=LEAVING, drain=DRAINING)

    async def answer(self, command: str, arguments: Message, timeout: float = PATIENCE) -> Message:
        """The debuggee's whole response. Raises as `Client.answer`."""
        return await self.client.answer(command, arguments, timeout=timeout)

    @property
    def _patience(self) -> float:
        """Seconds. It must not move before all is set."""
        return SOON if self.ready.is_set() else ATTACHING

    async def answers(self) -> None:
        """Waits until nothing is in flight, however long."""
        while not self.left and not await self.client.drain(timeout=ATTACHING):
            pass

    # --- what it stops at ----------------------------------------------------------------

    async def set_breakpoints(self, path: str, breakpoints: Sequence[Breakpoint]) -> None:
        """Makes these the breakpoints of its file `path`, and puts what it says of each in the results.

        Raises:
            RequestFailed, DebuggerGone: as `Client.request`.
        """
        async with self._setting:  # the one that was asked for last is set last
            if not breakpoints and path not in self._set:
                return
            wanted = await self._placed(path, breakpoints)
            if wanted:
                await self.wake()
            elif path not in self._set:
                return
            specs = [{**breakpoint_.spec, "line": line} for breakpoint_, line in wanted]
            body = await self.client.set_breakpoints(path, specs, timeout=self._patience)
            if not wanted:
                del self._set[path]
                return
            self._set[path] = []
            for (breakpoint_, line), said in zip(wanted, body.get("breakpoints", []), strict=False):
                moved = f"moved to line {line}, the next with code" if line != breakpoint_.line else ""
                verified = bool(said.get("verified"))
                message = moved if verified else str(said.get("message") or moved)
                breakpoint_.results[self] = Result(verified, said.get("line") or line, message)
                self._set[path].append((said.get("id", -1), breakpoint_))

    async def file(self, path: str) -> File | None:
        """Its file; None where it has none. Raises as `Files.read`."""
        return await self._files.read(self.client, self.debuggee.node_ip, path, timeout=self._patience)

    async def _placed(self, path: str, breakpoints: Sequence[Breakpoint]) -> list[tuple[Breakpoint, int]]:
        """Those that can be set, and at which line; the others get their result."""
        file = await self.file(path) if breakpoints else None
        placed: list[tuple[Breakpoint, int]] = []
        for breakpoint_ in breakpoints:
            line: int | None = breakpoint_.line
            if file is None:
                message = "No task here has this file: it is neither in working_dir nor in py_modules."
            else:
                line = file.lines.nearest(breakpoint_.line) if file.lines else line
                message = "There is no code at this line, nor below it in its function."
            if file is None or line is None:
                breakpoint_.results[self] = Result(False, breakpoint_.line, message)
            else:
                placed.append((breakpoint_, line))
        return placed

    def hit(self, ids: object) -> list[int]:
        """The editor's breakpoints for debugpy's."""
        if not isinstance(ids, list):
            return []
        return [b.id for known in self._set.values() for inner, b in known if inner in ids]

    @property
    def paths(self) -> list[str]:
        """Its files that breakpoints are set in."""
        return list(self._set)

    async def set_exceptions(self, desired: Desired) -> None:
        if desired.needs_tracing:
            await self.wake()
        await self.client.request("setExceptionBreakpoints", desired.exceptions, timeout=self._patience)

    async def set_functions(self, desired: Desired) -> list[bool]:
        """Whether it has each."""
        if desired.functions["breakpoints"]:
            await self.wake()
        body = await self.client.request("setFunctionBreakpoints", desired.functions, timeout=self._patience)
        return [bool(said.get("verified")) for said in body.get("breakpoints") or []]

    async def wake(self) -> None:
        """Has it watch its code run, so that it stops at what is set."""
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
            await self.client.request(
                "evaluate", {"expression": expression, "context": QUIETLY}, timeout=timeout
            )

    # --- where it stands -----------------------------------------------------------------

    async def name_task(self, thread: int) -> None:
        """Asks a thread that stands still for its task, which Ray's tables tell late, or not exactly."""
        try:
            body = await self.client.request("stackTrace", {"threadId": thread, "levels": 1}, timeout=SOON)
            frame = body["stackFrames"][0]["id"]
            name = await self._literal(_TASK, frame)
        except (RequestFailed, DebuggerGone, LookupError, TypeError):
            return
        if isinstance(name, str) and name:
            self.debuggee = replace(self.debuggee, task=name)

    def described(self, debuggee: Debuggee) -> None:
        """Takes what discovery says of it now; what a stop told is surer."""
        task = self.debuggee.task if self.stops or not debuggee.task else debuggee.task
        job_id = debuggee.job_id or self.debuggee.job_id
        submission_id = debuggee.submission_id or self.debuggee.submission_id
        self.debuggee = replace(debuggee, task=task, job_id=job_id, submission_id=submission_id)

    def goes_on(self) -> dict[int, Message]:
        """Notes that all its threads move, as debugpy lets them; the stops that there were."""
        was, self.stops = self.stops, {}
        # A `breakpoint()` call, or a step, has it watch its code, too.
        self._awake = self._awake or None
        self.named, self.told = set(), set()
        self.moves += 1
        return was

    async def _literal(self, expression: str, frame: int | None = None, *, timeout: float = SOON) -> object:
        """The value of an expression that gives a literal; None where it raised."""
        # In a list, for of a string alone debugpy gives the text, and of None nothing.
        arguments = {"expression": f"[{expression}]", "context": QUIETLY}
        try:
            body = await self.client.request(
                "evaluate",
                arguments if frame is None else {**arguments, "frameId": frame},
                timeout=timeout,
            )
            return ast.literal_eval(str(body.get("result", "")))[0]
        except (RequestFailed, ValueError, SyntaxError, TypeError, LookupError, RecursionError, MemoryError):
            return None

    def _event(self, event: Message) -> None:
        self._on_event(self, event)


class Workers(dict[str, Worker]):
    """Those that there are, by their debuggee's worker_id."""

    @property
    def attached(self) -> list[Worker]:
        """Those that take requests."""
        return [worker for worker in self.values() if worker.ready.is_set() and not worker.left]
