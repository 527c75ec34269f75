"""Many debuggees side by side: who waits for a debugger, who is attached, who stopped, who ended.

Knows nothing of Ray or Kubernetes: a `Discovery` finds the debuggees. Ray uses a worker again for its
next task, and the next `breakpoint()` of an attached worker is a further `stopped` on the same
connection; so connections are kept until the worker or the job ends.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Protocol

from bootstrap.debug.client import Client, OnEvent
from bootstrap.debug.dap import Message
from bootstrap.errors import AttachFailed, DebuggerGone, RaysideError, RequestFailed

# Seconds between two looks at Ray: soon after something happened, then ever more seldom. A look
# is two State API calls of 4 to 50 ms.
SOON, SELDOM, SLOWING = 0.25, 2.0, 1.5
LOOK_TIMEOUT = 20.0
LOOKS_BEFORE_GONE = 3


@dataclass(frozen=True)
class Debuggee:
    """One Ray worker that is paused and waits for a debugger on `host`:`port`."""

    worker_id: str
    host: str
    port: int
    pid: int
    node_ip: str
    job_id: str
    task: str  # empty while Ray's task rows lag behind its worker rows, by about a second
    since: str

    @property
    def title(self) -> str:
        return f"{self.task or 'a task'} · {self.pid}@{self.node_ip}"


@dataclass(frozen=True)
class JobState:
    """The job that is watched."""

    submission_id: str
    status: str
    ended: bool


class Discovery(Protocol):
    """Where debuggees come from. Every method may block for a short, bounded time."""

    def paused(self) -> list[Debuggee]:
        """Those that wait for a debugger now; an attached one waits no longer."""

    def job(self) -> JobState | None:
        """The job that is watched, if one is."""

    def local_path(self, remote: str) -> str | None:
        """Where a debuggee's file lies on this machine; None where it maps nowhere."""


@dataclass(frozen=True, eq=False)
class Stop:
    """One thread of one debuggee standing still."""

    attached: Attached
    thread_id: int
    reason: str  # DAP's: breakpoint, step, exception, goto, pause
    text: str
    # True where a `breakpoint()` call stopped it, and no line breakpoint.
    by_call: bool


@dataclass(frozen=True)
class Waiting:
    """The debuggees that wait for a debugger have changed; `Session.waiting` has them."""


@dataclass(frozen=True)
class Ended:
    """The connection to a debuggee ended from the other side."""

    attached: Attached
    was_stopped: bool


@dataclass(frozen=True)
class JobEnded:
    job: JobState


@dataclass(frozen=True)
class Lost:
    """Discovery failed for good: Ray is gone, or there is a defect. Nothing is looked for any more."""

    error: Exception


Happening = Stop | Waiting | Ended | JobEnded | Lost
Connect = Callable[..., Awaitable[Client]]


