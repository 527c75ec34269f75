"""Debugger tools for a coding agent: stopped and failed tasks, stacks, variables, breakpoints, evaluation.

An agent never takes over from a person: the relay lets its session only watch while a person debugs.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from rayside import plain
from rayside.client import stops
from rayside.client.commands import STEPS, Place, check_condition
from rayside.client.events import Notice, Stop, stop_after
from rayside.client.retrying import Retry, ask_in
from rayside.client.session import AttachOptions, NoJob, Session
from rayside.client.stops import Frame
from rayside.connection.access import Access
from rayside.console import PACKAGE, Console
from rayside.dap.additions import WATCH
from rayside.dap.drawn_values import drawn
from rayside.dap.expressions import problem_of, refusal_of
from rayside.dap.group_commands import drawn_retries
from rayside.errors import DebuggerBusy, DebuggerGone, InvalidArgument, NothingPaused, RequestFailed
from rayside.ray.metadata import DEBUG
from rayside.ray.records import jobs_for
from rayside.verbs import relay_requests
from rayside.verbs.cluster_job import ClusterJob, attach_options
from rayside.worker.redaction import Redactor

# Limits: characters of a line, rows of a list.
_LONGEST, _MOST_ROWS = 1_000, 50
# Limit in characters: a value, or the end of a failed task's traceback.
_MOST_OF_TEXT = 3_000
# Timeouts in seconds: for a stop to be reported here, and for further stops of the same moment.
_TOLD, _QUIET = 3.0, 0.3
_STEP, _LONGEST_WAIT, _COMPARING, _POLL, _LOOK = 2.0, 60.0, 20.0, 0.05, 0.5


class Tools:
    """Tools as methods; agents read their docstrings.

    Args:
        access: returns access to the cluster; called for each connection.
        job: id of the only visible job; None for all of the user's jobs.
        acts: whether the user allows tools that resume, evaluate or edit.
    """

    def __init__(self, access: Callable[[], Access], *, job: str | None, acts: bool) -> None:
        self._access, self._job, self._acts = access, job, acts
        self._session: Session | None = None
        self._attaching = asyncio.Lock()
        self._news: deque[str] = deque(maxlen=20)
        self._reading: asyncio.Future[None] | None = None

    # --- looking -------------------------------------------------------------------------

    async def jobs(self) -> str:
        """List the jobs of the cluster, oldest first: id, status, entrypoint, and why one failed."""
        listed = jobs_for(*await asyncio.to_thread(self._jobs))
        if self._job:
            listed = [job for job in listed if self._job in (job.submission_id, job.job_id)]
        return _document(
            [
                {
                    "job": job.submission_id,
                    "status": job.status,
                    "entrypoint": _end(job.entrypoint),
                    "debug": DEBUG in job.metadata,
                    "message": _end(job.message),
                }
                for job in listed[-_MOST_ROWS:]
            ]
        )

    async def stopped(self, wait: float = 5.0) -> str:
        """List the tasks that are stopped (by number, with file, line and exception) or have failed for good.

        Waits up to `wait` seconds (at most 60) for one to stop. A job with --debug waits for `set_breakpoint`
        at its start, up to its --attach-timeout.
        """
        end = time.monotonic() + max(0.0, min(wait, _LONGEST_WAIT))  # also for NaN
        session, rows = None, []
        with contextlib.suppress(NothingPaused):
            session = await self._attached(end)
            await _until(lambda: bool(session.stops or session.lost), end)
            await asyncio.sleep(_QUIET)
            rows = [await self._row(session, each) for each in [*session.stops.values()][:_MOST_ROWS]]
        document = {
            "stopped": rows,
            "failed": await asyncio.to_thread(self._failed),
            "only_looking": not self._acts or (session is not None and session.watching),
            "news": [*self._news],
        }
        self._news.clear()
        return _document(document)

    async def stacks(self, job: str = "") -> str:
        """Show what all processes of a job do now, grouped; of the newest job if none is named."""
        return await asyncio.to_thread(self._shown, relay_requests.stacks, job=self._job or job or None)

    async def variables(self, task: int, frame: int = 0) -> str:
        """Show the stack of a stopped task, innermost frame 0 first, and the variables of one frame."""
        session = await self._attached()
        stack, chosen = await self._frame(session, task, frame)
        rows = [
            {"frame": number, "function": each.function, "file": each.path, "line": each.line}
            for number, each in enumerate(stack[:_MOST_ROWS])
        ]
        return _document({"stack": rows, "variables": await stops.variables(session.client, chosen)})

    async def compare(self, expression: str) -> str:
        """Show what a variable has in all stopped tasks, the odd ones out first; with --act an expression."""
        if problem := refusal_of(expression):
            raise InvalidArgument(problem, hint="as in loss")
        if expression.isidentifier():
            await self._attached()
            return await asyncio.to_thread(self._shown, relay_requests.compare, expression, job=self._job)
        if not self._acts:
            raise InvalidArgument(
                "without --act only a variable's name is compared", hint="as in loss; `rayside mcp --act`"
            )
        session = await self._acting()
        answer = await session.client.request("compare", {"expression": expression}, timeout=_COMPARING)
        return "\n".join(drawn(answer))

    # --- acting --------------------------------------------------------------------------

    async def evaluate(self, task: int, expression: str, frame: int = 0) -> str:
        """Evaluate a Python expression, or run a statement, in a frame of a stopped task."""
        session = await self._acting()
        _, chosen = await self._frame(session, task, frame)
        work = stops.execute if problem_of(expression) else stops.evaluate
        return plain.plain(await work(session.client, chosen, expression))

    async def set_breakpoint(self, file: str, line: int, condition: str = "") -> str:
        """Stop every task at a line of a local file of the job's; with a condition only where that holds."""
        check_condition(condition)
        place = Place(_path(file), line, condition or None)
        session = await self._acting([place])
        return plain.line(await session.breakpoints.add(session.client, place, ""), _LONGEST)

    async def remove_breakpoint(self, file: str, line: int) -> str:
        """Remove the breakpoint at a line."""
        session = await self._acting()
        removed = await session.breakpoints.remove(session.client, Place(_path(file), line, None), "")
        return plain.counted(removed, "breakpoint") + " removed"

    async def resume(self, task: int, how: Literal["continue", "next", "step", "finish"] = "continue") -> str:
        """Let a stopped task go on, or step it to the next line, into a call, or out of its function."""
        session = await self._acting()
        stop, before = await self._stop(session, task), [*session.stops.values()]
        await session.resume(STEPS.get(how, how), stop)
        if how in STEPS:
            end = time.monotonic() + _STEP
            await _until(lambda: stop_after(stop, session.stops.values(), before) is not None, end)
        again = stop_after(stop, session.stops.values(), before)
        if again is not None:
            return _document(await self._row(session, again))
        return "it goes on; `stopped` waits for the next stop"

    async def retry(self, task: str = "") -> str:
        """Run failed tasks again in place, with the local files as they are now: edit these first.

        `task` is a name, a process id, or `@` with an expression as `@ray.task == 'work'`; empty for all.
        """
        session = await self._acting()
        return "\n".join(drawn_retries(await ask_in(session, Retry(task))))

    # --- the session ---------------------------------------------------------------------

    async def _attached(self, end: float = 0.0, places: Sequence[Place] | None = None) -> Session:
        """Returns the session, or attaches a new one. Raises RaysideError.

        Without initial breakpoints (`places`) it attaches only once a task is paused, and waits for one until
        `end` (monotonic seconds): a job that waits for its debugger would otherwise start without any.
        """
        async with self._attaching:
            if self._session is not None and self._session.lost is None:
                return self._session
            await self.close()
            while places is None and not await asyncio.to_thread(self._is_any_paused):
                if time.monotonic() >= end:
                    raise NothingPaused("no task is paused", hint="`stopped` waits for one")
                await asyncio.sleep(_LOOK)
            session = Session(await asyncio.to_thread(self._options, places or ()), NoJob())
            await session.start()
            self._session, self._reading = session, asyncio.ensure_future(self._read(session))
            return session

    async def _acting(self, places: Sequence[Place] | None = None) -> Session:
        """Returns a session that may act. Raises RaysideError."""
        lost = self._session.lost if self._session is not None else None
        session = await self._attached(places=places)
        if session.watching:
            raise DebuggerBusy(
                "a person (or another agent) has taken over, or was first: you only look at these tasks",
                hint="ask the person to leave them to you, or to do it themselves",
            )
        if lost is not None:
            raise DebuggerGone(f"nothing was done: {lost}", hint="`stopped` shows what is there now")
        return session

    def _options(self, places: Sequence[Place]) -> AttachOptions:
        access = self._access()
        job = access.require().job(self._job).submission_id if self._job else None
        options = attach_options(access.identity, job, places, exceptions=False, take_over=WATCH)
        return replace(options, agent=True)

    async def _read(self, session: Session) -> None:
        while True:
            event = await session.events.get()
            if isinstance(event, Notice):
                self._news.append(event.text)

    async def close(self) -> None:
        """Detaches; stopped tasks stay stopped for a person, as an agent's `attach` requests."""
        if self._reading is not None:
            self._reading.cancel()
        if self._session is not None:
            await self._session.close()
        self._session = self._reading = None

    async def _stop(self, session: Session, task: int) -> Stop:
        await _until(lambda: task in session.stops, time.monotonic() + _TOLD)
        stop = session.stops.get(task)
        if stop is None:
            who = "a person has taken it over" if task in session.taken else "it has resumed or ended"
            raise InvalidArgument(f"task {task} is not stopped here: {who}", hint="`stopped` lists what is")
        return stop

    async def _frame(self, session: Session, task: int, number: int) -> tuple[list[Frame], Frame]:
        stop = await self._stop(session, task)
        stack = [each for each in await stops.frames(session.client, stop) if not each.is_label]
        if not 0 <= number < len(stack):
            raise InvalidArgument(f"there is no frame {number}", hint=f"it has {len(stack)}, from 0")
        return stack, stack[number]

    async def _row(self, session: Session, stop: Stop) -> dict[str, Any]:
        row = {"task": stop.thread_id, "name": stop.title, "job": stop.job, "why": stop.why}
        with contextlib.suppress(RequestFailed):  # It has resumed meanwhile.
            for frame in (await stops.frames(session.client, stop))[:1]:
                row |= {"file": frame.path, "line": frame.line, "function": frame.function}
        return row

    # --- without the session, in a thread -------------------------------------------------

    def _is_any_paused(self) -> bool:
        return bool(relay_requests.paused(self._access()).tasks)

    def _jobs(self) -> tuple[str, Any]:
        access = self._access()
        return access.identity.user, access.require().jobs()

    def _failed(self) -> list[dict[str, Any]]:
        """Returns the failed tasks of the job, or of the newest."""
        access = self._access()
        dashboard = access.require()
        job = dashboard.job(self._job) if self._job else None
        job = job or ClusterJob(dashboard, None, access.identity.user).submitted()
        if job is None or not job.job_id:
            return []
        rows = dashboard.table("tasks", state="FAILED", job_id=job.job_id)[:_MOST_ROWS]
        return [
            {
                "name": row.get("name"),
                "job": job.submission_id,
                "exception": _end(str(row.get("error_message") or row.get("error_type"))),
            }
            for row in rows
        ]

    def _shown(self, verb: Callable[..., None], *arguments: str, **options: str | None) -> str:
        """Returns the text that a verb prints for people."""
        access, out = self._access(), io.StringIO()
        console = Console(out=out, err=io.StringIO(), program=PACKAGE, cluster=access.identity.name)
        verb(access, console, *arguments, **options)
        return out.getvalue()


async def _until(holds: Callable[[], bool], end: float) -> None:
    while not holds() and time.monotonic() < end:
        await asyncio.sleep(_POLL)


def _path(file: str) -> str:
    path = Path(file).expanduser().absolute()
    if not path.is_file():
        raise InvalidArgument(f"there is no file {path}", hint="name it from the folder of the server")
    return str(path)


def _end(text: str) -> str:
    """Returns the end of a text from Ray, without secrets of known formats."""
    return Redactor(()).text(text)[-_MOST_OF_TEXT:]


def _document(value: Any) -> str:
    return plain.document(_cut(value))


def _cut(value: Any) -> Any:
    """Returns the value with each text shortened, so that a long one doesn't hide others."""
    if isinstance(value, dict):
        return {str(key)[:_LONGEST]: _cut(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_cut(each) for each in value]
    return f"{value[:_MOST_OF_TEXT]}..." if isinstance(value, str) and len(value) > _MOST_OF_TEXT else value
