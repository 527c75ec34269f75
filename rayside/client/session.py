"""Session at the debug relay: stopped tasks, resuming, and the job's state.

It is independent of Ray and Kubernetes. The relay shows the cluster as one process, in which each stopped
thread is a task; a `JobWatch` reports the end of the job, which no debugger can.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from rayside.client.breakpoints import Breakpoints
from rayside.client.commands import Place
from rayside.client.events import (
    Ended,
    JobEnded,
    JobState,
    Lost,
    Notice,
    SessionEvent,
    Stop,
    busy,
    error_of,
    relay_gone,
    stop_of,
)
from rayside.dap.additions import AGENT, ALWAYS, BUSY, EXITED, RESTART, TAKEN_OVER, WAITING
from rayside.dap.client import Client
from rayside.dap.framing import Message
from rayside.errors import AttachFailed, DebuggerGone, NotRunning, RaysideError, RequestFailed

# Seconds between two polls of the job: short after an event, then growing. A poll is one request to Ray's
# dashboard, of 4 to 50 ms.
SOON, SELDOM, SLOWING = 0.25, 2.0, 1.5
POLL_TIMEOUT = 20.0
FAILURES_BEFORE_GONE = 3
LEAVE_TIMEOUT = 5.0


class JobWatch(Protocol):
    """Watcher of a session's job."""

    def job(self) -> JobState | None:
        """Returns the state of the watched job, if any; may block for a short, bounded time."""


class NoJob:
    """Watcher without a job: the session lasts until the debugger disconnects."""

    def job(self) -> None:
        return None


# Connects to the relay, as `Client.connect` does.
Connect = Callable[..., Awaitable[Client]]


@dataclass(frozen=True)
class AttachOptions:
    """Options of an attachment to the relay.

    Attributes:
        connect: connects to the relay; called with `on_event`.
        token: Ray's token, for authentication at the relay.
        job: a submission id, or Ray's job id, for only that job's tasks; None for the tasks of all jobs.
        everyone: whether the jobs of all users on the cluster are included, not only this user's.
        breakpoints: the breakpoints to set before any task runs; each has an absolute `file`.
        exceptions: whether to stop at exceptions that a task does not catch.
        children: whether child processes of tasks are debugged as well.
        take_over: `always`, `ask` (raises `DebuggerBusy`) or `watch`, if another debugger has the same
            tasks.
        agent: whether it is a coding agent, which never takes over; stopped tasks stay stopped at its end.
    """

    connect: Connect
    token: str
    job: str | None = None
    everyone: bool = False
    breakpoints: Sequence[Place] = ()
    exceptions: bool = False
    children: bool = True
    take_over: str = ALWAYS
    agent: bool = False


