"""Does with all members of a group of tasks what an editor does with one task.

See docs/adr/0036-groups-are-expressions-that-the-relay-decides.md.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence

from bootstrap.dap.framing import Message
from bootstrap.dap.groups import ENDED, LATE, LEFT, MEMBERS, RUNNING, STOPPED, UNKNOWN
from bootstrap.relay.answers import SILENT
from bootstrap.relay.editor import Refused
from bootstrap.relay.group_steps import GroupSteps, Outcome
from bootstrap.relay.member_states import MemberStates, WhyEnded
from bootstrap.relay.members import Member, Members
from bootstrap.relay.paths import Paths
from bootstrap.relay.selector import Selector
from bootstrap.relay.threads import Threads
from bootstrap.relay.work import Work
from bootstrap.relay.worker import Workers

# The most groups of which the members are remembered.
MOST = 30
_NO_MORE = "its task has ended, or is another"


class Groups:
    """Has those of one debug session.

    Args:
        paths: returns the paths of the session's editor.
    """

    def __init__(
        self,
        workers: Workers,
        threads: Threads,
        *,
        paths: Callable[[], Paths],
        why_ended: WhyEnded,
        work: Work,
    ) -> None:
        self._threads, self._paths = threads, paths
        self._members = Members(workers, work)
        self._steps = GroupSteps(self._members, threads, work)
        self._states = MemberStates(why_ended, work)
        # Who belonged when a group was last dealt with, by its expression and by worker_id.
        self._before: OrderedDict[str, dict[str, Member]] = OrderedDict()

    async def act(self, group: str, action: str, within: int) -> Message:
        """Does something with all members.

        Args:
            group: a selector.
            action: DAP's `next`, `stepIn`, `stepOut`, `continue` or `pause`, or MEMBERS, which only looks.
            within: seconds until those that have not stopped count as late.

        Returns:
            `{"group", "selector": its expression, "action", "seconds": `within`, 0 for MEMBERS, "members"}`,
            the members as `MemberStates.of` has them. Those that belonged the last time, and do no more, are
            among them.

        Raises Refused where it is no group, or has no members.
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
            if outcome.state in (ENDED, LEFT):  # that is told once
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
        return LATE if self._threads.arrivals.late(member.worker) else RUNNING

    def _gone(self, selector: Selector, members: Sequence[Member]) -> list[Outcome]:
        """Returns those that belonged the last time, and do no more; from now on these members did."""
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
