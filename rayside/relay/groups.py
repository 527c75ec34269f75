"""Groups of tasks: steps, pauses and resumes all members in parallel, and waits for them with a timeout.

See docs/adr/0036-groups-are-expressions-that-the-relay-decides.md.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any

from rayside.dap import group_commands
from rayside.dap.channel import reason
from rayside.dap.framing import Message
from rayside.dap.group_commands import (
    ACTIONS,
    ENDED,
    FAILED,
    LATE,
    LEFT,
    MEMBERS,
    RETRY,
    RUNNING,
    STOPPED,
    UNKNOWN,
    WITHIN,
)
from rayside.errors import DebuggerGone, RequestFailed
from rayside.relay.fan_out import ANSWERING, SILENT, BackgroundTasks
from rayside.relay.group_members import FORMS, Member, Members, MemberStates, Outcome, Selector, WhyEnded
from rayside.relay.retries import Wanted
from rayside.relay.schemas import Refused
from rayside.relay.source_files import Paths
from rayside.relay.threads import StopOutcome, Threads
from rayside.relay.worker import Worker

_STATES = {
    StopOutcome.STOPPED: (STOPPED, ""),
    StopOutcome.ENDED: (ENDED, ""),
    StopOutcome.TAKEN: (LEFT, "another debugger has it now"),
    StopOutcome.GIVEN_UP: (RUNNING, ""),
}
_NOT_YET = "it has not answered yet, and goes on as soon as it can"


_State = tuple[str, str]


class GroupSteps:
    """Steps, pauses and resumes members of groups in one debug session."""

    def __init__(self, members: Members, threads: Threads, work: BackgroundTasks) -> None:
        self._members, self._threads, self._work = members, threads, work
        self._awaited_stops = threads.awaited_stops

    async def step(self, members: Sequence[Member], command: str, within: float) -> list[Outcome]:
        """Steps the stopped members; waits for them, and for late threads of the same processes.

        It does not wait for late threads before: at a barrier, these may wait for the others.

        Args:
            command: DAP's `next`, `stepIn` or `stepOut`.
            within: timeout in seconds for all members.
        """
        late = self._late(members)
        self._keep_focus(members)
        told = [(member, self._step(member, command)) for member in members if member.thread is not None]
        told += [(member, self._arrive(member)) for member in late]
        waited_for = {member.worker for member in late}
        rest = [each for each in members if each.thread is None and each.worker not in waited_for]
        return [*await self._all(told, within, (LATE, "")), *(Outcome(member, RUNNING) for member in rest)]

    async def pause(self, members: Sequence[Member], within: float) -> list[Outcome]:
        """Pauses members without a stopped thread, and waits for them as `step` does."""
        stopped = [member for member in members if member.thread is not None]
        told = [(member, self._pause(member)) for member in members if member.thread is None]
        outcomes = await self._all(told, within, (LATE, ""))
        return [*(Outcome(member, STOPPED) for member in stopped), *map(self._where, outcomes)]

    async def resume(self, members: Sequence[Member]) -> list[Outcome]:
        """Resumes all members; late threads will not stop any more."""
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
            for thread in self._awaited_stops.late(worker)
            if thread not in worker.stops
        ]

    def _keep_focus(self, members: Iterable[Member]) -> None:
        """Keeps the editor's focus on its current task after the next stop."""
        if any(member.worker is self._threads.focus for member in members):
            self._threads.resumed = self._threads.focus

    def _where(self, outcome: Outcome) -> Outcome:
        """Returns the outcome for a paused process with its first stopped thread as the member."""
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
        """Waits for all; later ones continue as background tasks."""
        waits = [(member, self._work.start(each)) for member, each in told]
        if waits:
            await asyncio.wait([wait for _, wait in waits], timeout=within)
        return [Outcome(member, *(wait.result() if wait.done() else otherwise)) for member, wait in waits]

    # --- one member ----------------------------------------------------------------------

    async def _step(self, member: Member, command: str) -> _State:
        worker, thread = member.worker, member.thread
        assert thread is not None, "only a thread can step"
        if thread in self._awaited_stops.late(worker):  # it already steps, or its stop is being reported
            return await self._arrive(member)
        if thread not in worker.stops:  # it has resumed
            return (ENDED if worker.has_left else RUNNING), ""
        return await self._arrive_after(self._resume(worker, thread, command), member)

    async def _arrive(self, member: Member) -> _State:
        return _STATES[await self._awaited_stops.expect(member.worker, member.thread)]

    async def _pause(self, member: Member) -> _State:
        return await self._arrive_after(self._threads.pause(member.worker), member)

    async def _arrive_after(self, request: Awaitable[None], member: Member) -> _State:
        """Sends a request, and waits for the resulting stop."""
        worker, thread = member.worker, member.thread
        arrival = self._awaited_stops.expect(worker, thread)
        try:
            await request
        except RequestFailed as error:
            if thread is None or thread in worker.stops:  # otherwise it may still stop
                self._awaited_stops.give_up(worker, thread)
                return FAILED, worker.masks.text(error.message)
        except DebuggerGone:
            if worker.has_left:
                self._awaited_stops.gone(worker)
        return _STATES[await arrival]

    async def _continue(self, member: Member) -> _State:
        worker, thread = member.worker, member.thread
        assert thread is not None, "only a thread that is stopped is told to go on"
        self._awaited_stops.give_up(worker, thread)
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
        """Cancels the pending step or pause of a running thread."""
        worker = member.worker
        self._awaited_stops.give_up(worker, member.thread)
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


