"""Polls Ray for debuggees, once for all editors together, and says which debug session each belongs to."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from bootstrap.errors import RaysideError
from bootstrap.relay.debug_session import DebugSession
from bootstrap.relay.debuggee import Debuggee
from bootstrap.relay.discovery import Discovery
from bootstrap.relay.work import Work
from bootstrap.relay.worker import Configure, NotWanted, Worker

# Seconds between two polls for new debuggees, each of which is one request whatever their number. A poll
# that is slow is followed by a longer pause, so that polling never takes more than a tenth of Ray's
# dashboard; but a dashboard that was slow once must not keep new tasks from the editor for long.
POLL, LEAST_SHARE, LONGEST_PAUSE = 0.2, 9, 5.0


class Lookout:
    """Gives each debuggee to one session at a time: that for its job, else that for all jobs.

    Attributes:
        sessions: all debug sessions; their owner adds and removes them.
    """

    def __init__(self, discovery: Discovery, *, work: Work, log: Callable[[str], None]) -> None:
        self.sessions: list[DebugSession] = []
        self._discovery, self._work, self._log = discovery, work, log
        self._jobs: dict[str, tuple[str, str]] = {}  # the jobs of debuggees that were asked, by worker_id
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
        for_all = [session for session in sessions if session.job is None]
        if not (debuggee.job_id or debuggee.submission_id):
            return next((session for session in [*for_all, *sessions] if session.may_try(debuggee)), None)
        by_name = [session for session in sessions if session.job is not None and session.is_for(debuggee)]
        return next(iter([*by_name, *for_all]), None)

    async def claim(self, worker: Worker) -> Configure:
        """Returns what configures a debuggee before it runs: its session's, to which it belongs from now on.

        Raises:
            NotWanted: the debuggee is of a job that no editor asked for.
        """
        if not (worker.debuggee.job_id or worker.debuggee.submission_id):
            # The job of a worker that waits before its first task is not known.
            job, submission = await worker.ask_job(), ""
            try:
                submission = await self._discovery.submission(job)
            except RaysideError:
                if any(session.job is not None for session in self.sessions):
                    raise  # nobody can tell whose it is
            self._jobs[worker.debuggee.worker_id] = (job, submission)
            worker.works_for(job, submission)
        holder = self._holder(worker.debuggee)
        assert holder is not None, "it is attached to for somebody"
        owner = self.owner(worker.debuggee)
        if worker.has_left or owner is None or not owner.listens:
            # Its editor has gone meanwhile, or has not said yet where to stop: it is found again.
            owner = holder if holder.is_for(worker.debuggee) else None
        if owner is None:
            raise NotWanted
        if owner is not holder:
            holder.hand_over(worker, owner)
        return owner.put_into

    def _assign(self, worker: Worker, holder: DebugSession) -> None:
        owner = self.owner(worker.debuggee)
        # A debuggee that only waits for its editor to come back goes to anybody who asks for all.
        if owner is not None and owner is not holder and owner.listens:
            holder.hand_over(worker, owner)

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

    def _take(self, debuggees: Sequence[Debuggee]) -> None:
        worker_ids = {debuggee.worker_id for debuggee in debuggees}
        self._jobs = {worker_id: job for worker_id, job in self._jobs.items() if worker_id in worker_ids}
        holders = {worker_id: session for session in self.sessions for worker_id in session.workers}
        for debuggee in debuggees:
            if not debuggee.job_id and debuggee.worker_id in self._jobs:
                job, submission = self._jobs[debuggee.worker_id]
                debuggee = replace(debuggee, job_id=job, submission_id=submission)
            holder = holders.get(debuggee.worker_id)
            if holder is None:
                owner = self.owner(debuggee)
                if owner is not None and owner.listens and owner.may_try(debuggee):
                    owner.take(debuggee)
            else:
                worker = holder.workers[debuggee.worker_id]
                worker.described(debuggee)
                if worker.is_attached:
                    self._assign(worker, holder)
        for session in self.sessions:
            session.miss(worker_ids)
