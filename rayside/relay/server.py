"""Debug relay: one DAP server that shows many debuggees to an editor as one process.

Downstream are the editors; upstream is a `Worker` for each debuggee that `Discovery` finds. This module has
the server and its connections, and chooses an editor's `DebugSession`; `Dispatch` assigns the debuggees.
Source: https://microsoft.github.io/debug-adapter-protocol/specification
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Callable
from typing import Any

from rayside.dap.additions import AGENT, ALWAYS, ASK, AWAY, EVERY, TICKET, UNHEARD, WATCH
from rayside.dap.framing import Message
from rayside.errors import DebuggerGone, RaysideError, RequestFailed
from rayside.relay.capabilities import CAPABILITIES, REFUSED, Presence, job_of, take_over_of
from rayside.relay.comparison import compared
from rayside.relay.config import UNSET, Masking, digest_of
from rayside.relay.debug_session import DebugSession
from rayside.relay.debuggee import Discovery
from rayside.relay.dispatch import Dispatch
from rayside.relay.editor import Editor, Handler
from rayside.relay.editor_requests import SENT_UNASKED
from rayside.relay.fan_out import BackgroundTasks
from rayside.relay.schemas import Refused
from rayside.relay.stacks import Stacks
from rayside.relay.translation import UnknownId

# Timeout in seconds of requests to Ray while an editor waits.
_SOON = 2.0
# Limit of one editor's pending requests; no more are read until one is answered.
MOST_REQUESTS = 256
# Limits of connections, and of unauthenticated ones, of which the oldest is dropped for a new one.
MOST_CONNECTIONS, MOST_UNAUTHENTICATED = 256, 32
# Timeout in seconds for authentication; an editor sends the token in its second message.
SHOWING = 10.0


class Relay:
    """DAP server for editors.

    Args:
        discovery: finds the debuggees.
        digest: `digest_of` the token that `attach` needs (Ray's token, if Ray has one).
        log: called with a line of text for each event; lines contain no secrets.
        user: name of the relay's user if several people debug there; empty on a cluster of one person.
        shared_files: whether editors see the debuggees' files under the same paths.
        masking: rules for secrets in data for editors.
        every, away: as in `Presence`.
    """

    def __init__(
        self,
        discovery: Discovery,
        *,
        digest: bytes,
        log: Callable[[str], None],
        user: str = "",
        shared_files: bool = False,
        masking: Masking = UNSET,
        every: float = EVERY,
        away: float = AWAY,
    ) -> None:
        self._digest = digest
        self._every, self._away = every, away
        self._log = log
        self._server: asyncio.Server | None = None
        self._editors: dict[Editor, None] = {}  # the oldest first
        self._work = BackgroundTasks(log)
        self._discovery, self._shared, self._masking = discovery, shared_files, masking
        self._user = user
        self._dispatch = Dispatch(discovery, user=user, work=self._work, log=log)
        self.sessions = self._dispatch.sessions
        self._stacks = Stacks(self._dispatch, self._work)
        # Editors attach one after the other, since each checks for other debuggers.
        self._attaching = asyncio.Lock()
        # Requests that need no `attach` before.
        self._handlers: dict[str, Handler] = {
            "attach": self._attach,
            "debugger": self._who_debugs,
            "disconnect": self._disconnect,
            "initialize": self._initialize,
            "pausedTasks": self._paused_tasks,
            **dict.fromkeys(("compare", "stacks"), self._ask_all),
            **dict.fromkeys(("retry", "sources"), self._for_failed),
            **dict.fromkeys(REFUSED, self._refuse),
        }

    # --- serving -------------------------------------------------------------------------

    async def serve(self, host: str = "127.0.0.1", port: int = 5678) -> asyncio.Server:
        """Starts listening, and returns the server. Raises OSError."""
        self._server = await asyncio.start_server(self._serve, host, port)
        return self._server

    async def close(self) -> None:
        """Notifies the editors, and detaches from every debuggee after pending requests are answered."""
        if self._server is not None:
            self._server.close()
        self._dispatch.end()
        await asyncio.gather(self._stacks.close(), *(session.close() for session in self.sessions))
        self._work.cancel()
        await asyncio.gather(*(editor.close() for editor in self._editors))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        editor = Editor(reader, writer, Presence(every=self._every, away=self._away))
        if not self._has_room():
            editor.drop()
            return
        self._editors[editor] = None
        waiting = asyncio.get_running_loop().call_later(SHOWING, self._give_up, editor)
        listening = self._work.start(self._end_when_away(editor))
        answering: set[asyncio.Future[Any]] = set()
        try:
            async for request in editor.requests():
                task = asyncio.ensure_future(self._answer(editor, request))
                answering.add(task)
                task.add_done_callback(answering.discard)
                if len(answering) >= MOST_REQUESTS:
                    await asyncio.wait(answering, return_when=asyncio.FIRST_COMPLETED)
                if editor.gone:
                    break
        finally:
            # Pending requests to debuggees are not canceled here: `Worker.detach` drains them (see `Client`).
            waiting.cancel()
            self._editors.pop(editor, None)
            if (session := self._session_of(editor)) is not None:
                if editor.may_come_back and editor is session.editor:
                    session.expect(editor)
                else:
                    session.left(editor)
            listening.cancel()
            await editor.close()

    async def _end_when_away(self, editor: Editor) -> None:
        """Ends the session of an editor without heartbeats, so that tasks resume."""
        await editor.presence.until_away()
        editor.say(f"Nothing was heard of this editor for {self._away:g} s, so its session has ended.")
        editor.terminated(UNHEARD, again=True)
        await editor.close()

    def _has_room(self) -> bool:
        """Drops the oldest unauthenticated connection at their limit; returns whether another one fits."""
        unauthenticated = [editor for editor in self._editors if not editor.admitted]
        if len(unauthenticated) >= MOST_UNAUTHENTICATED:
            self._editors.pop(unauthenticated[0])
            unauthenticated[0].drop()
        return len(self._editors) < MOST_CONNECTIONS

    def _give_up(self, editor: Editor) -> None:
        if not editor.admitted:
            editor.drop()

    async def _answer(self, editor: Editor, request: Message) -> None:
        command, arguments = request["command"], request.get("arguments") or {}
        try:
            if (handler := self._handlers.get(command)) is not None:
                await handler(editor, request, arguments)
            elif (session := self._session_of(editor)) is None:
                raise Refused(f"`{command}` before `attach`, or after another editor has attached")
            elif command == "configurationDone":
                editor.respond(request)
                session.configured(editor)
                self._dispatch.begin()
            else:
                await session.requests.answer(editor, request, arguments)
        except Refused as refused:
            editor.refuse(request, str(refused), refused.ray)
        except UnknownId as error:
            why = f"{error.args[0]!r} is not known, or ended when its task went on"
            editor.refuse(request, why, is_for_users=command not in SENT_UNASKED)
        except DebuggerGone as error:
            editor.refuse(request, error.message, is_for_users=command not in SENT_UNASKED)
        except RequestFailed as error:
            editor.refuse(request, error.message)
        except RecursionError:
            editor.refuse(request, "nested too deeply")
        except Exception as error:
            # This is a defect, but the editor still gets an answer.
            self._log(f"{command}: {error!r}")
            editor.refuse(request, f"the relay failed: {error!r}")

    # --- attaching, disconnecting --------------------------------------------------------

    async def _initialize(self, editor: Editor, request: Message, arguments: Message) -> None:
        if arguments.get("pathFormat", "path") != "path":
            raise Refused("pathFormat has to be `path`")
        if not arguments.get("linesStartAt1", True) or not arguments.get("columnsStartAt1", True):
            raise Refused("lines and columns have to be counted from 1")
        editor.introduced(arguments)
        editor.respond(request, CAPABILITIES)

    async def _attach(self, editor: Editor, request: Message, arguments: Message) -> None:
        if not self._admits(editor, arguments):
            why = "a wrong token" if arguments.get("token") else "no token"
            self._log(f"an editor was refused: {why}")
            editor.refuse(
                request, f"{why}: the relay asks for Ray's token, `token` in the launch configuration"
            )
            await editor.close()
            return
        job, everyone = job_of(arguments), self._everyone(arguments)
        take_over = take_over_of(arguments)
        async with self._attaching:
            if self._session_of(editor) is not None:
                raise Refused("attached already")
            session = await self._session_for(job, everyone)
            if session.editor is not None and session.editor.is_again(arguments):
                # If only the editor's end of the old connection was closed, it is still open here.
                take_over = ALWAYS
            debugged = await self._debugged(session, arguments) if take_over != ALWAYS else None
            if debugged is not None and take_over == ASK:
                busy = debugged.busy()
                raise Refused(
                    f"{busy['client'] or 'another editor'} has debugged this since {busy['since']}", busy
                )
            if editor not in self._editors:  # It has disconnected, so its session would never end.
                return
            if debugged is not None:
                session = debugged
                session.watch(editor, arguments)
            else:
                session.attach(editor, arguments)
            if session not in self.sessions:
                self.sessions.append(session)
        editor.event("initialized")
        editor.respond(request, {"ray": {"watching": editor is not session.editor, TICKET: editor.ticket}})

    async def _who_debugs(self, editor: Editor, request: Message, arguments: Message) -> None:
        """Answers which debugger an `attach` with the same `job` would take over from."""
        self._require_token(editor, request, arguments)
        session = await self._session_for(job_of(arguments), self._everyone(arguments))
        debugged = await self._debugged(session, arguments)
        editor.respond(request, {"debugger": None if debugged is None else debugged.busy()})

    def _everyone(self, arguments: Message) -> bool:
        """Returns whether jobs of all users are requested; always true on a cluster of one person."""
        everyone = arguments.get("everyone", False)
        if not isinstance(everyone, bool):
            raise Refused("`everyone` has to be true or false")
        return everyone or not self._user

    async def _session_for(self, job: str | None, everyone: bool) -> DebugSession:
        """Returns the session for a job, by either of its ids, or for all jobs; creates it if needed."""
        self.sessions[:] = [session for session in self.sessions if session.editor or session.workers]
        for session in self.sessions:
            if session.job == job and (job is not None or session.everyone == everyone):
                return session
        for session in self.sessions:
            if job is not None and session.job is not None and await self._are_one(job, session.job):
                return session
        return DebugSession(
            job,
            self._discovery,
            everyone=everyone,
            claims=self._dispatch,
            work=self._work,
            log=self._log,
            shared=self._shared,
            masking=self._masking,
            stacks=self._stacks.of,
        )

    async def _are_one(self, job: str, other: str) -> bool:
        """Returns whether one is the submission id of the other."""
        try:
            submissions = await asyncio.wait_for(
                asyncio.gather(self._discovery.submission(job), self._discovery.submission(other)), _SOON
            )
        except (RaysideError, asyncio.TimeoutError):  # then there are two sessions for the job
            return False
        return submissions[0] == other or submissions[1] == job

    async def _debugged(self, session: DebugSession, arguments: Message) -> DebugSession | None:
        """Returns the session, or one that would lose tasks to it, if a debugger is active there."""
        watches, by_agent = take_over_of(arguments) == WATCH, arguments.get(AGENT) is True
        others = [each for each in self.sessions if each is not session]
        for candidate in (session, *(each for each in others if each.loses_to(session, by_agent=by_agent))):
            # A watching editor also attaches to the session of a debugger that may reconnect.
            if (watches and candidate.expects_editor) or await candidate.has_debugger():
                return candidate
        return None

    def _session_of(self, editor: Editor) -> DebugSession | None:
        return next((session for session in self.sessions if session.has(editor)), None)

    def _admits(self, editor: Editor, arguments: Message) -> bool:
        token = arguments.get("token")
        right = isinstance(token, str) and hmac.compare_digest(digest_of(token), self._digest)
        editor.admitted = editor.admitted or right
        return right

    def _require_token(self, editor: Editor, request: Message, arguments: Message) -> None:
        if self._session_of(editor) is None and not self._admits(editor, arguments):
            raise Refused(f"`{request['command']}` needs the token")

    async def _disconnect(self, editor: Editor, request: Message, arguments: Message) -> None:
        # This ignores `terminateDebuggee`: Ray would run a killed worker's task again.
        if (session := self._session_of(editor)) is not None:
            session.left(editor, keep_paused=arguments.get("suspendDebuggee") is True)
        editor.respond(request)
        await editor.close()

    async def _refuse(self, editor: Editor, request: Message, arguments: Message) -> None:
        raise Refused(REFUSED[request["command"]])

    async def _paused_tasks(self, editor: Editor, request: Message, arguments: Message) -> None:
        self._require_token(editor, request, arguments)
        everyone = self._everyone(arguments)
        editor.respond(request, await self._dispatch.paused_tasks(everyone=everyone))

    async def _ask_all(self, editor: Editor, request: Message, arguments: Message) -> None:
        """Answers `stacks` and `compare` for all processes of a session's jobs.

        This is the editor's session, else the session for the requested job.
        """
        self._require_token(editor, request, arguments)
        session = self._session_of(editor)
        if session is None:
            session = await self._session_for(job_of(arguments), self._everyone(arguments))
        expression = arguments.get("expression")
        if request["command"] == "stacks":
            paths = session.paths if session.has(editor) else session.paths_for(arguments)
            answer = await self._stacks.of(session, paths)
        elif session.has(editor):
            answer = await session.requests.compare(editor, expression)
        else:
            workers = [worker for each in self.sessions for worker in each.workers.attached]
            asked = [worker for worker in workers if session.is_for(worker.debuggee)]
            waiting = self._dispatch.waiting_for
            answer = await compared(expression, asked, self._work, lambda: waiting(session))
        editor.respond(request, answer)

    async def _for_failed(self, editor: Editor, request: Message, arguments: Message) -> None:
        """Answers requests on failed tasks in the session that holds them, also on another connection.

        An authenticated client may retry tasks beside the session's editor.
        """
        self._require_token(editor, request, arguments)
        session = self._session_of(editor)
        if session is None:
            session = await self._session_for(job_of(arguments), self._everyone(arguments))
            session = await self._debugged(session, arguments) or session
            await session.requests.answer_beside(editor, request, arguments)
        else:
            await session.requests.answer(editor, request, arguments)
