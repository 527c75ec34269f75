"""The relay's state of one debuggee: its description, its session, its stops."""

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

# Lag of Ray's tables in seconds, at most; about 1 s was measured.
_LAG = 5.0
_FOLDERS = (
    "(lambda os, sys: {p: [] if 'working_dir_files' in p else os.listdir(p)"
    " for p in dict.fromkeys([*sys.path, os.getcwd()])"
    " if ('/working_dir_files/' in p or '/py_modules_files/' in p) and os.path.isdir(p)}"
    ")(__import__('os'), __import__('sys'))"
)
# These use Ray only if it is imported already: importing it into another process costs seconds.
_TASK = "__import__('sys').modules['ray'].get_runtime_context().get_task_name()"  # without our package
_JOB = "__import__('sys').modules['ray'].get_runtime_context().get_job_id()"
# For drivers, and for workers in a task; see rayside/worker/handshake.py.
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
    """No editor wants the debuggee's job."""


Configure = Callable[["Worker"], Awaitable[None]]


class Claims(Protocol):
    """Decides to which session a debuggee belongs.

    Attributes:
        user: name of the relay's user; empty on a cluster of one person.
    """

    user: str

    async def meet(self, worker: Worker, origin: Origin) -> None:
        """Receives the origin that a debuggee reports before it is claimed.

        Raises NotWanted if no editor wants it.
        """

    async def claim(self, worker: Worker) -> Configure:
        """Assigns a debuggee to a session; returns that session's function to configure it before it runs.

        Raises NotWanted if no editor wants it.
        """


class Holder(Protocol):
    """Owner of a debuggee: a debug session."""

    def event(self, worker: Worker, message: Message) -> None:
        """Handles an event of the debuggee."""

    def attached_to(self, worker: Worker) -> None:
        """Handles a debuggee that takes requests now."""

    def refused(self, worker: Worker, error: Exception) -> None:
        """Handles a failure to attach, or a debuggee whose job no editor wants."""

    def end(self, worker: Worker) -> None:
        """Handles the end of the debuggee's connection."""


class _State(Enum):
    """States of a debuggee, in this order; LEFT may follow ATTACHING directly."""

    ATTACHING = auto()
    ATTACHED = auto()
    LEFT = auto()  # it has ended, or is being detached


