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

# Seconds between two polls for new debuggees, each of which is one request whatever their number. A poll
# that is slow is followed by a longer pause, so that polling never takes more than a tenth of Ray's
# dashboard; but a dashboard that was slow once must not keep new tasks from the editor for long.
POLL, LEAST_SHARE, LONGEST_PAUSE = 0.2, 9, 5.0
# Seconds for Ray's answer to which tasks wait for a debugger.
_LOOK = 5.0


class Dispatch:
    """Assigns each debuggee to one session at a time: that for its job, else one that is for all such jobs.

    Attributes:
        user: the name of whom the relay is for, as `Claims` says.
        sessions: all debug sessions; their owner adds and removes them.
        visited: what is set once a session may attach to a debuggee again, by worker_id.
    """

    def __init__(
        self, discovery: Discovery, *, user: str, work: BackgroundTasks, log: Callable[[str], None]
    ) -> None:
        self.user = user
        self.sessions: list[DebugSession] = []
        self._discovery, self._work, self._log = discovery, work, log
        self.visited: dict[str, asyncio.Event] = {}
        # What debuggees said of themselves, by worker_id, completed by what Ray says of their jobs.
        self._told: dict[str, Origin] = {}
        self._polling: asyncio.Future[Any] | None = None
        self._soon = asyncio.Event()  # set where somebody waits for the next poll

    def begin(self) -> None:
        """Gives a session that is configured what others hold for it, and what is found from now on."""
        for session in self.sessions:
            for worker in session.workers.attached:
                self._assign(worker, session)
        self._soon.set()
        if self._polling is None or self._polling.done():
            self._polling = asyncio.ensure_future(self._poll())

    def end(self) -> None:
        if self._polling is not None:
            self._polling.cancel()

    # --- whose is it ---------------------------------------------------------------------

    def owner(self, debuggee: Debuggee) -> DebugSession | None:
        """Returns a debuggee's session, of those with an editor; where its job is unknown, one to ask it."""
        sessions = [session for session in self.sessions if session.editor is not None]
        by_name = [session for session in sessions if session.job is not None]
        # What is the user's own is left to the session that asked for no more.
        for_all = sorted((s for s in sessions if s.job is None), key=lambda session: session.everyone)
        if not (debuggee.job_id or debuggee.submission_id):
            return next(
                (s for s in _people_first([*for_all, *by_name]) if s.lifecycle.may_try(debuggee)), None
            )
        return next((s for s in _people_first([*by_name, *for_all]) if s.is_for(debuggee)), None)

    async def meet(self, worker: Worker, origin: Origin) -> None:
        """See `Claims`; each of several relays may meet the same debuggee at the same time."""
        await self.know(worker, origin)
        if self.owner(worker.debuggee) is None:
            raise NotWanted

    async def know(self, worker: Worker, origin: Origin) -> None:
        """Notes what a debuggee says of itself, as far as that is not known. Raises RaysideError."""
        known = worker.debuggee
        if origin.job_id and not (known.job_id or known.submission_id):
            await self._learn(worker, origin)
        if origin.user and not worker.debuggee.user:
            known = worker.debuggee
            self._note(worker, Origin(known.job_id, known.submission_id, origin.user))

    async def _learn(self, worker: Worker, origin: Origin) -> None:
        """Notes what Ray's list says of that job, and where it says nothing, what the debuggee says.

        The list lacks jobs: of a submission it has the last driver's alone, and none of Serve's controller.
        """
        submission = ""
        try:
            submission = await self._discovery.submission(origin.job_id)
        except RaysideError:
            if self.user or any(session.job is not None for session in self.sessions):
                raise  # nobody can tell whose it is
        user = self._discovery.user(origin.job_id) or origin.user
        self._note(worker, Origin(origin.job_id, submission or origin.submission_id, user))

    def _note(self, worker: Worker, origin: Origin) -> None:
        self._told[worker.debuggee.worker_id] = origin
        worker.comes_from(origin)

    async def claim(self, worker: Worker) -> Configure:
        """See `Claims`."""
        if not (worker.debuggee.job_id or worker.debuggee.submission_id):
            # The job of a worker that waits before its first task is not known.
            await self._learn(worker, await worker.ask_origin())
        holder = self._holder(worker.debuggee)
        assert holder is not None, "it is attached to for somebody"
        owner = self.owner(worker.debuggee)
        if worker.has_left or owner is None or not owner.listens:
            # Its editor has gone meanwhile, or has not said yet where to stop: it is found again.
            owner = holder if holder.is_for(worker.debuggee) else None
        if owner is None:
            raise NotWanted
        if owner is not holder:
            holder.lifecycle.hand_over(worker, owner.lifecycle)
        return owner.put_into

    def _assign(self, worker: Worker, holder: DebugSession) -> None:
        owner = self.owner(worker.debuggee)
        # A debuggee that only waits for its editor to come back goes to anybody who asks for all.
        if owner is not None and owner is not holder and owner.listens:
            holder.lifecycle.hand_over(worker, owner.lifecycle)

    async def known(self) -> list[Debuggee]:
        """Returns all debuggees that Ray lists now, with what they have said. Raises RaysideError."""
        return [self._completed(debuggee) for debuggee in await self._discovery.debuggees()]

    def held(self, debuggee: Debuggee) -> Worker | None:
        """Returns the worker by which a session holds that debuggee now, if one does."""
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
                self._log(f"a defect: {error!r}")  # it is no reason to stop polling
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
        """Returns it with what it said of itself, where discovery does not know that."""
        told = self._told.get(debuggee.worker_id, Origin())
        if not debuggee.job_id:
            submission = debuggee.submission_id or told.submission_id
            debuggee = replace(debuggee, job_id=told.job_id, submission_id=submission)
        return replace(debuggee, user=debuggee.user or told.user)

    # --- paused tasks --------------------------------------------------------------------

    async def paused_tasks(self, *, everyone: bool) -> dict[str, Any]:
        """Returns the body of the answer to `pausedTasks`.

        Returns:
            `{"tasks": [a row each, the longest paused first], "problem": why some are not known, or empty,
            "hidden": the number of those that are other people's}`; with `everyone` none is hidden.
        """
        waiting, problem = await self._waiting()
        workers = [worker for session in self.sessions for worker in session.workers.attached]
        held = [worker.described_at(thread).paused() for worker in workers for thread in sorted(worker.stops)]
        # A worker may be in both while a debugger attaches.
        held_workers = {task.worker_id for task in held}
        others = [self._named(task) for task in waiting if task.worker_id not in held_workers]
        shown = [task for task in others if everyone or sees(self.user, task.user)]
        rows = [task.row() for task in sorted([*held, *shown], key=_order)]
        return {"tasks": rows, "problem": problem, "hidden": len(others) - len(shown)}

    async def waiting_for(self, session: DebugSession) -> list[Debuggee]:
        """Returns a session's debuggees whose tasks wait, and that nobody holds; none if Ray is silent."""
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
        """Returns the tasks that wait for a debugger, and why they are not known, if they are not."""
        try:
            return await asyncio.wait_for(self._discovery.waiting(), _LOOK), ""
        except asyncio.TimeoutError:
            return [], f"Ray did not answer within {_LOOK:g} s"
        except RaysideError as error:
            return [], error.message

    def _named(self, task: PausedTask) -> PausedTask:
        """Returns it with the user whom its process said, where Ray does not know one."""
        return replace(task, user=task.user or self._told.get(task.worker_id, Origin()).user)


def _people_first(sessions: list[DebugSession]) -> list[DebugSession]:
    """Returns the sessions, those of coding agents last: whatever a person asks for is not left to one."""
    return sorted(sessions, key=lambda session: session.is_agents)


def _order(task: PausedTask) -> tuple[str, bool, str, str]:
    # Ray's moments are of whole seconds. Within one the held come first, in the order of their stops.
    return task.since[: len("2026-01-01T00:00:00")], not task.held, task.since, task.worker_id
