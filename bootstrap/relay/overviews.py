"""Answers what all processes of a job do, or have: an editor those of its session, others those of a job."""

from __future__ import annotations

from functools import partial

from bootstrap.dap.framing import Message
from bootstrap.relay.comparison import compared
from bootstrap.relay.debug_session import DebugSession
from bootstrap.relay.discovery import Discovery
from bootstrap.relay.editor import Editor
from bootstrap.relay.lookout import Lookout
from bootstrap.relay.paused_tasks import waiting_debuggees
from bootstrap.relay.stacks import Stacks
from bootstrap.relay.work import Work


class Overviews:
    """Has those of one relay; `stacks` reads stacks."""

    def __init__(self, discovery: Discovery, lookout: Lookout, work: Work) -> None:
        self.stacks = Stacks(lookout, work)
        self._discovery, self._lookout, self._work = discovery, lookout, work

    async def of(self, command: str, session: DebugSession, editor: Editor, arguments: Message) -> Message:
        """Returns the body of the answer to `stacks` or `compare`. Raises Refused."""
        if command == "stacks":
            paths = session.paths if session.has(editor) else session.paths_for(arguments)
            return await self.stacks.of(session, paths)
        expression = arguments.get("expression")
        if session.has(editor):
            return await session.requests.compare(editor, expression)
        workers = [worker for each in self._lookout.sessions for worker in each.workers.attached]
        asked = [worker for worker in workers if session.is_for(worker.debuggee)]
        waiting = partial(waiting_debuggees, self._discovery, self._lookout, session.is_for)
        return await compared(expression, asked, self._work, waiting)
