"""The relay's side of one debuggee: its description, its session, and where it is stopped."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timezone
from enum import Enum, auto
from functools import partial
from typing import Any, Protocol

from rayside.dap.client import Introduction, Origin
from rayside.dap.framing import Message
from rayside.errors import DebuggerGone, RequestFailed
from rayside.plain import line
from rayside.relay.config import UNSET, Masking
from rayside.relay.connection import ATTACHING, PATIENCE, SOON, Connection, call
from rayside.relay.debuggee import Debuggee, Stop
from rayside.relay.installed import Installed
from rayside.relay.masking import Masks
from rayside.relay.source_files import Files, Layout
from rayside.worker import handshake
from rayside.worker.evaluated import scope
from rayside.worker.handshake import LONGEST_USER

# Seconds that tables of Ray may lag behind what is; about 1 s was measured.
_LAG = 5.0
_FOLDERS = (
    "(lambda os, sys: {p: [] if 'working_dir_files' in p else os.listdir(p)"
    " for p in dict.fromkeys([*sys.path, os.getcwd()])"
    " if ('/working_dir_files/' in p or '/py_modules_files/' in p) and os.path.isdir(p)}"
    ")(__import__('os'), __import__('sys'))"
)
# This asks only a Ray that is loaded already: importing it into a process that isn't Ray's costs seconds.
_TASK = "__import__('sys').modules['ray'].get_runtime_context().get_task_name()"  # without our package
_JOB = "__import__('sys').modules['ray'].get_runtime_context().get_job_id()"
# This asks a driver, then a worker in a task; see rayside/worker/handshake.py.
_SUBMISSION_AND_USER = (
    f"(lambda os, ray, json: (lambda said: (said.get({handshake.SUBMISSION!r}, ''),"
    f" said.get({handshake.USER!r}) or os.environ.get({handshake.USER_VARIABLE!r}, '')))("
    "json.loads(os.environ['RAY_JOB_CONFIG_JSON_ENV_VAR']).get('metadata') or {}"
    " if 'RAY_JOB_CONFIG_JSON_ENV_VAR' in os.environ else"
    " ray._private.worker.global_worker.core_worker.get_job_config().metadata"
    " if getattr(ray._raylet, 'job_config_initialized', False) else {})"
    ")(__import__('os'), __import__('sys').modules['ray'], __import__('json'))"
)


def _cleaned(claim: object, most: int = 200) -> str:
    return line(claim, most) if isinstance(claim, str) else ""


class NotWanted(Exception):
    """The debuggee is of another job than any editor asked for."""


Configure = Callable[["Worker"], Awaitable[None]]


class Claims(Protocol):
    """Decides whose a debuggee is.

    Attributes:
        user: the name of whom the relay is for; empty where the Ray is one person's.
    """

    user: str

    async def meet(self, worker: Worker, origin: Origin) -> None:
        """Learns what a debuggee says of itself while it is nobody's.

        Raises NotWanted where nobody here asked for such a one.
        """

    async def claim(self, worker: Worker) -> Configure:
        """Returns what configures a debuggee before it runs: its session's, to which it belongs from now on.

        Raises NotWanted where nobody here asked for it.
        """


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


class _State(Enum):
    """States of a debuggee, in this order; the last may come before the second."""

    ATTACHING = auto()
    ATTACHED = auto()
    LEFT = auto()  # it has ended, or is being detached from


class Worker:
    """Represents a debuggee, from the moment it was found until it has ended or the relay has detached.

    Attributes:
        debuggee: its description, as discovery last gave it, with its task's name as the last stop gave it.
        connection: what it is asked by.
        installed: what is set in it.
        masks: what is masked of what it shows.
        holder: the session that the debuggee belongs to now.
        layout: where the debuggee's files lie.
        main_thread: debugpy's number of the main thread.
        stops: the stop of each stopped thread.
        resumes: how often each thread was resumed; what is known of its stop holds only for the same number.
        rows: the threads that an editor has a row for. `Threads` writes this.
        others: the names of its Python threads when one of them last stopped. `OtherThreads` writes this.
        attaching_took: the seconds that attaching took, well or not; 0 before. `Lifecycle` writes this.
        resuming: the request that resumes a thread, by thread, until it is answered. `Threads` writes this.
    """

    def __init__(self, debuggee: Debuggee, files: Files, holder: Holder, masking: Masking = UNSET) -> None:
        self.debuggee = debuggee
        self.holder = holder
        self.connection = Connection(debuggee, self._event)
        self.installed = Installed(self.connection, files, key=self, node_ip=debuggee.node_ip)
        self.masks = Masks(masking, self.connection)
        self.layout = Layout()
        self.main_thread = 0
        self.stops: dict[int, Stop] = {}
        self.resumes: Counter[int | None] = Counter()
        self.rows: set[int] = set()
        self.others: dict[int, str] = {}
        self.attaching_took = 0.0
        self.resuming: dict[int, asyncio.Future[Any]] = {}
        self._state = _State.ATTACHING
        self._settled = asyncio.Event()  # set once it is not ATTACHING any more
        self._resumed_at = 0.0  # the moment, of `time.monotonic`, in which it was resumed last

    # --- from found to left --------------------------------------------------------------

    @property
    def is_attaching(self) -> bool:
        return self._state is _State.ATTACHING

    @property
    def is_attached(self) -> bool:
        """Returns whether it takes requests."""
        return self._state is _State.ATTACHED

    @property
    def has_left(self) -> bool:
        """Returns whether it has ended, or is being detached from."""
        return self._state is _State.LEFT

    async def settled(self) -> None:
        """Waits until it is attached, or has left."""
        await self._settled.wait()

    def takes_requests(self) -> None:
        """Notes that it is attached."""
        self._becomes(_State.ATTACHED)

    def leaves(self) -> None:
        """Notes that it has ended, or that it is detached from."""
        self._becomes(_State.LEFT)

    def _becomes(self, state: _State) -> None:
        self._state = state
        self.connection.patience = SOON
        self._settled.set()

    async def attach(self, options: Mapping[str, Any], claims: Claims, *, children: bool) -> None:
        """Attaches; `options` are debugpy's `attach` arguments.

        `children` says whether the processes that it starts are to open debugger ports of their own.

        Raises:
            AlreadyDebugged: the debuggee has another client; asking again does no harm.
            AttachFailed: the same, of a debuggee that is not asked again.
            DebuggerGone: it has ended, or did not answer in time.
            NotWanted: no editor asked for its job; it waits on, for somebody else.
        """

        async def configure_debuggee() -> None:
            configure = await claims.claim(self)
            await self.connection.begin()
            folders = await self.connection.literal(_FOLDERS, timeout=ATTACHING)
            self.layout = Layout.of(folders) if isinstance(folders, dict) else Layout()
            await self._find_main_thread()
            await configure(self)

        introduction = Introduction(claims.user, partial(claims.meet, self), children)
        await self.connection.attach(options, configure_debuggee, introduction)

    async def _find_main_thread(self) -> None:
        body = await self.connection.client.request("threads", timeout=ATTACHING)
        rows = body.get("threads", [])
        main = [row for row in rows if row.get("name") == "MainThread"]
        self.main_thread = [*main, *rows, {"id": 0}][0]["id"]

    async def detach(self) -> None:
        """Detaches: the debuggee runs on without us."""
        await self.connection.detach(self.installed.give_back)

    async def answers(self) -> None:
        """Waits until nothing is in flight, however long that takes."""
        while not self.has_left and not await self.connection.client.drain(timeout=ATTACHING):
            pass

    def given_to(self, holder: Holder) -> None:
        """Notes that it is another session's, whose editor knows of none of its stops."""
        self.holder = holder
        self.unreported()

    def unreported(self) -> None:
        """Notes that the editor knows of none of its stops: it is another one."""
        for stop in self.stops.values():
            stop.reported = False

    # --- what it works for ---------------------------------------------------------------

    async def ask_origin(self) -> Origin:
        """Asks for its origin: Ray's own debugger, and an earlier version's listener, do not tell it."""
        job = await self.connection.literal(_JOB, timeout=ATTACHING)
        more = await self.connection.literal(_SUBMISSION_AND_USER, timeout=ATTACHING)
        submission, user = more if isinstance(more, tuple) and len(more) == 2 else ("", "")
        return Origin(_cleaned(job), _cleaned(submission), _cleaned(user, LONGEST_USER))

    def comes_from(self, origin: Origin) -> None:
        """Notes the job that it works for, and the name of the user whose that is, if known."""
        job_id, submission_id = origin.job_id, origin.submission_id
        self.debuggee = replace(self.debuggee, job_id=job_id, submission_id=submission_id, user=origin.user)

    async def look_at_stop(self, thread: int) -> None:
        """Asks a stopped thread for its task, and learns what is to be masked.

        Ray's tables have the task late, or not exactly.
        """
        stop = self.stops.get(thread)
        # Ray would write an error into a driver's log, and a child runs no task of Ray's.
        if stop is None or self.debuggee.driver or self.debuggee.parent:
            await self.masks.learn()
            return
        question = call(scope.task) if self.connection.has_package else _TASK
        name, _ = await asyncio.gather(self.text_at(thread, question), self.masks.learn())
        if name:
            stop.task = name
            self.debuggee = replace(self.debuggee, task=name)

    async def text_at(self, thread: int, expression: str) -> str:
        """Returns a text that a stopped thread's innermost frame gives; empty for no answer, or another."""
        top = {"threadId": thread, "levels": 1}
        with contextlib.suppress(RequestFailed, DebuggerGone, LookupError, TypeError):
            body = await self.connection.client.request("stackTrace", top, timeout=PATIENCE)
            frame = body["stackFrames"][0]["id"]
            answer = await self.connection.literal(expression, frame, timeout=PATIENCE)
            return answer if isinstance(answer, str) else ""
        return ""

    def described_at(self, thread: int) -> Debuggee:
        """Returns its debuggee as a stopped thread knows it: threads of an actor run tasks of their own."""
        stop = self.stops[thread]
        return replace(self.debuggee, task=stop.task or self.debuggee.task, since=stop.since)

    def described(self, debuggee: Debuggee) -> None:
        """Takes what discovery says of it now; what a stop said is surer."""
        task = self.debuggee.task if self.stops or debuggee.as_of < self._resumed_at else debuggee.task
        job_id = debuggee.job_id or self.debuggee.job_id
        submission_id = debuggee.submission_id or self.debuggee.submission_id
        user = debuggee.user or self.debuggee.user
        self.debuggee = replace(debuggee, task=task, job_id=job_id, submission_id=submission_id, user=user)

    @property
    def is_idle(self) -> bool:
        """Returns whether it runs nothing, as far as is known: no task, and no program of the user's."""
        # A step resumes it, and what discovery says may be of before its task.
        is_known = time.monotonic() - self._resumed_at > _LAG
        debuggee = self.debuggee
        return is_known and not (self.stops or debuggee.task or debuggee.driver or debuggee.parent)

    # --- where it is stopped -------------------------------------------------------------

    def has_failed(self, thread: int) -> bool:
        """Returns whether a thread stands still where an exception has left what it ran."""
        return thread in self.stops and self.stops[thread].body.get("reason") == "exception"

    async def sleep(self) -> None:
        """Lets its code run at full speed, unless it is stopped."""
        if not self.stops:
            await self.installed.tracing.sleep()

    def stopped(self, thread: int, body: Message) -> Stop:
        """Notes that a thread has stopped; `body` is that of debugpy's event."""
        now = datetime.now(timezone.utc).isoformat(timespec="microseconds")
        self.stops[thread] = stop = Stop(body, now.replace("+00:00", "Z"))
        return stop

    def resumed(self, threads: Iterable[int]) -> dict[int, Stop]:
        """Notes that these threads resume; returns the stops that they had."""
        stops = {thread: self.stops.pop(thread) for thread in [*threads] if thread in self.stops}
        self.installed.tracing.resumed()
        self.resumes.update([*stops, None])
        if stops:
            self._resumed_at = time.monotonic()
        return stops

    def did_not_resume(self, stops: Mapping[int, Stop]) -> None:
        """Notes that what `resumed` returned is stopped still."""
        self.stops = {**stops, **self.stops}

    def _event(self, event: Message) -> None:
        self.holder.event(self, event)


class Workers(dict[str, Worker]):
    """Maps each debuggee's worker_id to its worker."""

    @property
    def attached(self) -> list[Worker]:
        """Returns the workers that take requests."""
        return [worker for worker in self.values() if worker.is_attached]

    def has(self, worker: Worker) -> bool:
        """Returns whether a worker is one of `attached`."""
        is_current = self.get(worker.debuggee.worker_id) is worker
        return is_current and worker.is_attached