_USAGE = (
    "`@GROUP` shows who belongs, `@GROUP next`, `step`, `finish`, `continue` or `pause` moves them,"
    " `@GROUP retry` makes failed calls again,"
    f" a GROUP is {FORMS}, or an expression"
)
# Limit of groups whose members are remembered.
MOST = 30
_NO_MORE = "its task has ended, or is another"


class Groups:
    """Groups of one debug session.

    Args:
        members: returns the members of a group.
        retry: makes failed calls again.
        paths: returns the paths of the session's editor.
    """

    def __init__(
        self,
        members: Members,
        threads: Threads,
        *,
        retry: Callable[[Wanted], Awaitable[Message]],
        paths: Callable[[], Paths],
        why_ended: WhyEnded,
        work: BackgroundTasks,
    ) -> None:
        self._threads, self._paths = threads, paths
        self._members, self._retry = members, retry
        self._steps = GroupSteps(self._members, threads, work)
        self._states = MemberStates(why_ended, work)
        # Members of each group at its last use, by expression and worker_id.
        self._before: OrderedDict[str, dict[str, Member]] = OrderedDict()

    async def act(self, group: str, action: str, within: int = WITHIN) -> Message:
        """Acts on all members.

        Args:
            group: a selector.
            action: DAP's `next`, `stepIn`, `stepOut`, `continue` or `pause`, or MEMBERS to only list them.
            within: seconds until threads that have not stopped count as late.

        Returns:
            `{"group", "selector": its expression, "action", "seconds": `within`, 0 for MEMBERS, "members"}`,
            the members as `MemberStates.of` returns them. They include members of the last time that have
            left the group.

        Raises Refused if it is no group, or has no members.
        """
        group = group.strip()
        selector = Selector.of(group)
        await self._members.learn([selector])
        within = 0 if action == MEMBERS else within
        members, unknown = self._members.of(selector)
        gone = self._gone(selector, members)
        if not members and not unknown and not gone and action != MEMBERS:
            raise Refused(f"nobody belongs to @{group[:100]} now: {selector.expression[:200]}")
        acted = await self._acted(action, members, within)
        for outcome in acted:
            if outcome.state in (ENDED, LEFT):  # which is reported once
                self._before.get(selector.expression, {}).pop(outcome.member.worker.debuggee.worker_id, None)
        outcomes = [
            *acted,
            *gone,
            *(Outcome(member, UNKNOWN, SILENT) for member in unknown),
        ]
        return {
            "group": group,
            "selector": selector.expression,
            "action": action,
            "seconds": within,
            "members": await self._states.of(outcomes, self._paths().local),
        }

    async def typed(self, arguments: Message) -> str | None:
        """Executes a group command from a debug console; returns None for other expressions.

        Raises Refused. No single line that begins with `@` is valid in Python.
        """
        text = arguments["expression"].strip()
        if arguments.get("context") != "repl" or text[:1] != "@" or "\n" in text:
            return None
        command = group_commands.command(text)
        if command is None:
            raise Refused(_USAGE)
        if command.word == RETRY:
            retried = await self._retry(Wanted(group=command.group, within=command.within))
            return "\n".join(group_commands.drawn_retries(retried))
        action = ACTIONS.get(command.word, MEMBERS)
        answer = await self.act(command.group, action, command.within)
        return "\n".join(group_commands.drawn(answer))

    async def _acted(self, action: str, members: Sequence[Member], within: int) -> list[Outcome]:
        if action == MEMBERS:
            return [Outcome(member, self._state(member)) for member in members]
        if action == "continue":
            return await self._steps.resume(members)
        if action == "pause":
            return await self._steps.pause(members, within)
        return await self._steps.step(members, action, within)

    def _state(self, member: Member) -> str:
        if member.thread is not None:
            return STOPPED
        return LATE if self._threads.awaited_stops.late(member.worker) else RUNNING

    def _gone(self, selector: Selector, members: Sequence[Member]) -> list[Outcome]:
        """Returns the members of the last time that have left the group; remembers the current ones."""
        now = {member.worker.debuggee.worker_id: member for member in members}
        before = self._before.pop(selector.expression, {})
        self._before[selector.expression] = now
        while len(self._before) > MOST:
            self._before.popitem(last=False)
        gone = [member for worker_id, member in before.items() if worker_id not in now]
        return [
            Outcome(member, ENDED) if member.worker.has_left else Outcome(member, LEFT, _NO_MORE)
            for member in gone
        ]
