"""Dispatch of debuggees to debug sessions: polling of Ray, ownership, the list of paused tasks."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from rayside.dap.client import Origin
from rayside.dap.paused_task import PausedTask
from rayside.errors import RaysideError
from rayside.relay.debug_session import DebugSession
from rayside.relay.debuggee import Debuggee, Discovery
from rayside.relay.fan_out import BackgroundTasks
from rayside.relay.worker import Configure, NotWanted, Worker
from rayside.users import sees

# Seconds between two polls for debuggees, each of which is one request. A longer pause follows a slow poll,
# so that polling never takes more than a tenth of the dashboard's time; but one slow answer must not delay
# new tasks for long.
POLL, LEAST_SHARE, LONGEST_PAUSE = 0.2, 9, 5.0
# Timeout in seconds of Ray's list of tasks that wait for a debugger.
_LOOK = 5.0


class Dispatch:
    """Assigns each debuggee to one session at a time: the session for its job, else one for all jobs.

    Attributes:
        user: name of the relay's user, as in `Claims`.
        sessions: all debug sessions; their owner adds and removes them.
        visited: events for debuggees on a visit, set when sessions may attach again, by worker_id.
    """

    def __init__(
        self, discovery: Discovery, *, user: str, work: BackgroundTasks, log: Callable[[str], None]
    ) -> None:
        self.user = user
        self.sessions: list[DebugSession] = []
        self._discovery, self._work, self._log = discovery, work, log
        self.visited: dict[str, asyncio.Event] = {}
        # Origins that debuggees reported, by worker_id, completed with Ray's data of their jobs.
        self._told: dict[str, Origin] = {}
        self._polling: asyncio.Future[Any] | None = None
        self._soon = asyncio.Event()  # set to poll immediately

    def begin(self) -> None:
        """Hands debuggees over to a newly configured session, and starts polling for new ones."""
        for session in self.sessions:
            for worker in session.workers.attached:
                self._assign(worker, session)
        self._soon.set()
        if self._polling is None or self._polling.done():
            self._polling = asyncio.ensure_future(self._poll())

    def end(self) -> None:
        if self._polling is not None:
            self._polling.cancel()

    # --- ownership -----------------------------------------------------------------------

    def owner(self, debuggee: Debuggee) -> DebugSession | None:
        """Returns a debuggee's session with an editor; if its job is unknown, one that may ask it."""
        sessions = [session for session in self.sessions if session.editor is not None]
        by_name = [session for session in sessions if session.job is not None]
        # The user's own jobs belong to a session for these before one for everyone's jobs.
        for_all = sorted((s for s in sessions if s.job is None), key=lambda session: session.everyone)
        if not (debuggee.job_id or debuggee.submission_id):
            return next(
                (s for s in _people_first([*for_all, *by_name]) if s.lifecycle.may_try(debuggee)), None
            )
        return next((s for s in _people_first([*by_name, *for_all]) if s.is_for(debuggee)), None)

    async def meet(self, worker: Worker, origin: Origin) -> None:
        """See `Claims`; several relays may meet the same debuggee at the same time."""
        await self.know(worker, origin)
        if self.owner(worker.debuggee) is None:
            raise NotWanted

    async def know(self, worker: Worker, origin: Origin) -> None:
        """Records the origin that a debuggee reports, where it is unknown. Raises RaysideError."""
        known = worker.debuggee
        if origin.job_id and not (known.job_id or known.submission_id):
            await self._learn(worker, origin)
        if origin.user and not worker.debuggee.user:
            known = worker.debuggee
            self._note(worker, Origin(known.job_id, known.submission_id, origin.user))

    async def _learn(self, worker: Worker, origin: Origin) -> None:
        """Records a debuggee's job from Ray's list, or else as the debuggee reports it.

        The list lacks jobs: of a submission it has only the last driver's, and it lacks Serve's controller.
        """
        submission = ""
        try:
            submission = await self._discovery.submission(origin.job_id)
        except RaysideError:
            if self.user or any(session.job is not None for session in self.sessions):
                raise  # its session can't be determined
        user = self._discovery.user(origin.job_id) or origin.user
        self._note(worker, Origin(origin.job_id, submission or origin.submission_id, user))

    def _note(self, worker: Worker, origin: Origin) -> None:
        self._told[worker.debuggee.worker_id] = origin
        worker.comes_from(origin)

    async def claim(self, worker: Worker) -> Configure:
        """See `Claims`."""
        if not (worker.debuggee.job_id or worker.debuggee.submission_id):
            # A worker that waits before its first task has no known job.
            await self._learn(worker, await worker.ask_origin())
        holder = self._holder(worker.debuggee)
        assert holder is not None, "it is attached to for somebody"
        owner = self.owner(worker.debuggee)
        if worker.has_left or owner is None or not owner.listens:
            # The owner's editor has disconnected, or is not configured yet: a later poll finds the debuggee.
            owner = holder if holder.is_for(worker.debuggee) else None
        if owner is None:
            raise NotWanted
        if owner is not holder:
            holder.lifecycle.hand_over(worker, owner.lifecycle)
        return owner.put_into

    def _assign(self, worker: Worker, holder: DebugSession) -> None:
        owner = self.owner(worker.debuggee)
        # A debuggee that is kept for a disconnected editor goes to any session for all jobs.
        if owner is not None and owner is not holder and owner.listens:
            holder.lifecycle.hand_over(worker, owner.lifecycle)

    async def known(self) -> list[Debuggee]:
        """Returns all debuggees in Ray's list, with the origins that they reported. Raises RaysideError."""
        return [self._completed(debuggee) for debuggee in await self._discovery.debuggees()]

    def held(self, debuggee: Debuggee) -> Worker | None:
        """Returns the Worker of a debuggee that a session holds now, else None."""
        holder = self._holder(debuggee)
        return None if holder is None else holder.workers[debuggee.worker_id]

    def _holder(self, debuggee: Debuggee) -> DebugSession | None:
        return next((session for session in self.sessions if debuggee.worker_id in session.workers), None)

    # --- polling -------------------------------------------------------------------------

    async def _poll(self) -> None:
        loop = asyncio.get_running_loop()
        silent = False
        while any(session.editor is not None for session in self.sessions):
            began = loop.time()
            self._soon.clear()
            try:
                debuggees = await self._discovery.debuggees()
            except RaysideError as error:
                if not silent:
                    silent = True
                    self._say(f"Ray does not answer: {error.message}. What is attached stays so.")
            except Exception as error:
                self._log(f"a defect: {error!r}")  # but polling continues
            else:
                if silent:
                    silent = False
                    self._say("Ray answers again.")
                self._take(debuggees)
            pause = min(max(POLL, LEAST_SHARE * (loop.time() - began)), LONGEST_PAUSE)
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._soon.wait(), pause)

    def _say(self, text: str) -> None:
        for session in self.sessions:
            session.say(text)

    def _take(self, seen: Sequence[Debuggee]) -> None:
        worker_ids = {debuggee.worker_id for debuggee in seen}
        self._told = {worker_id: told for worker_id, told in self._told.items() if worker_id in worker_ids}
        debuggees = [self._completed(debuggee) for debuggee in seen]
        holders = {worker_id: session for session in self.sessions for worker_id in session.workers}
        for debuggee in debuggees:
            holder = holders.get(debuggee.worker_id)
            if holder is None:
                owner = self.owner(debuggee) if debuggee.worker_id not in self.visited else None
                if owner is not None and owner.listens and owner.lifecycle.may_try(debuggee):
                    owner.lifecycle.take(debuggee)
            else:
                worker = holder.workers[debuggee.worker_id]
                worker.described(debuggee)
                if worker.is_attached:
                    self._assign(worker, holder)
        others = sorted({each.user for each in debuggees if each.user and not sees(self.user, each.user)})
        for session in self.sessions:
            session.lifecycle.miss(worker_ids)
            if others:
                session.leave_out(others)

    def _completed(self, debuggee: Debuggee) -> Debuggee:
        """Returns a debuggee with the origin that it reported, where discovery has none."""
        told = self._told.get(debuggee.worker_id, Origin())
        if not debuggee.job_id:
            submission = debuggee.submission_id or told.submission_id
            debuggee = replace(debuggee, job_id=told.job_id, submission_id=submission)
        return replace(debuggee, user=debuggee.user or told.user)

    # --- paused tasks --------------------------------------------------------------------

    async def paused_tasks(self, *, everyone: bool) -> dict[str, Any]:
        """Returns the body of the answer to `pausedTasks`.

        Returns:
            `{"tasks": [a row each, the longest paused first], "problem": why the list is incomplete, or "",
            "hidden": the number of other users' tasks}`; with `everyone` none is hidden.
        """
        waiting, problem = await self._waiting()
        workers = [worker for session in self.sessions for worker in session.workers.attached]
        held = [worker.described_at(thread).paused() for worker in workers for thread in sorted(worker.stops)]
        # A worker may be in both lists while a debugger attaches.
        held_workers = {task.worker_id for task in held}
        others = [self._named(task) for task in waiting if task.worker_id not in held_workers]
        shown = [task for task in others if everyone or sees(self.user, task.user)]
        rows = [task.row() for task in sorted([*held, *shown], key=_order)]
        return {"tasks": rows, "problem": problem, "hidden": len(others) - len(shown)}

    async def waiting_for(self, session: DebugSession) -> list[Debuggee]:
        """Returns a session's debuggees that wait for a debugger; none if Ray does not answer."""
        known, (tasks, _) = await asyncio.gather(self._known_soon(), self._waiting())
        worker_ids = {task.worker_id for task in tasks}
        waiting = [each for each in known if each.shown_id in worker_ids and session.is_for(each)]
        held = ((each, self.held(each)) for each in waiting)
        return [each for each, worker in held if worker is None or not worker.is_attached]

    async def _known_soon(self) -> list[Debuggee]:
        with contextlib.suppress(asyncio.TimeoutError, RaysideError):
            return await asyncio.wait_for(self.known(), _LOOK)
        return []

    async def _waiting(self) -> tuple[list[PausedTask], str]:
        """Returns the tasks that wait for a debugger, and the problem if Ray does not answer, else ""."""
        try:
            return await asyncio.wait_for(self._discovery.waiting(), _LOOK), ""
        except asyncio.TimeoutError:
            return [], f"Ray did not answer within {_LOOK:g} s"
        except RaysideError as error:
            return [], error.message

    def _named(self, task: PausedTask) -> PausedTask:
        """Returns a task with the user that its process reported, if Ray knows none."""
        return replace(task, user=task.user or self._told.get(task.worker_id, Origin()).user)


def _people_first(sessions: list[DebugSession]) -> list[DebugSession]:
    """Returns the sessions, coding agents' last: a person's session has priority."""
    return sorted(sessions, key=lambda session: session.is_agents)


def _order(task: PausedTask) -> tuple[str, bool, str, str]:
    # Ray's times are whole seconds. Within a second, held tasks come first, in the order of their stops.
    return task.since[: len("2026-01-01T00:00:00")], not task.held, task.since, task.worker_id
