"""Debug session: an editor's attachment to debuggees, and its state.

`EditorRequests` answers the editor's requests; `Lifecycle` attaches to debuggees and detaches from them,
`Threads` stops and resumes threads, and `Configuration` has breakpoints and exception filters.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from weakref import WeakKeyDictionary

from rayside.dap.additions import BUSY, DEBUGGER_LEFT, RELAY_ENDING, TAKEN_OVER
from rayside.dap.framing import Message
from rayside.plain import some_of
from rayside.relay.capabilities import mappings_of, options_of
from rayside.relay.config import Masking
from rayside.relay.configuration import Configuration
from rayside.relay.debuggee import Debuggee, Discovery
from rayside.relay.editor import CurrentEditor, Editor
from rayside.relay.editor_requests import EditorRequests
from rayside.relay.fan_out import BackgroundTasks
from rayside.relay.lifecycle import Lifecycle
from rayside.relay.remote_calls import RemoteCalls
from rayside.relay.reports import Flood, Reports, left_out_line
from rayside.relay.source_files import Paths
from rayside.relay.threads import Threads
from rayside.relay.translation import Ids
from rayside.relay.worker import Claims, Worker, Workers
from rayside.users import sees
from rayside.worker.calls import EVENT as RETRIED
from rayside.worker.children import EVENT as CHILD
from rayside.worker.evaluated.prints import EVENT as PRINTED
from rayside.worker.evaluated.reached import EVENT
from rayside.worker.evaluated.stepped_calls import EVENT as REMOTE_CALL
from rayside.worker.evaluated.telling import Bucket

# Limits of one debuggee: stops per second, and current stops or threads. No program needs more, and each
# costs the relay requests and memory. The relay detaches from a debuggee that exceeds them.
STOPS, MOST_STOPS = 50.0, 1_000


class DebugSession:
    """Debug session of one job or all jobs; it stays when another editor takes over, or none is attached.

    Attributes:
        job: submission id or Ray's id of the session's only job; None: all jobs without a session of their
            own.
        everyone: whether jobs of all users belong to it; else only of the relay's user, or without a user.
        workers: the session's debuggees.
        lifecycle: attaches to debuggees and detaches from them.
        requests: answers the editor's requests.
    """

    def __init__(
        self,
        job: str | None,
        discovery: Discovery,
        *,
        everyone: bool,
        claims: Claims,
        work: BackgroundTasks,
        log: Callable[[str], None],
        shared: bool,
        masking: Masking,
        stacks: Callable[[DebugSession, Paths], Awaitable[Message]],
    ) -> None:
        self.job, self.everyone, self._user = job, everyone, claims.user
        self._discovery, self._work, self._log, self._shared = discovery, work, log, shared
        self._current = current = CurrentEditor(log)
        self._told_of_others = False
        self._flood = Flood(self._tell_left_out)
        self._stops: WeakKeyDictionary[Worker, Bucket] = WeakKeyDictionary()
        self.workers = workers = Workers()
        ids = Ids()
        self._calls = calls = RemoteCalls(workers, ids=ids, work=work, say=current.say)
        self._threads = Threads(workers, ids=ids, editor=current, calls=calls, work=work)
        self._configuration = Configuration(
            workers,
            paths=Paths(roots=discovery.local_roots, shared=shared),
            editor=current,
            work=work,
            log=log,
        )
        self._reports = Reports(workers, self._configuration, editor=current, work=work, flood=self._flood)
        self.lifecycle = Lifecycle(
            workers,
            self,
            claims=claims,
            why_ended=discovery.why_ended,
            configuration=self._configuration,
            threads=self._threads,
            editor=current,
            work=work,
            log=log,
            masking=masking,
        )
        self.requests = EditorRequests(
            workers,
            ids=ids,
            threads=self._threads,
            calls=calls,
            configuration=self._configuration,
            editor=current,
            masking=masking,
            work=work,
            read_stacks=lambda: stacks(self, self.paths),
            why_ended=discovery.why_ended,
            attached_beside=self.lifecycle.attached_beside,
        )

    # --- its editor ----------------------------------------------------------------------

    @property
    def editor(self) -> Editor | None:
        """Returns the editor that debugs in this session now."""
        return self._current.editor

    @property
    def listens(self) -> bool:
        """Returns whether the session's editor has sent `configurationDone`."""
        return self._current.listens

    @property
    def is_agents(self) -> bool:
        """Returns whether the session's editor is a coding agent."""
        return self.editor is not None and self.editor.is_agent

    def has(self, editor: Editor) -> bool:
        """Returns whether the editor is attached here, to debug or to watch."""
        return editor is self._current.editor or editor in self._current.watchers

    async def has_debugger(self) -> bool:
        """Returns whether the session has an editor that is in use."""
        if (editor := self.editor) is None or not await editor.is_alive(self._threads.rows.cluster):
            return False
        return self.editor is not None  # The editor may have disconnected meanwhile.

    def busy(self) -> Message:
        """Returns the editor that debugs here, its job, and since when, as data."""
        assert self.editor is not None, "somebody debugs here"
        return {"reason": BUSY, "job": self.job, "client": self.editor.name, "since": self.editor.since}

    def loses_to(self, session: DebugSession, *, by_agent: bool) -> bool:
        """Returns whether the other session is for one job, of which a task is stopped in this session.

        For an agent, a session for all jobs always loses.
        """
        if by_agent and self.job is None:
            return True
        return session.job is not None and any(
            worker.stops and session.is_for(worker.debuggee) for worker in self.workers.attached
        )

    def say(self, text: str) -> None:
        """Shows a text in the session's editor, if it has one."""
        if self.editor is not None:
            self._current.say(text)

    def attach(self, editor: Editor, arguments: Message) -> None:
        """Attaches an editor, and ends the session of the one before as taken over. Raises Refused."""
        paths = self.paths_for(arguments)
        options = options_of(arguments)
        earlier, self._current.editor = self._current.editor, editor
        if earlier is None or not earlier.is_again(arguments):
            self.requests.retries.files.begin()
        if earlier is not None:
            if earlier.is_again(arguments):
                self._log("the editor is back, by another connection")
                editor.lines_left_out += earlier.lines_left_out
            else:
                self._log("another editor took over")
                earlier.say("Another editor has attached; this session ends.")
            self._dismiss(earlier, TAKEN_OVER)
        self._told_of_others = False
        self.lifecycle.begin(
            options,
            keep_paused=arguments.get("keepPaused") is True,
            takes_children=arguments.get("children") is not False,
        )
        focus = arguments.get("focusWorkerId")
        self._threads.begin(
            focus if isinstance(focus, str) else "", shows_all=arguments.get("allThreads") is True
        )
        self._calls.begin()
        self._configuration.begin(paths, prints=arguments.get("redirectOutput") is True)
        editor.attached(arguments)

    def paths_for(self, arguments: Message) -> Paths:
        """Returns the path mappings for these arguments of `attach`. Raises Refused."""
        shared = arguments.get("sharedFiles")
        return Paths(
            mappings_of(arguments),
            self._discovery.local_roots,
            shared=shared if isinstance(shared, bool) else self._shared,
        )

    def watch(self, editor: Editor, arguments: Message) -> None:
        """Attaches an editor that only watches: it gets the session's events."""
        self._current.watchers.append(editor)
        editor.attached(arguments)

    def configured(self, editor: Editor) -> None:
        """Starts to send events to an editor, after its `configurationDone`."""
        if editor.configured:
            return
        editor.configured = True
        cluster = {"reason": "started", "threadId": self._threads.rows.cluster}
        editor.event("thread", cluster)
        editor.tell_left_out()
        if editor is self._current.editor:
            self._log("an editor has attached")
            self.lifecycle.watch()
        else:
            self._log("an editor watches")
            self._threads.show_all(editor)

    def left(self, editor: Editor, *, keep_paused: bool = False) -> None:
        """Detaches an editor. Without the one that debugs, all tasks resume, except those to be kept
        paused."""
        if editor in self._current.watchers:
            self._current.watchers.remove(editor)
            return
        if editor is not self._current.editor:
            return
        self.lifecycle.keep_paused = keep_paused or self.lifecycle.keep_paused
        self._current.editor = None
        kept = "; what is stopped stays so" if self.lifecycle.keep_paused else ""
        self._log(f"the editor has gone{kept}")
        for watcher in self._current.watchers:
            self._dismiss(watcher, DEBUGGER_LEFT)
        self._current.watchers.clear()
        self._calls.begin()
        self.lifecycle.editor_left()

    @property
    def expects_editor(self) -> bool:
        """Returns whether the session's editor has lost its connection, and may reconnect."""
        return self.editor is not None and self.editor.gone

    def expect(self, editor: Editor) -> None:
        """Keeps the session's state for an editor that has lost its connection, until it counts as gone."""
        self._log("the editor has lost its way; what is stopped waits for it")
        self._work.start(self._until_given_up(editor))

    async def _until_given_up(self, editor: Editor) -> None:
        await editor.presence.until_away()
        self.left(editor)  # This does nothing if another editor has attached since.

    def _dismiss(self, editor: Editor, why: str) -> None:
        editor.terminated(why)
        self._work.start(editor.close())

    async def close(self) -> None:
        """Notifies the editors, and detaches from every debuggee after pending requests are answered."""
        for editor in [*self._current.watchers, *([self.editor] if self.editor else [])]:
            editor.terminated(RELAY_ENDING)
        self._current.editor = None
        self._current.watchers.clear()
        await self.lifecycle.close()

    # --- debuggees -----------------------------------------------------------------------

    def is_for(self, debuggee: Debuggee) -> bool:
        if self.job is None:
            return self.everyone or sees(self._user, debuggee.user)
        return self.job in (debuggee.job_id, debuggee.submission_id)

    @property
    def paths(self) -> Paths:
        """Returns the path mappings of the session's editor."""
        return self._configuration.paths

    def leave_out(self, users: Sequence[str]) -> None:
        """Reports to the editor, once, that debuggees of these users are left out."""
        if self.listens and not (self._told_of_others or self.job or self.everyone):
            self._told_of_others = True
            self._current.say(
                f"Jobs of {some_of(users)} are left out here: `everyone` of a launch configuration shows "
                "them, and so does `debug --everyone`."
            )

    def attached_to(self, worker: Worker) -> None:
        """Handles a debuggee that is attached now, as in `Holder`."""
        self.lifecycle.attached_to(worker)
        if worker.is_attached:
            self._work.start(self._calls.put_into(worker))

    async def put_into(self, worker: Worker) -> None:
        """Sets breakpoints, filters and edited files in a debuggee. Raises DebuggerGone."""
        await self._configuration.put_into(worker)
        await self._calls.put_into(worker)
        await self.requests.retries.files.put_into(worker)

    def refused(self, worker: Worker, error: Exception) -> None:
        """Handles a failure to attach, as in `Holder`."""
        self.lifecycle.refused(worker, error)

    def end(self, worker: Worker) -> None:
        """Handles the end of a debuggee's connection, as in `Holder`."""
        self.lifecycle.end(worker)

    # --- events of debuggees -------------------------------------------------------------

    def event(self, worker: Worker, message: Message) -> None:
        """Handles an event, as in `Holder`; `message` has been rebuilt by `messages.event`."""
        name, body = message["event"], message["body"]
        if name == "stopped":
            if self._stops_too_often(worker):
                self._current.say(
                    f"{worker.debuggee.title} stops too often to be debugged: it is left alone."
                )
                self.lifecycle.end(worker)
            else:
                self._threads.stopped(worker, body["threadId"], body)
        elif name == "continued":
            self._threads.continued(worker, body)
        elif name == "thread":
            if body.get("reason") == "exited":
                self._threads.ended(worker, body["threadId"])
        elif name == EVENT:
            self._reports.take(worker, body)
        elif name == RETRIED:
            self.requests.retries.take(worker, body)
        elif name == REMOTE_CALL:
            self._calls.take(worker, body)
        elif name == PRINTED:
            printed = self._reports.printed(worker, body)
            if printed is not None:
                self._current.event("output", self.requests.outward(worker, printed))
        elif name == CHILD:
            self.lifecycle.take_child(worker, body)
        elif name == "terminated":
            # pydevd answers nothing more, and its process waits up to half a second for us to disconnect; an
            # adapter outlives a killed debuggee, and waits forever. It also sends this while we disconnect.
            if not worker.has_left:
                worker.connection.client.close()
            self.lifecycle.end(worker)
        elif name == "output" and self._flood.passes(worker, body["output"]):
            self._current.event(name, self.requests.outward(worker, worker.masks.event(body)))

    def _stops_too_often(self, worker: Worker) -> bool:
        bucket = self._stops.setdefault(worker, Bucket(STOPS, MOST_STOPS))
        return max(len(worker.stops), len(worker.rows)) >= MOST_STOPS or not bucket.passes(1)

    def _tell_left_out(self, left_out: Mapping[Worker, int]) -> None:
        lines = [(worker.debuggee.title, number) for worker, number in left_out.items()]
        self._current.say(left_out_line(lines, {worker.debuggee.submission_id for worker in left_out}))
