"""Has the members of a group go on, step or pause, all side by side, and waits for them a bounded time."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from bootstrap.dap.channel import reason
from bootstrap.dap.groups import ENDED, FAILED, LATE, LEFT, RUNNING, STOPPED
from bootstrap.errors import DebuggerGone, RequestFailed
from bootstrap.relay.answers import ANSWERING
from bootstrap.relay.arrivals import Arrival
from bootstrap.relay.members import Member, Members
from bootstrap.relay.threads import Threads
from bootstrap.relay.work import Work
from bootstrap.relay.worker import Worker

_STATES = {
    Arrival.STOPPED: (STOPPED, ""),
    Arrival.ENDED: (ENDED, ""),
    Arrival.TAKEN: (LEFT, "another debugger has it now"),
    Arrival.GIVEN_UP: (RUNNING, ""),
}
_NOT_YET = "it has not answered yet, and goes on as soon as it can"


@dataclass(frozen=True)
class Outcome:
    """Says what became of a member: its state, and why, where there is something to say."""

    member: Member
    state: str
    why: str = ""


_State = tuple[str, str]


class GroupSteps:
    """Acts for one debug session."""

    def __init__(self, members: Members, threads: Threads, work: Work) -> None:
        self._members, self._threads, self._work = members, threads, work
        self._arrivals = threads.arrivals

    async def step(self, members: Sequence[Member], command: str, within: float) -> list[Outcome]:
        """Steps those that are stopped; waits for them, and for those of its processes that are late already.

        Nobody waits for the late ones before: at a barrier these may wait for the others.

        Args:
            command: DAP's `next`, `stepIn` or `stepOut`.
            within: seconds for all of them together.
        """
        late = self._late(members)
        self._keep_focus(members)
        told = [(member, self._step(member, command)) for member in members if member.thread is not None]
        told += [(member, self._arrive(member)) for member in late]
        waited_for = {member.worker for member in late}
        rest = [each for each in members if each.thread is None and each.worker not in waited_for]
        return [*await self._all(told, within, (LATE, "")), *(Outcome(member, RUNNING) for member in rest)]

    async def pause(self, members: Sequence[Member], within: float) -> list[Outcome]:
        """Pauses the processes of which nothing is stopped, and waits for them as `step` does."""
        stopped = [member for member in members if member.thread is not None]
        told = [(member, self._pause(member)) for member in members if member.thread is None]
        outcomes = await self._all(told, within, (LATE, ""))
        return [*(Outcome(member, STOPPED) for member in stopped), *map(self._where, outcomes)]

    async def resume(self, members: Sequence[Member]) -> list[Outcome]:
        """Has all go on; those that are late are not to stop any more."""
        late = self._late(members)
        told = [(member, self._continue(member)) for member in members if member.thread is not None]
        told += [(member, self._release(member)) for member in late]
        waited_for = {member.worker for member in late}
        rest = [each for each in members if each.thread is None and each.worker not in waited_for]
        outcomes = await self._all(told, ANSWERING, (RUNNING, _NOT_YET))
        return [*outcomes, *(Outcome(member, RUNNING) for member in rest)]

    def _late(self, members: Iterable[Member]) -> list[Member]:
        workers = dict.fromkeys(member.worker for member in members)
        return [
            self._members.member(worker, thread)
            for worker in workers
            for thread in self._arrivals.late(worker)
            if thread not in worker.stops
        ]

    def _keep_focus(self, members: Iterable[Member]) -> None:
        """Has the editor show again what it shows, once that has stopped anew."""
        if any(member.worker is self._threads.focus for member in members):
            self._threads.resumed = self._threads.focus

    def _where(self, outcome: Outcome) -> Outcome:
        """Returns the outcome of a process that was paused as that of a thread in which it has stopped."""
        worker = outcome.member.worker
        if outcome.state != STOPPED or not worker.stops:
            return outcome
        return Outcome(self._members.member(worker, min(worker.stops)), STOPPED)

    async def _all(
        self,
        told: Sequence[tuple[Member, Coroutine[Any, Any, _State]]],
        within: float,
        otherwise: _State,
    ) -> list[Outcome]:
        """Waits for all; whoever takes longer is waited for on the side, so that nobody is lost."""
        waits = [(member, self._work.start(each)) for member, each in told]
        if waits:
            await asyncio.wait([wait for _, wait in waits], timeout=within)
        return [Outcome(member, *(wait.result() if wait.done() else otherwise)) for member, wait in waits]

    # --- one member ----------------------------------------------------------------------

    async def _step(self, member: Member, command: str) -> _State:
        worker, thread = member.worker, member.thread
        assert thread is not None, "only a thread can step"
        if thread in self._arrivals.late(worker):  # it steps already, or its stop is about to be told
            return await self._arrive(member)
        if thread not in worker.stops:  # it goes on meanwhile
            return (ENDED if worker.has_left else RUNNING), ""
        arrival = self._arrivals.expect(worker, thread)
        try:
            await self._resume(worker, thread, command)
        except RequestFailed as error:
            if thread in worker.stops:
                self._arrivals.give_up(worker, thread)
                return FAILED, worker.masks.text(error.message)
        except DebuggerGone:
            if worker.has_left:
                self._arrivals.gone(worker)
        return _STATES[await arrival]

    async def _arrive(self, member: Member) -> _State:
        return _STATES[await self._arrivals.expect(member.worker, member.thread)]

    async def _pause(self, member: Member) -> _State:
        worker = member.worker
        arrival = self._arrivals.expect(worker, None)
        try:
            await self._threads.pause(worker)
        except RequestFailed as error:
            self._arrivals.give_up(worker, None)
            return FAILED, worker.masks.text(error.message)
        except DebuggerGone:
            if worker.has_left:
                self._arrivals.gone(worker)
        return _STATES[await arrival]

    async def _continue(self, member: Member) -> _State:
        worker, thread = member.worker, member.thread
        assert thread is not None, "only a thread that is stopped is told to go on"
        self._arrivals.give_up(worker, thread)
        try:
            if thread in worker.stops:
                await self._resume(worker, thread, "continue")
        except RequestFailed as error:
            if thread in worker.stops:
                return FAILED, worker.masks.text(error.message)
        except DebuggerGone:
            return ENDED, ""
        return RUNNING, ""

    async def _release(self, member: Member) -> _State:
        """Ends the step, or the pause, that a thread which runs has before it."""
        worker = member.worker
        self._arrivals.give_up(worker, member.thread)
        thread = worker.main_thread if member.thread is None else member.thread
        try:
            response = await worker.connection.answer("continue", {"threadId": thread, "singleThread": True})
        except RequestFailed as error:
            return FAILED, worker.masks.text(error.message)
        except DebuggerGone:
            return ENDED, ""
        if not response.get("success"):
            return FAILED, worker.masks.text(reason(response))
        return RUNNING, ""

    async def _resume(self, worker: Worker, thread: int, command: str) -> None:
        arguments = {"threadId": thread}
        await self._threads.resume(worker, command, arguments, lambda _: None, unasked=True)