class Session:
    """Session at the relay, attached from `start` until `close`.

    Attributes:
        events: all events, in order, for one consumer.
        stops: the current stops, by thread, in order of arrival.
        breakpoints: the breakpoints of all tasks.
        seen: the last known state of the watched job; None without one.
        ended: the job's state after its end.
        lost: the error that has ended the session; None before.
        taken: threads that a person's debugger has taken out of this session, which continues.
        waiting: whether the connection to the relay is lost, and a forward reconnects.
    """

    def __init__(self, options: AttachOptions, watch: JobWatch) -> None:
        self.events: asyncio.Queue[SessionEvent] = asyncio.Queue()
        self.stops: dict[int, Stop] = {}
        self.breakpoints = Breakpoints(options.breakpoints)
        self.seen: JobState | None = None
        self.taken: set[int] = set()
        self.ended: JobState | None = None
        self.lost: Exception | None = None
        self.waiting = False
        self._options = options
        self._watch = watch
        self._client: Client | None = None
        # Ids of the watched job, and of the jobs of all stops until now.
        self._jobs: set[str] = set()
        self._resumed: dict[int, Stop] = {}  # the last stop of each thread that was resumed
        self._wake = asyncio.Event()
        self._closing = False
        self._watching: list[asyncio.Future[None]] = []

    @property
    def client(self) -> Client:
        assert self._client is not None, "not attached yet"
        return self._client

    @property
    def watching(self) -> bool:
        """Returns whether this session only watches another debugger's tasks."""
        return bool((self.client.attached.get("ray") or {}).get("watching"))

    async def start(self) -> None:
        """Attaches.

        Raises:
            NotRunning: no relay answers.
            DebuggerBusy: another debugger has these tasks, and `take_over` is `ask`.
            AttachFailed: the relay refuses, most often because the token is another cluster's.
        """
        await self._attach({})
        self._watching = [asyncio.ensure_future(work) for work in (self._watch_relay(), self._watch_job())]

    async def _attach(self, more: Mapping[str, Any]) -> None:
        options = self._options
        try:
            self._client = await options.connect(on_event=self._event)
        except DebuggerGone as error:
            raise NotRunning(
                f"the debug relay does not answer: {error.message}", hint="./invokew up brings it up"
            ) from error
        arguments: dict[str, Any] = {"token": options.token, "takeOver": options.take_over, **more}
        if options.job is not None:
            arguments["job"] = options.job
        if options.everyone:
            arguments["everyone"] = True
        if not options.children:
            arguments["children"] = False
        if options.agent:
            arguments |= {AGENT: True, "keepPaused": True}
        filters = ["uncaught", *(["userUnhandled"] if options.exceptions else [])]
        try:
            # The relay has turned off Nagle's algorithm in every debuggee.
            await self._client.attach(
                exception_filters=filters,
                options=arguments,
                no_delay=False,
                configure=self._set_breakpoints,
            )
        except AttachFailed as error:
            self._client.close()
            if isinstance(error.__cause__, RequestFailed) and error.__cause__.ray.get("reason") == BUSY:
                raise busy(error.__cause__.ray) from error
            hint = "./invokew status shows whether this is the cluster you mean"
            raise AttachFailed(error.message, hint=hint) from error
        except DebuggerGone as error:
            self._client.close()
            raise relay_gone(error.message) from error
        except BaseException:
            self._client.close()
            raise

    def title(self, stop: Stop) -> str:
        """Returns the title of a stop's task, with its job if several jobs are known."""
        return f"{stop.title} of job {stop.job}" if stop.job and len(self._jobs) > 1 else stop.title

    def poll_soon(self) -> None:
        """Polls the job immediately, and often for a while, since its state is about to change."""
        self._wake.set()

    async def resume(self, command: str, stop: Stop) -> None:
        """Resumes one task with `continue`, `next`, `stepIn` or `stepOut`."""
        self.stops.pop(stop.thread_id, None)
        self._resumed[stop.thread_id] = stop
        self.poll_soon()
        try:
            await self.client.request(command, {"threadId": stop.thread_id})
        except RequestFailed:
            # It may have stopped again, or ended, meanwhile.
            if self._resumed.pop(stop.thread_id, None) is stop:
                self.stops[stop.thread_id] = stop
            raise

    async def next_event(self, timeout: float) -> SessionEvent | None:
        """Returns the next event; None if there is none within `timeout` seconds."""
        try:
            return await asyncio.wait_for(self.events.get(), timeout)
        except asyncio.TimeoutError:
            return None

    async def pending_events(self) -> list[SessionEvent]:
        """Returns the events that have not been consumed."""
        events = []
        while not self.events.empty():
            events.append(self.events.get_nowait())
        return events

    async def job(self) -> JobState | None:
        """Returns the job's current state, with a timeout."""
        self.seen = await asyncio.wait_for(asyncio.to_thread(self._watch.job), POLL_TIMEOUT)
        return self.seen

    async def close(self, *, keep_stopped: bool = False) -> None:
        """Detaches; stopped tasks resume, or stay stopped for the next debugger (`keep_stopped`)."""
        # A flag in addition to the cancellation, which `wait_for` loses if its awaitable ends at the same
        # time (Python before 3.12).
        self._closing = True
        for watching in self._watching:
            watching.cancel()
        if self._watching:
            await asyncio.wait(self._watching, timeout=POLL_TIMEOUT)
        client = self._client
        if client is None:
            return
        if not client.closed.is_set():
            await client.drain(LEAVE_TIMEOUT)
            arguments = {"terminateDebuggee": False, "suspendDebuggee": keep_stopped}
            # If the relay does not answer, closing the connection suffices: the relay then resumes all tasks.
            with suppress(RequestFailed, DebuggerGone):
                await client.request("disconnect", arguments, timeout=LEAVE_TIMEOUT)
        client.close()

    # --- events from the relay -----------------------------------------------------------

    def _event(self, event: Message) -> None:
        name, body = event.get("event"), event.get("body") or {}
        reason = (body.get("ray") or {}).get("reason")
        if name == "stopped":
            stop = stop_of(body)
            self._resumed.pop(stop.thread_id, None)
            self.stops[stop.thread_id] = stop
            self.taken.discard(stop.thread_id)
            self._jobs |= {stop.job} - {""}
            self.events.put_nowait(stop)
        elif name == "continued" and reason != EXITED:
            # This session may not have resumed it: the threads of a process may resume together.
            stopped = self.stops.pop(body.get("threadId", 0), None)
            if stopped is not None:
                self._resumed[stopped.thread_id] = stopped
        elif name == "thread" and body.get("reason") == "exited":
            self._thread_exited(body.get("threadId", 0), reason)
        elif name == "breakpoint":
            self._tell(self.breakpoints.changed(body.get("breakpoint") or {}))
        elif name == "output" and "data" in body:
            return  # output of tasks, which a watched editor has requested
        elif name == "output" and body.get("category", "console") in {"important", "console", "stderr"}:
            self.waiting = self.waiting or reason == WAITING
            self._tell([str(body.get("output", "")).strip()])
        elif name == "terminated" and "restart" in body and self._watching and not self._closing:
            self._watching[0].cancel()
            self._watching[0] = asyncio.ensure_future(self._attach_again(body["restart"]))
        elif name == "terminated":
            self._lose(error_of(reason))

    async def _attach_again(self, restart: object) -> None:
        """Attaches through the restored connection, and watches the relay; it takes over from nobody."""
        self.client.close()
        self.stops.clear()
        self._resumed.clear()
        try:
            await self._attach({RESTART: restart})
        except RaysideError as error:
            self._lose(error)
            return
        self.waiting = False
        await self._watch_relay()

    def _thread_exited(self, thread_id: int, reason: object) -> None:
        stopped, resumed = self.stops.pop(thread_id, None), self._resumed.pop(thread_id, None)
        stop = stopped or resumed
        if reason == TAKEN_OVER:
            self.taken.add(thread_id)
            self.poll_soon()  # the relay has reported the debugger in which it is stopped now
        elif stop is not None:
            self.events.put_nowait(Ended(stop, was_stopped=stopped is not None))
            self.poll_soon()

    def _tell(self, texts: Sequence[str]) -> None:
        for text in texts:
            if text:
                self.events.put_nowait(Notice(text))

    def _lose(self, error: Exception) -> None:
        if self.lost is None and not self._closing:
            self.lost = error
            self.stops.clear()
            self.events.put_nowait(Lost(error))

    async def _set_breakpoints(self) -> None:
        for path in self.breakpoints.files():
            self._tell(await self.breakpoints.send(self.client, path))

    async def _watch_relay(self) -> None:
        await self.client.closed.wait()
        self._lose(relay_gone("it closed the connection"))

    # --- the job -------------------------------------------------------------------------

    async def _watch_job(self) -> None:
        pace, failures = SOON, 0
        while not self._closing:
            try:
                job = await self.job()
            except asyncio.CancelledError:
                raise
            except Exception as error:
                # While the connection is lost, the forward reports whether it is restored.
                failures = 0 if self.waiting else failures + 1
                passing = isinstance(error, RaysideError | asyncio.TimeoutError)
                if not passing or failures >= FAILURES_BEFORE_GONE:
                    self._lose(error)
                    return
            else:
                failures = 0
                if job is not None:
                    self._jobs |= {job.submission_id} - {""}
                if job is not None and job.ended:
                    self.ended = job
                    self.events.put_nowait(JobEnded(job))
                    return
            try:
                await asyncio.wait_for(self._wake.wait(), pace)
            except asyncio.TimeoutError:
                pace = min(pace * SLOWING, SELDOM)
            else:
                self._wake.clear()
                pace = SOON