class Worker:
    """Debuggee in the relay, from its discovery until it has ended or the relay has detached.

    Attributes:
        debuggee: its description from the last discovery, with the task's name from the last stop.
        connection: the connection to it.
        installed: its breakpoints, filters and other settings.
        masks: masks secrets in its messages.
        holder: the debug session that it belongs to.
        layout: the folders of its files.
        main_thread: debugpy's id of the main thread.
        stops: the stop of each stopped thread.
        resumes: how often each thread has resumed: data of a stop is valid only while this is unchanged.
        rows: the threads with a row in an editor. `Threads` writes this.
        others: names of Python threads at the last stop. `OtherThreads` writes this.
        attaching_took: seconds that attaching took, also if it failed; 0 before. `Lifecycle` writes this.
        resuming: futures of pending requests that resume a thread, by thread. `Threads` writes this.
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
        self._settled = asyncio.Event()  # set after ATTACHING
        self._resumed_at = 0.0  # the last resume, of `time.monotonic`

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
        """Returns whether it has ended, or is being detached."""
        return self._state is _State.LEFT

    async def settled(self) -> None:
        """Waits until it is attached, or `has_left`."""
        await self._settled.wait()

    def takes_requests(self) -> None:
        """Marks it as attached."""
        self._becomes(_State.ATTACHED)

    def leaves(self) -> None:
        """Marks it as ended, or as being detached."""
        self._becomes(_State.LEFT)

    def _becomes(self, state: _State) -> None:
        self._state = state
        self.connection.patience = SOON
        self._settled.set()

    async def attach(self, options: Mapping[str, Any], claims: Claims, *, children: bool) -> None:
        """Attaches; `options` are debugpy's `attach` arguments.

        `children`: whether its child processes open debugger ports of their own.

        Raises:
            AlreadyDebugged: the debuggee has another client; a retry is harmless.
            AttachFailed: the same, for a debuggee without retries.
            DebuggerGone: it has ended, or did not answer in time.
            NotWanted: no editor wants its job; it continues to wait for a debugger.
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
        """Detaches: the debuggee continues."""
        await self.connection.detach(self.installed.give_back)

    async def answers(self) -> None:
        """Waits until no request is pending, without a timeout."""
        while not self.has_left and not await self.connection.client.drain(timeout=ATTACHING):
            pass

    def given_to(self, holder: Holder) -> None:
        """Hands it over to another session, whose editor has no report of its stops."""
        self.holder = holder
        self.unreported()

    def unreported(self) -> None:
        """Marks its stops as unreported, for another editor."""
        for stop in self.stops.values():
            stop.reported = False

    # --- job and task --------------------------------------------------------------------

    async def ask_origin(self) -> Origin:
        """Asks for its origin, which Ray's own debugger and older versions' listeners do not report."""
        job = await self.connection.literal(_JOB, timeout=ATTACHING)
        more = await self.connection.literal(_SUBMISSION_AND_USER, timeout=ATTACHING)
        submission, user = more if isinstance(more, tuple) and len(more) == 2 else ("", "")
        return Origin(_cleaned(job), _cleaned(submission), _cleaned(user, LONGEST_USER))

    def comes_from(self, origin: Origin) -> None:
        """Records its job, and the job's user, if known."""
        job_id, submission_id = origin.job_id, origin.submission_id
        self.debuggee = replace(self.debuggee, job_id=job_id, submission_id=submission_id, user=origin.user)

    async def look_at_stop(self, thread: int) -> None:
        """Asks a stopped thread for its task, and for secrets to be masked.

        Ray's tables have the task late, or not exactly.
        """
        stop = self.stops.get(thread)
        # Ray would log an error in a driver, and a child process runs no Ray task.
        if stop is None or self.debuggee.driver or self.debuggee.parent:
            await self.masks.learn()
            return
        question = call(scope.task) if self.connection.has_package else _TASK
        name, _ = await asyncio.gather(self.text_at(thread, question), self.masks.learn())
        if name:
            stop.task = name
            self.debuggee = replace(self.debuggee, task=name)

    async def text_at(self, thread: int, expression: str) -> str:
        """Evaluates in a stopped thread's innermost frame; returns a text, "" on failure or another type."""
        top = {"threadId": thread, "levels": 1}
        with contextlib.suppress(RequestFailed, DebuggerGone, LookupError, TypeError):
            body = await self.connection.client.request("stackTrace", top, timeout=PATIENCE)
            frame = body["stackFrames"][0]["id"]
            answer = await self.connection.literal(expression, frame, timeout=PATIENCE)
            return answer if isinstance(answer, str) else ""
        return ""

    def described_at(self, thread: int) -> Debuggee:
        """Returns its description with a stopped thread's task: threads of an actor run different tasks."""
        stop = self.stops[thread]
        return replace(self.debuggee, task=stop.task or self.debuggee.task, since=stop.since)

    def described(self, debuggee: Debuggee) -> None:
        """Updates its description from discovery; a task that a stop reported has priority."""
        task = self.debuggee.task if self.stops or debuggee.as_of < self._resumed_at else debuggee.task
        job_id = debuggee.job_id or self.debuggee.job_id
        submission_id = debuggee.submission_id or self.debuggee.submission_id
        user = debuggee.user or self.debuggee.user
        self.debuggee = replace(debuggee, task=task, job_id=job_id, submission_id=submission_id, user=user)

    @property
    def is_idle(self) -> bool:
        """Returns whether it runs no task or user program, as far as known."""
        # A step resumes it, and the discovery's data may be older than its task.
        is_known = time.monotonic() - self._resumed_at > _LAG
        debuggee = self.debuggee
        return is_known and not (self.stops or debuggee.task or debuggee.driver or debuggee.parent)

    # --- stops ---------------------------------------------------------------------------

    def has_failed(self, thread: int) -> bool:
        """Returns whether a thread is stopped because of an exception."""
        return thread in self.stops and self.stops[thread].body.get("reason") == "exception"

    async def sleep(self) -> None:
        """Turns tracing off, for full speed, unless a thread is stopped."""
        if not self.stops:
            await self.installed.tracing.sleep()

    def stopped(self, thread: int, body: Message) -> Stop:
        """Records a thread's stop; `body` is the body of debugpy's event."""
        now = datetime.now(timezone.utc).isoformat(timespec="microseconds")
        self.stops[thread] = stop = Stop(body, now.replace("+00:00", "Z"))
        return stop

    def resumed(self, threads: Iterable[int]) -> dict[int, Stop]:
        """Records that these threads resume; returns their stops."""
        stops = {thread: self.stops.pop(thread) for thread in [*threads] if thread in self.stops}
        self.installed.tracing.resumed()
        self.resumes.update([*stops, None])
        if stops:
            self._resumed_at = time.monotonic()
        return stops

    def did_not_resume(self, stops: Mapping[int, Stop]) -> None:
        """Restores the stops that `resumed` returned: their threads did not resume."""
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
