"""The debugger for scripts: records every stop, lets it go on, and ends when the job has ended."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from bootstrap.debug import stops
from bootstrap.debug.client import Client
from bootstrap.debug.session import (
    Connect,
    Debuggee,
    Discovery,
    Ended,
    JobEnded,
    Lost,
    Session,
    Stop,
    Waiting,
)
from bootstrap.errors import DebuggerGone, RaysideError, RequestFailed

OnEvent = Callable[[str], None]

_FINISHING = 15.0  # seconds for the stops that are being read when everything else is over


async def run(
    discovery: Discovery,
    *,
    evaluate: Sequence[str] = (),
    timeout: float = 60,
    on_event: OnEvent,
    connect: Connect = Client.connect,
) -> dict[str, Any]:
    """Attaches to every paused task as it appears, side by side, and records each of its stops.

    Args:
        evaluate: expressions to evaluate in the user's innermost frame at each stop. One that
            raises has the value `<NameError: name 'y' is not defined>`.
        timeout: seconds without a stop after which it leaves; the tasks go on.
        on_event: told what happens on the way, a line each.

    Returns:
        `{"stopped": [{"task", "worker_id", "reason", "file", "line", "function", "locals": {name: repr},
        "evaluated": {expression: repr}}], "job": {"submission_id", "status"}}`, in the order of the
        stops. Both values of `job` are None where no job is watched.

    Raises:
        RaysideError: Ray is gone.
    """
    recorder = _Recorder(Session(discovery, connect=connect), list(evaluate), on_event)
    try:
        await recorder.watch(timeout)
        await recorder.finish()
    finally:
        await recorder.session.close()
    job = await recorder.session.job()
    return {
        "stopped": [record for record in recorder.records if record],
        "job": {
            "submission_id": job.submission_id if job else None,
            "status": job.status if job else None,
        },
    }


def run_sync(
    discovery: Discovery,
    *,
    evaluate: Sequence[str] = (),
    timeout: float = 60,
    on_event: OnEvent,
    connect: Connect = Client.connect,
) -> dict[str, Any]:
    """`run`, for a caller without an event loop."""
    return asyncio.run(run(discovery, evaluate=evaluate, timeout=timeout, on_event=on_event, connect=connect))


class _Recorder:
    def __init__(self, session: Session, expressions: list[str], on_event: OnEvent) -> None:
        self.session = session
        self.records: list[dict[str, Any]] = []  # empty until read, so that the order is that of the stops
        self._expressions = expressions
        self._on_event = on_event
        self._working: set[asyncio.Future[None]] = set()

    async def watch(self, timeout: float) -> None:
        """Until the job has ended, or nothing has stopped for `timeout` seconds."""
        self.session.start()
        last = time.monotonic()
        while True:
            left = last + timeout - time.monotonic()
            try:
                happening = await asyncio.wait_for(self.session.happenings.get(), max(0.0, left))
            except asyncio.TimeoutError:
                self._on_event(f"nothing stopped for {timeout:g} s; the tasks go on")
                return
            if isinstance(happening, Waiting):
                for debuggee in self.session.waiting:
                    self._work(self._attach(debuggee))
            elif isinstance(happening, Stop):
                last = time.monotonic()
                record: dict[str, Any] = {}
                self.records.append(record)
                self._work(self._record(happening, record))
            elif isinstance(happening, Ended):
                if happening.was_stopped:
                    self._on_event(f"{happening.attached.debuggee.title} ended while it was stopped")
            elif isinstance(happening, JobEnded):
                self._on_event(f"job {happening.job.submission_id} ended: {happening.job.status}")
                return
            elif isinstance(happening, Lost):
                raise happening.error

    async def finish(self) -> None:
        if self._working:
            await asyncio.wait(self._working, timeout=_FINISHING)
        for work in self._working:
            work.cancel()

    def _work(self, work: Awaitable[None]) -> None:
        future = asyncio.ensure_future(work)
        self._working.add(future)
        future.add_done_callback(self._worked)

    def _worked(self, future: asyncio.Future[None]) -> None:
        self._working.discard(future)
        if not future.cancelled() and (error := future.exception()) is not None:
            # A defect: without this, everything would wait for a stop that is never let go.
            self.session.happenings.put_nowait(
                Lost(error if isinstance(error, Exception) else RuntimeError(repr(error)))
            )

    async def _attach(self, debuggee: Debuggee) -> None:
        try:
            await self.session.attach(debuggee)
        except RaysideError as error:
            self._on_event(f"{debuggee.title}: {error.message}")

    async def _record(self, stop: Stop, record: dict[str, Any]) -> None:
        debuggee = stop.attached.debuggee
        try:
            try:
                read = await self._read(stop)
                record.update(read)
                self._on_event(f"{read['task'] or debuggee.title} stopped at {read['file']}:{read['line']}")
            finally:
                if not stop.attached.left:
                    self.session.look_soon()
                    await stop.attached.move("continue", stop.thread_id)
        except (DebuggerGone, RequestFailed) as error:
            self._on_event(f"{debuggee.title}: {error.message}")

    async def _read(self, stop: Stop) -> dict[str, Any]:
        client = stop.attached.client
        found = await stops.frames(stop)
        if not found:
            raise RequestFailed("it stopped without a frame", hint="Try again.")
        frame = found[0]
        evaluated: dict[str, str] = {}
        task = await stops.task_name(stop, frame)
        variables = await stops.variables(client, frame)
        for expression in self._expressions:
            try:
                evaluated[expression] = await stops.evaluate(client, frame, expression)
            except RequestFailed as error:
                evaluated[expression] = f"<{error.message}>"
        return {
            "task": task,
            "worker_id": stop.attached.debuggee.worker_id,
            "reason": stop.reason,
            "file": self.session.discovery.local_path(frame.path) or frame.path,
            "line": frame.line,
            "function": frame.function,
            "locals": variables,
            "evaluated": evaluated,
        }