class Attached:
    """A debuggee with our client in it.

    Attributes:
        stop: where it stands; None while it runs.
        task: the task it runs, as far as is known.
        left: whether the connection has ended, or is about to.
    """

    def __init__(self, debuggee: Debuggee, report: Callable[[Happening], None]) -> None:
        self.debuggee = debuggee
        self.stop: Stop | None = None
        self.task = debuggee.task
        self.left = False
        self._report = report
        self._stopped = asyncio.Event()
        self._watching: asyncio.Future[None] | None = None
        self._client: Client | None = None

    @property
    def title(self) -> str:
        return replace(self.debuggee, task=self.task).title

    @property
    def client(self) -> Client:
        assert self._client is not None, "not attached yet"
        return self._client

    async def attach(self, connect: Connect) -> None:
        on_event: OnEvent = self._event
        self._client = await connect(self.debuggee.host, self.debuggee.port, on_event=on_event)
        try:
            await self._client.attach()
        except BaseException:
            self.left = True
            self._client.close()
            raise
        self._watching = asyncio.ensure_future(self._watch(self._client))

    async def move(self, command: str, thread_id: int) -> None:
        """Lets the debuggee go on: `continue`, `next`, `stepIn` or `stepOut`."""
        was, self.stop = self.stop, None
        self._stopped.clear()
        try:
            await self.client.request(command, {"threadId": thread_id})
        except RequestFailed:
            if not self._stopped.is_set():
                self.stop = was
            raise

    async def goto(self, path: str, line: int) -> None:
        """Makes `line` of the top frame the next one to run; stands there when it returns.

        Raises:
            RequestFailed: Python can't jump there from here. Where it stands is unchanged.
        """
        was = self.stop
        assert was is not None, "a debuggee jumps while it stands"
        found = await self.client.request("gotoTargets", {"source": {"path": path}, "line": line})
        targets = found.get("targets") or [{}]
        self._stopped.clear()
        await self.client.request("goto", {"threadId": was.thread_id, "targetId": targets[0].get("id", 0)})
        await self.stopped(5.0)

    async def stopped(self, timeout: float) -> Stop:
        """The stop that follows a move.

        Raises:
            RequestFailed: it runs on after `timeout` seconds.
            DebuggerGone: it ended.
        """
        waits = [asyncio.ensure_future(e.wait()) for e in (self._stopped, self.client.closed)]
        try:
            await asyncio.wait(waits, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        if self.stop is None or not self._stopped.is_set():
            raise RequestFailed(f"{self.title} runs on", hint="Wait for its next stop with `continue`.")
        return self.stop

    async def leave(self) -> None:
        """Disconnects; the debuggee runs on."""
        self.left = True
        if self._watching is not None:
            self._watching.cancel()
        if self._client is not None:
            await self._client.disconnect()

    def _event(self, event: Message) -> None:
        body = event.get("body") or {}
        if event.get("event") == "stopped":
            self.stop = Stop(
                attached=self,
                thread_id=int(body.get("threadId", 0)),
                reason=str(body.get("reason", "")),
                text=str(body.get("text") or ""),
                by_call=body.get("reason") == "breakpoint" and not body.get("hitBreakpointIds"),
            )
            self._stopped.set()
            self._report(self.stop)
        elif event.get("event") == "terminated" and not self.left:
            # The adapter outlives a killed worker, and waits for its client to leave.
            asyncio.ensure_future(self.client.disconnect(timeout=1.0))  # noqa: RUF006 (ends by its deadline)

    async def _watch(self, client: Client) -> None:
        await client.closed.wait()
        if not self.left:
            self.left = True
            self._report(Ended(self, was_stopped=self.stop is not None))


class Session:
    """Looks for debuggees from `start` until `close`, and says in `happenings` what came to pass.

    Attributes:
        happenings: in order, for one consumer.
        waiting: the debuggees that wait for a debugger and that nobody here attaches to.
        attached: by worker id.
        ended: the state of the watched job once it has ended.
        lost: why nothing is looked for any more.
    """

    def __init__(self, discovery: Discovery, *, connect: Connect = Client.connect) -> None:
        self.discovery = discovery
        self.happenings: asyncio.Queue[Happening] = asyncio.Queue()
        self.waiting: list[Debuggee] = []
        self.attached: dict[str, Attached] = {}
        self.ended: JobState | None = None
        self.lost: Exception | None = None
        self._connect = connect
        self._refused: set[str] = set()
        self._wake = asyncio.Event()
        self._closing = False
        self._watching: asyncio.Future[None] | None = None

    def start(self) -> None:
        self._watching = asyncio.ensure_future(self._watch())

    def look_soon(self) -> None:
        """Something is about to change: look at once, and often for a while."""
        self._wake.set()

    async def attach(self, debuggee: Debuggee) -> Attached:
        """Attaches; its stop comes as a happening.

        Raises:
            AttachFailed: it has another client. It counts as not waiting until it has gone on once.
            DebuggerGone: it ended meanwhile.
        """
        attached = Attached(debuggee, self._report)
        self.attached[debuggee.worker_id] = attached
        self.waiting = [other for other in self.waiting if other.worker_id != debuggee.worker_id]
        try:
            await attached.attach(self._connect)
        except BaseException as error:
            self.attached.pop(debuggee.worker_id, None)
            if isinstance(error, AttachFailed | DebuggerGone):
                self._refused.add(debuggee.worker_id)
            raise
        return attached

    async def leave(self, attached: Attached) -> None:
        self.attached.pop(attached.debuggee.worker_id, None)
        await attached.leave()

    async def close(self) -> None:
        """Leaves every debuggee, side by side; they run on."""
        # A flag beside the cancellation, which `wait_for` swallows when it comes together with what is
        # waited for (Python before 3.12).
        self._closing = True
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait({self._watching}, timeout=LOOK_TIMEOUT)
        leaving = [self.leave(attached) for attached in list(self.attached.values())]
        await asyncio.gather(*leaving, return_exceptions=True)

    async def waits_again(self, debuggee: Debuggee, timeout: float) -> bool:
        """Whether discovery lists it as paused within `timeout` seconds after we left it."""
        until = time.monotonic() + timeout
        while time.monotonic() < until:
            try:
                paused = await asyncio.wait_for(asyncio.to_thread(self.discovery.paused), timeout)
            except (RaysideError, asyncio.TimeoutError):
                return False
            if any(other.worker_id == debuggee.worker_id for other in paused):
                return True
            await asyncio.sleep(0.1)
        return False

    async def job(self) -> JobState | None:
        """The job's state now, with a deadline."""
        return await asyncio.wait_for(asyncio.to_thread(self.discovery.job), LOOK_TIMEOUT)

    def _report(self, happening: Happening) -> None:
        if isinstance(happening, Ended):
            self.attached.pop(happening.attached.debuggee.worker_id, None)
            self.look_soon()
        self.happenings.put_nowait(happening)

    async def _watch(self) -> None:
        pace, failures = SOON, 0
        while not self._closing:
            try:
                # The job first: a job that ended has nobody paused, whatever the order of the answers.
                job = await self.job()
                paused = await asyncio.wait_for(asyncio.to_thread(self.discovery.paused), LOOK_TIMEOUT)
            except asyncio.CancelledError:
                raise
            except Exception as error:
                failures += 1
                passing = isinstance(error, RaysideError | asyncio.TimeoutError)
                if not passing or failures >= LOOKS_BEFORE_GONE:
                    self.lost = error
                    self.happenings.put_nowait(Lost(error))
                    return
            else:
                failures = 0
                if self._take(paused):
                    pace = SOON
                    self.happenings.put_nowait(Waiting())
                if job is not None and job.ended:
                    self.ended = job
                    self.happenings.put_nowait(JobEnded(job))
                    return
            try:
                await asyncio.wait_for(self._wake.wait(), pace)
            except asyncio.TimeoutError:
                pace = min(pace * SLOWING, SELDOM)
            else:
                self._wake.clear()
                pace = SOON

    def _take(self, paused: list[Debuggee]) -> bool:
        """Whether somebody new waits."""
        self._refused &= {debuggee.worker_id for debuggee in paused}
        known = {debuggee.worker_id for debuggee in self.waiting}
        self.waiting = [
            debuggee
            for debuggee in paused
            if debuggee.worker_id not in self.attached and debuggee.worker_id not in self._refused
        ]
        return any(debuggee.worker_id not in known for debuggee in self.waiting)
