"""Debugger for scripts: records every stop, resumes the task, and ends with the job."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from rayside.client import stops
from rayside.client.events import Ended, JobEnded, Lost, Notice, Stop
from rayside.client.session import AttachOptions, JobWatch, Session
from rayside.errors import DebuggerGone, RequestFailed
from rayside.event_loop import background_loop
from rayside.options import MOST_STOPS
from rayside.plain import counted

OnEvent = Callable[[str], None]

_FINISHING = 15.0  # timeout in seconds for pending reads of stops at the end


class Interruption(KeyboardInterrupt):
    """Ctrl-C, or a signal such as SIGTERM, while stops are recorded; `document` is as from `run_sync`."""

    def __init__(self, document: dict[str, Any]) -> None:
        super().__init__()
        self.document = document


def run_sync(
    options: AttachOptions,
    watch: JobWatch,
    *,
    evaluate: Sequence[str] = (),
    timeout: float = 60,
    most: int = MOST_STOPS,
    on_event: OnEvent,
) -> dict[str, Any]:
    """Records the stops of all tasks, in parallel, and resumes the tasks.

    Args:
        evaluate: expressions to evaluate in the innermost user frame at each stop. One that
            raises has the value `<NameError: name 'y' is not defined>`.
        timeout: seconds without a stop until it detaches; the tasks continue (default: 60).
        most: number of stops until it detaches.
        on_event: called with a line of text for each event.

    Returns:
        `{"stopped": [{"task", "worker_id", "reason", "file", "line", "function", "locals": {name: repr},
        "evaluated": {expression: repr}}], "job": {"submission_id", "status"}}`, in the order of the
        stops. Both values of `job` are None if no job is watched.

    Raises:
        Interruption: it was interrupted; the tasks continue.
        RaysideError: the relay or Ray is gone, or another debugger took over.
    """
    session = Session(options, watch)
    recorder = Recorder(session, list(evaluate), on_event)

    try:
        with background_loop() as call:
            call(session.start())
            try:
                call(recorder.watch(timeout, most))
                call(recorder.finish())
            finally:
                call(session.close())
            call(session.job())
    except (KeyboardInterrupt, SystemExit):
        raise Interruption(recorder.document()) from None
    return recorder.document()


class Recorder:
    """Recorder of a session's stops; it resumes each task."""

    def __init__(self, session: Session, expressions: list[str], on_event: OnEvent) -> None:
        self.session = session
        self.records: list[dict[str, Any]] = []  # in order of the stops; each is empty until it is read
        self.expressions = expressions
        self._on_event = on_event
        self._working: set[asyncio.Future[None]] = set()
        # By thread: the record of a stop whose `continue` may have failed.
        self._unsure: dict[int, dict[str, Any]] = {}

    def document(self) -> dict[str, Any]:
        """Returns the document of `run_sync`, with the job's last known status."""
        job = self.session.seen
        return {
            "stopped": [record for record in self.records if record],
            "job": {
                "submission_id": (job.submission_id or None) if job else None,
                "status": job.status if job else None,
            },
        }

    async def watch(self, timeout: float, most: float = math.inf) -> None:
        """Records until the job has ended, `most` stops are recorded, or none came for `timeout` seconds."""
        last = time.monotonic()
        while len(self.records) < most:
            left = last + timeout - time.monotonic()
            try:
                event = await asyncio.wait_for(self.session.events.get(), max(0.0, left))
            except asyncio.TimeoutError:
                if self.session.waiting:
                    last = time.monotonic()
                    continue
                self._on_event(f"nothing stopped for {timeout:g} s; the tasks go on")
                return
            if isinstance(event, Stop):
                last = time.monotonic()
                record: dict[str, Any] = {}
                self.records.append(record)
                self._work(self._record(event, record))
            elif isinstance(event, Notice):
                self._on_event(event.text)
            elif isinstance(event, Ended):
                if event.was_stopped:
                    self._on_event(f"{event.stop.title} ended while it was stopped")
            elif isinstance(event, JobEnded):
                self._on_event(f"{event.job.title} ended: {event.job.status}")
                return
            elif isinstance(event, Lost):
                raise event.error
        self._on_event(f"it ends after {counted(len(self.records), 'stop')} (--stops); the tasks go on")

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
            # This is a defect: without an event, the session would wait for a stop that never resumes.
            self.session.events.put_nowait(
                Lost(error if isinstance(error, Exception) else RuntimeError(repr(error)))
            )

    async def _record(self, stop: Stop, record: dict[str, Any]) -> None:
        read: dict[str, Any] = {}
        try:
            try:
                read = await self._read(stop)
                # After a lost connection, the same stop may be reported again.
                if self._unsure.pop(stop.thread_id, None) != read:
                    record.update(read)
                    self._on_event(f"{read['task'] or stop.title} stopped at {read['file']}:{read['line']}")
            finally:
                if self.session.stops.get(stop.thread_id) is stop:
                    await self.session.resume("continue", stop)
        except (DebuggerGone, RequestFailed) as error:
            if read:
                self._unsure[stop.thread_id] = read
            self._on_event(f"{stop.title}: {error.message}")

    async def _read(self, stop: Stop) -> dict[str, Any]:
        client = self.session.client
        frames = await stops.frames(client, stop)
        if not frames:
            raise RequestFailed("it stopped without a frame", hint="Try again.")
        frame = frames[0]
        evaluated: dict[str, str] = {}
        variables = await stops.variables(client, frame)
        for expression in self.expressions:
            try:
                evaluated[expression] = await stops.evaluate(client, frame, expression)
            except RequestFailed as error:
                evaluated[expression] = f"<{error.message}>"
        return {
            "task": stop.task,
            "worker_id": stop.worker_id,
            "reason": stop.reason,
            "file": frame.path,
            "line": frame.line,
            "function": frame.function,
            "locals": variables,
            "evaluated": evaluated,
        }
