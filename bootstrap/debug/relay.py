"""The debug relay: one DAP server that shows many debuggees to one editor as one process.

Downstream an editor; upstream a `Worker` for each debuggee that `Discovery` finds. Without an editor
nothing is attached and nobody is asked. Debuggees stop and go on each by itself.
Source: https://microsoft.github.io/debug-adapter-protocol/specification
"""

from __future__ import annotations

import asyncio
import hmac
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterable
from typing import Any

from bootstrap.debug import files, translation
from bootstrap.debug.capabilities import CAPABILITIES, REFUSED
from bootstrap.debug.client import STOP_IN_USER_CODE, reason
from bootstrap.debug.dap import Message
from bootstrap.debug.debuggee import Debuggee, Discovery
from bootstrap.debug.desired import Breakpoint, Desired
from bootstrap.debug.editor import Editor
from bootstrap.debug.files import Files
from bootstrap.debug.ids import OF_A_STOP, Ids, Kind, UnknownId
from bootstrap.debug.paths import Paths
from bootstrap.debug.worker import Asked, NotWanted, Worker
from bootstrap.errors import AttachFailed, DebuggerGone, RaysideError, RequestFailed

# Seconds between two looks for new debuggees, each of which is one request whatever their number. A
# look that is slow gets more time, so that looking never takes more than a tenth of Ray's dashboard.
LOOK, LEAST_SHARE = 0.2, 9
# Seconds before a debuggee that was left is attached to again: one that is dialled within milliseconds of
# its `disconnect` may never answer (1 of 7 to 80 times, with debugpy 1.8.22; never of 120 after 0.5 s).
SETTLING = 0.5
# Tries to attach to a debuggee that does not answer.
MOST_TRIES = 3
# Looks without a debuggee before it counts as ended, for Ray's tables may lag.
LOOKS_MISSED = 5
# Seconds that an editor waits for debuggees' answers; what comes later is told by events.
FAN_OUT = 0.7
# Seconds for a debuggee's answer to what an editor asks of one, before it counts as frozen.
PATIENCE = 15.0
# The same where user code runs.
EVALUATION = 60.0
# Seconds for debuggees to be left in good order when the relay ends.
CLOSING = 10.0
# Requests of one editor that may be in flight; it is not read any further until one is answered.
MOST_REQUESTS = 256

_MOVES = frozenset({"continue", "next", "stepIn", "stepOut", "goto"})
_RUN_USER_CODE = frozenset({"evaluate", "setVariable", "setExpression", "variables", "completions"})
# Of one debuggee; an editor would take them for the whole cluster's.
_SWALLOWED = frozenset(
    {
        "capabilities",
        "debugpySockets",
        "debugpyWaitingForServer",
        "debugpyAttach",
        "exited",
        "initialized",
        "loadedSource",
        "module",
        "process",
    }
)
# What an editor may say of how debuggees are debugged. Nothing else of what it says gets there.
_OPTIONS = ("justMyCode", "rules", "showReturnValue")

# The row that is always there: with a single row, VS Code hides it, and so the task's name.
_CLUSTER = "Ray cluster"

Handler = Callable[[Editor, Message, Message], Awaitable[None]]


class Refused(Exception):
    """The request gets an error response with this reason."""


class Relay:
    """The server.

    Args:
        discovery: finds the debuggees.
        token: what `attach` has to bring.
        log: takes a line for each thing that happens; none has a secret in it.
        shared_files: whether editors see the debuggees' files under their own paths.
    """

    def __init__(
        self,
        discovery: Discovery,
        *,
        token: str,
        log: Callable[[str], None],
        shared_files: bool = False,
    ) -> None:
        self._discovery = discovery
        self._token = token.encode()
        self._log = log
        self._shared = shared_files
        self._server: asyncio.Server | None = None
        self._editors: set[Editor] = set()
        self._editor: Editor | None = None  # the one that has attached last, if it is still there
        self._keep_paused = False
        self._asked = Asked(STOP_IN_USER_CODE)
        self._desired = Desired()
        self._revision = 0  # of what is desired
        self._paths = Paths(roots=discovery.local_roots, shared=shared_files)
        self._files = Files()
        self._ids = Ids()
        self._workers: dict[str, Worker] = {}
        self._missed: dict[str, int] = {}
        self._tries: Counter[tuple[str, int]] = Counter()  # that failed, by worker and port
        self._focus: Worker | None = None  # that the editor dealt with last
        self._moved: Worker | None = None  # that it let go last
        self._told: set[str] = set()  # what was told once
        self._work: set[asyncio.Future[Any]] = set()
        self._leaving: set[asyncio.Future[Any]] = set()
        self._watching: asyncio.Future[Any] | None = None
        self._handlers: dict[str, Handler] = {
            "attach": self._attach,
            "cancel": self._nothing,
            "configurationDone": self._configuration_done,
            "disconnect": self._disconnect,
            "gotoTargets": self._goto_targets,
            "initialize": self._initialize,
            "pause": self._pause,
            "pausedTasks": self._paused_tasks,
            "setBreakpoints": self._set_breakpoints,
            "setExceptionBreakpoints": self._set_exception_breakpoints,
            "setFunctionBreakpoints": self._set_function_breakpoints,
            "stackTrace": self._stack_trace,
            "threads": self._threads,
            **dict.fromkeys(_MOVES, self._move),
            **dict.fromkeys(REFUSED, self._refuse),
        }

    # --- serving -------------------------------------------------------------------------

    async def serve(self, host: str = "127.0.0.1", port: int = 5678) -> asyncio.Server:
        """Starts listening; the event loop does the rest. Raises OSError."""
        self._server = await asyncio.start_server(self._serve, host, port)
        return self._server

    async def close(self) -> None:
        """Tells the editors, and lets every debuggee go on; what waits for an answer gets it first."""
        if self._server is not None:
            self._server.close()
        for editor in list(self._editors):
            if editor.arguments is not None:
                editor.event("terminated")
        self._editor = None
        self._leave(self._workers.values())
        if self._leaving:  # earlier ones, too
            await asyncio.wait(self._leaving, timeout=CLOSING)
        for work in (*self._work, *([self._watching] if self._watching else [])):
            work.cancel()
        await asyncio.gather(*(editor.close() for editor in self._editors))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        editor = Editor(reader, writer)
        self._editors.add(editor)
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
            # Whatever is in flight is drained by `Worker.leave`, not given up here: see `Client`.
            self._editors.discard(editor)
            if editor is self._editor:
                self._editor_left()
            await editor.close()

    async def _answer(self, editor: Editor, request: Message) -> None:
        command, arguments = request["command"], request.get("arguments") or {}
        handler = self._handlers.get(command, self._forward)
        try:
            if editor is not self._editor and command not in (
                "initialize",
                "attach",
                "disconnect",
                "pausedTasks",
            ):
                raise Refused(f"`{command}` before `attach`, or after another editor has attached")
            await handler(editor, request, arguments)
        except Refused as refused:
            editor.refuse(request, str(refused))
        except UnknownId as error:
            editor.refuse(request, f"{error.args[0]!r} is not known, or ended when its task went on")
        except (DebuggerGone, RequestFailed) as error:
            editor.refuse(request, error.message)
        except RecursionError:
            editor.refuse(request, "nested too deeply")
        except Exception as error:
            # A defect, but no reason to leave the editor without an answer.
            self._log(f"{command}: {error!r}")
            editor.refuse(request, f"the relay failed: {error!r}")

    # --- an editor's life ----------------------------------------------------------------

    async def _initialize(self, editor: Editor, request: Message, arguments: Message) -> None:
        if arguments.get("pathFormat", "path") != "path":
            raise Refused("pathFormat has to be `path`")
        if not arguments.get("linesStartAt1", True) or not arguments.get("columnsStartAt1", True):
            raise Refused("lines and columns have to be counted from 1")
        editor.respond(request, CAPABILITIES)

    async def _attach(self, editor: Editor, request: Message, arguments: Message) -> None:
        if not self._admits(arguments):
            why = "a wrong token" if arguments.get("token") else "no token"
            self._log(f"an editor was refused: {why}")
            editor.refuse(
                request, f"{why}: the relay asks for Ray's token, `token` in the launch configuration"
            )
            await editor.close()
            return
        if editor is self._editor:
            raise Refused("attached already")
        paths = Paths(
            _mappings(arguments.get("pathMappings")),
            self._discovery.local_roots,
            shared=self._shares(arguments),
        )
        job = arguments.get("job")
        if job is not None and not isinstance(job, str):
            raise Refused("`job` has to be a string: a submission id, or Ray's job id")
        earlier, self._editor = self._editor, editor
        if earlier is not None:
            self._log("another editor took over")
            earlier.event("output", _said("Another editor has attached; this session ends."))
            earlier.event("terminated")
            self._spawn(earlier.close())
        given = {name: arguments[name] for name in _OPTIONS if name in arguments}
        self._asked = Asked({**STOP_IN_USER_CODE, **given}, job or None, self._discovery.submission)
        self._keep_paused = arguments.get("keepPaused") is True
        self._desired, self._paths = Desired(), paths
        self._revision += 1
        self._files.clear()
        self._tries.clear()
        self._told.clear()
        editor.arguments = arguments
        editor.event("initialized")
        editor.respond(request)

    def _admits(self, arguments: Message) -> bool:
        token = arguments.get("token")
        return isinstance(token, str) and hmac.compare_digest(
            token.encode("utf-8", "surrogatepass"), self._token
        )

    def _shares(self, arguments: Message) -> bool:
        said = arguments.get("sharedFiles")
        return said if isinstance(said, bool) else self._shared

    async def _configuration_done(self, editor: Editor, request: Message, arguments: Message) -> None:
        editor.respond(request)
        if editor.configured:
            return
        editor.configured = True
        self._log("an editor has attached")
        editor.event("thread", {"reason": "started", "threadId": self._cluster_row})
        for worker in self._attached():  # held, or of the editor before
            worker.told.clear()
            self._spawn(self._adopt(worker))
        if self._watching is None or self._watching.done():
            self._watching = asyncio.ensure_future(self._watch())

    async def _disconnect(self, editor: Editor, request: Message, arguments: Message) -> None:
        # Whatever `terminateDebuggee` says: a worker that is killed has its task run again.
        if editor is self._editor:
            if arguments.get("suspendDebuggee") is True:
                self._keep_paused = True
            self._editor_left()
        editor.respond(request)
        await editor.close()

    def _editor_left(self) -> None:
        """Lets the cluster go on, but what is to be kept paused."""
        self._editor = None
        self._log("the editor has gone" + ("; what is stopped stays so" if self._keep_paused else ""))
        going = [w for w in self._workers.values() if not (self._keep_paused and w.stops)]
        self._leave(going)

    async def _paused_tasks(self, editor: Editor, request: Message, arguments: Message) -> None:
        if editor is not self._editor and not self._admits(arguments):
            raise Refused("`pausedTasks` needs the token")
        paused = [worker.debuggee.document() for worker in self._attached() if worker.stops]
        editor.respond(
            request, {"tasks": sorted(paused, key=lambda task: (task["since"], task["worker_id"]))}
        )

    async def _nothing(self, editor: Editor, request: Message, arguments: Message) -> None:
        editor.respond(request)

    async def _refuse(self, editor: Editor, request: Message, arguments: Message) -> None:
        raise Refused(REFUSED[request["command"]])

    # --- debuggees come and go -----------------------------------------------------------

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        told = False
        while self._editor is not None:
            began = loop.time()
            try:
                found = await self._discovery.debuggees()
            except RaysideError as error:
                if not told:
                    told = True
                    self._say(f"Ray does not answer: {error.message}. What is attached stays so.")
            except Exception as error:
                self._log(f"a defect: {error!r}")  # and no reason to look no more
            else:
                if told:
                    told = False
                    self._say("Ray answers again.")
                self._take(found)
            await asyncio.sleep(max(LOOK, LEAST_SHARE * (loop.time() - began)))

    def _take(self, found: list[Debuggee]) -> None:
        if self._editor is None or not self._editor.configured:
            return
        there = {debuggee.worker_id: debuggee for debuggee in found}
        for debuggee in found:
            worker = self._workers.get(debuggee.worker_id)
            if worker is not None:
                worker.described(debuggee)
            elif self._is_wanted(debuggee):
                self._workers[debuggee.worker_id] = new = Worker(debuggee, self._files, self._event)
                self._spawn(self._attach_worker(new))
        self._missed = {name: self._missed.get(name, 0) + 1 for name in self._workers if name not in there}
        for name, missed in self._missed.items():
            if missed > LOOKS_MISSED and self._workers[name].ready.is_set():
                self._end(self._workers[name])

    def _is_wanted(self, debuggee: Debuggee) -> bool:
        if self._tries[debuggee.worker_id, debuggee.port] >= MOST_TRIES:
            return False
        # Where nobody knows its job, it is asked itself (`Worker.attach`).
        return not (debuggee.job_id or debuggee.submission_id) or self._asked.is_wanted(debuggee)

    async def _attach_worker(self, worker: Worker) -> None:
        try:
            await worker.attach(self._asked, self._configure)
        except (AttachFailed, NotWanted) as error:
            # Every try may spoil it for whoever debugs it: one is enough for each editor.
            self._give_up(worker)
            if isinstance(error, AttachFailed):
                self._say(f"{worker.debuggee.title}: {error.message}")
            self._leave([worker])
        except Exception as error:  # it has ended, or speaks no DAP
            self._log(f"{worker.debuggee.title}: {error}")
            self._tries[worker.debuggee.worker_id, worker.debuggee.port] += 1
            self._leave([worker])
        else:
            self._attached_to(worker)

    def _give_up(self, worker: Worker) -> None:
        """Until the next editor."""
        self._tries[worker.debuggee.worker_id, worker.debuggee.port] = MOST_TRIES

    def _attached_to(self, worker: Worker) -> None:
        self._log(f"attached to {worker.debuggee.title}")
        worker.ready.set()
        self._show(worker, worker.main_thread)
        self._spawn(self._until_ended(worker))
        if worker.revision != self._revision:
            self._spawn(self._configure(worker))
        if self._editor is None and not (self._keep_paused and worker.stops):
            self._leave([worker])

    async def _configure(self, worker: Worker) -> None:
        """Puts all that the editor asked for into a debuggee, and takes back what an earlier one did."""
        try:
            while worker.revision != self._revision:  # which may go on while this is done
                worker.revision = self._revision
                by_path = self._by_path(worker)
                for path in {*by_path, *worker.paths}:
                    await worker.set_breakpoints(path, by_path.get(path, []))
                for path in list(self._desired.files):
                    await self._compare(worker, path, self._paths.remote(path, worker.layout))
                await worker.set_exceptions(self._desired)
                await worker.set_functions(self._desired)
            if not (self._desired.needs_tracing or worker.ready.is_set()):
                # Only now: of a task that runs it might come between a `breakpoint()` call and its stop.
                await worker.sleep()
        except RequestFailed as error:
            self._log(f"{worker.debuggee.title}: {error.message}")
            self._spawn(self._catch_up(worker))
        self._tell_breakpoints()

    async def _catch_up(self, worker: Worker) -> None:
        """A debuggee that did not answer in time gets what it missed once it answers again."""
        if worker.late:
            return
        worker.late = True
        await worker.answers()
        worker.late, worker.revision = False, -1
        if not worker.left:
            await self._configure(worker)

    async def _adopt(self, worker: Worker) -> None:
        """A debuggee that is attached already gets a new editor."""
        await self._configure(worker)
        for thread in worker.named:
            self._tell_stop(worker, thread)

    async def _until_ended(self, worker: Worker) -> None:
        await worker.ended.wait()
        self._end(worker)

    def _end(self, worker: Worker) -> None:
        """A debuggee has ended by itself."""
        if worker.left:
            return
        self._log(f"{worker.debuggee.title} has ended")
        self._give_up(worker)  # Ray lists it for some more seconds
        self._leave([worker])

    def _leave(self, workers: Iterable[Worker]) -> None:
        """Lets them go on without us; they are gone from the editor's list at once."""
        for worker in [worker for worker in workers if not worker.left]:
            for thread in worker.threads:
                self._event_to_editor("thread", {"reason": "exited", "threadId": self._row(worker, thread)})
            worker.left = True
            worker.ready.set()  # nobody has to wait for that any more
            # Each by itself: one that is frozen must not keep the others from a new editor.
            self._leaving.add(leave := self._spawn(worker.leave()))
            leave.add_done_callback(self._leaving.discard)
            self._spawn(self._settle_down(worker, leave))

    async def _settle_down(self, worker: Worker, leave: asyncio.Future[Any]) -> None:
        """Makes it one that may be attached to again."""
        await asyncio.wait({leave})
        self._forget(worker)
        await asyncio.sleep(SETTLING)
        if self._workers.get(worker.debuggee.worker_id) is worker:
            del self._workers[worker.debuggee.worker_id]

    def _forget(self, worker: Worker) -> None:
        self._ids.forget(worker)
        self._desired.forget(worker)
        if self._focus is worker:
            self._focus = None
        if self._moved is worker:
            self._moved = None

    def _attached(self) -> list[Worker]:
        return [worker for worker in self._workers.values() if worker.ready.is_set() and not worker.left]

    # --- what debuggees say --------------------------------------------------------------

    def _event(self, worker: Worker, message: Message) -> None:
        name, body = message.get("event"), message.get("body") or {}
        if not isinstance(name, str) or not isinstance(body, dict):
            return
        thread = body.get("threadId")
        if name == "stopped":
            if isinstance(thread, int):
                worker.stops[thread] = body
                self._spawn(self._stopped(worker, thread, body))
        elif name == "continued":
            self._goes_on(worker)
        elif name == "thread":
            if body.get("reason") == "exited" and isinstance(thread, int) and thread in worker.threads:
                self._thread_ended(worker, thread)
        elif name == "terminated":
            # The adapter outlives a killed debuggee, and waits for its client to leave.
            self._end(worker)
        elif name not in _SWALLOWED and body.get("category") != "telemetry":
            self._event_to_editor(name, self._outward(worker, body))

    async def _stopped(self, worker: Worker, thread: int, body: Message) -> None:
        await worker.ready.wait()
        if worker.left:
            return
        # Only then does the editor know that it moved.
        if worker.moving is not None:
            await asyncio.wait({worker.moving}, timeout=PATIENCE)
        await worker.name_task(thread)
        if worker.stops.get(thread) is body:
            worker.named.add(thread)
            self._show(worker, thread)
            self._tell_stop(worker, thread)

    def _tell_stop(self, worker: Worker, thread: int) -> None:
        editor, stop = self._editor, worker.stops[thread]
        if editor is None or not editor.configured:
            return
        body = {name: value for name, value in stop.items() if name != "hitBreakpointIds"}
        if hit := worker.hit(stop.get("hitBreakpointIds")):
            body["hitBreakpointIds"] = hit
        elsewhere = any(other is not worker and other.told for other in self._attached())
        worker.told.add(thread)
        editor.event(
            "stopped",
            {
                **body,
                "threadId": self._row(worker, thread),
                "allThreadsStopped": False,
                # A second stop must not steal the focus from what the user is looking at.
                "preserveFocusHint": elsewhere and worker is not self._moved,
                "ray": _ray(worker.debuggee),
            },
        )
        if not elsewhere:
            self._focus = worker

    def _thread_ended(self, worker: Worker, thread: int) -> None:
        worker.threads.remove(thread)
        worker.stops.pop(thread, None)
        self._event_to_editor("thread", {"reason": "exited", "threadId": self._row(worker, thread)})

    def _event_to_editor(self, name: str, body: Message) -> None:
        if self._editor is not None and self._editor.configured:
            self._editor.event(name, body)

    def _say(self, text: str) -> None:
        self._log(text)
        self._event_to_editor("output", _said(text))

    # --- threads -------------------------------------------------------------------------

    @property
    def _cluster_row(self) -> int:
        return self._ids.outer(_CLUSTER, "thread", 0)

    def _row(self, worker: Worker, thread: int) -> int:
        return self._ids.outer(worker, "thread", thread)

    def _show(self, worker: Worker, thread: int) -> None:
        """Gives a thread a row. The main thread's is dropped for one that stops: it only waits for that."""
        main = worker.main_thread
        if thread != main and main in worker.threads and main not in worker.stops:
            worker.threads.remove(main)
            self._event_to_editor("thread", {"reason": "exited", "threadId": self._row(worker, main)})
        if thread not in worker.threads:
            worker.threads.add(thread)
            row = self._row(worker, thread)
            self._event_to_editor("thread", {"reason": "started", "threadId": row})

    async def _threads(self, editor: Editor, request: Message, arguments: Message) -> None:
        rows: list[Message] = [
            {"id": self._row(worker, thread), "name": worker.debuggee.title, "ray": _ray(worker.debuggee)}
            for worker in self._attached()
            for thread in worker.threads
        ]
        editor.respond(request, {"threads": [*rows, {"id": self._cluster_row, "name": _CLUSTER}]})

    async def _stack_trace(self, editor: Editor, request: Message, arguments: Message) -> None:
        if arguments.get("threadId") == self._cluster_row:
            editor.respond(request, {"stackFrames": [], "totalFrames": 0})
            return
        await self._forward(editor, request, arguments)

    # --- moving --------------------------------------------------------------------------

    async def _move(self, editor: Editor, request: Message, arguments: Message) -> None:
        command = request["command"]
        if arguments.get("threadId") == self._cluster_row:
            if command != "continue":
                raise Refused("choose a task: the row of the cluster can only be paused and continued")
            await self._all("continue", [worker for worker in self._attached() if worker.stops])
            editor.respond(request, {"allThreadsContinued": False})
            return
        worker, inner = self._inward(arguments)
        thread = inner.get("threadId")
        if thread not in worker.stops and command == "continue":
            # It went on with another thread of its process, which the editor has been told since.
            editor.respond(request, {"allThreadsContinued": False})
            return
        if thread not in worker.stops:
            raise Refused(f"{worker.debuggee.title} is not stopped")

        def answered(body: Message) -> None:
            # Without the false, VS Code takes every thread for running.
            editor.respond(request, {**body, "allThreadsContinued": False} if command == "continue" else body)

        self._moved = worker
        await self._let_go(worker, command, inner, answered, thread)

    async def _let_go(
        self,
        worker: Worker,
        command: str,
        arguments: Message,
        answered: Callable[[Message], None],
        asked: int | None = None,
    ) -> None:
        """Moves a debuggee: all its threads, as debugpy does. The editor is told of all but `asked`.

        Raises:
            RequestFailed, DebuggerGone: as `Client.request`.
        """
        # Before it is asked to, for its next stop may come together with the answer.
        stood = worker.goes_on()
        worker.moving = moving = asyncio.get_running_loop().create_future()
        try:
            response = await worker.answer(command, arguments, PATIENCE)
            if not response.get("success"):
                worker.stops = {**stood, **worker.stops}
                raise RequestFailed(reason(response), hint="Try again.")
            stood.pop(asked, None)  # type: ignore[arg-type]
            self._ids.forget(worker, OF_A_STOP)
            body = response.get("body")
            answered(body if isinstance(body, dict) else {})
        finally:
            # Also of one that is frozen: it will go on, as soon as it can.
            if not worker.stops:
                self._tell_continued(worker, stood)
            worker.moving = None
            moving.set_result(None)

    def _goes_on(self, worker: Worker) -> None:
        """It moves by itself."""
        self._ids.forget(worker, OF_A_STOP)
        self._tell_continued(worker, worker.goes_on())

    def _tell_continued(self, worker: Worker, threads: Iterable[int]) -> None:
        for thread in threads:
            row = self._row(worker, thread)
            self._event_to_editor("continued", {"threadId": row, "allThreadsContinued": False})

    async def _all(self, command: str, workers: list[Worker]) -> None:
        async def one(worker: Worker) -> None:
            if command == "pause":
                await worker.wake()
                await worker.answer("pause", {"threadId": worker.main_thread}, PATIENCE)
            else:
                await self._let_go(worker, command, {"threadId": next(iter(worker.stops))}, lambda _: None)

        await self._settle([one(worker) for worker in workers])

    async def _pause(self, editor: Editor, request: Message, arguments: Message) -> None:
        if arguments.get("threadId") == self._cluster_row:
            await self._all("pause", [worker for worker in self._attached() if not worker.stops])
            editor.respond(request)
            return
        worker, inner = self._inward(arguments)
        # Only what watches its own code run notices.
        await worker.wake()
        await self._forward_to(worker, editor, request, inner)

    async def _goto_targets(self, editor: Editor, request: Message, arguments: Message) -> None:
        worker = self._focused()
        await self._forward_to(worker, editor, request, self._inward(arguments, worker)[1])

    # --- what they stop at ---------------------------------------------------------------

    async def _set_breakpoints(self, editor: Editor, request: Message, arguments: Message) -> None:
        source = arguments.get("source")
        path = source.get("path") if isinstance(source, dict) else None
        if not isinstance(path, str) or not path:
            raise Refused("breakpoints can be set in files that have a path")
        specs = arguments.get("breakpoints")
        if specs is None:
            specs = [{"line": line} for line in _list(arguments, "lines")]
        if not isinstance(specs, list) or not all(
            isinstance(spec, dict) and isinstance(spec.get("line"), int) for spec in specs
        ):
            raise Refused("`breakpoints` has to be a list of objects with a line")
        for sum_ in _list(source or {}, "checksums"):
            if isinstance(sum_, dict) and sum_.get("algorithm") == "SHA256":
                self._desired.checksums[path] = str(sum_.get("checksum")).lower()
        breakpoints = self._desired.replace(path, specs)
        await self._fan_out(lambda worker: self._set_in(worker, path))
        for breakpoint_ in breakpoints:
            breakpoint_.told = breakpoint_.document()
        editor.respond(request, {"breakpoints": [breakpoint_.told for breakpoint_ in breakpoints]})
        self._rest()

    async def _fan_out(self, put: Callable[[Worker], Coroutine[Any, Any, Any]]) -> list[Any]:
        """Puts what has changed into every debuggee; as `_settle`."""
        before, self._revision = self._revision, self._revision + 1

        async def one(worker: Worker) -> Any:
            if worker.revision == before:  # otherwise it is behind, and gets this with the rest
                worker.revision = self._revision
            try:
                return await put(worker)
            except RequestFailed:
                self._spawn(self._catch_up(worker))
                raise

        return await self._settle([one(worker) for worker in self._attached()])

    async def _set_in(self, worker: Worker, path: str) -> None:
        remote = self._paths.remote(path, worker.layout)
        await worker.set_breakpoints(remote, self._by_path(worker).get(remote, []))
        await self._compare(worker, path, remote)
        self._tell_breakpoints()

    def _by_path(self, worker: Worker) -> dict[str, list[Breakpoint]]:
        """All breakpoints by the debuggee's path: two of the editor's may be one of its."""
        found: dict[str, list[Breakpoint]] = {}
        for path, breakpoints in self._desired.files.items():
            found.setdefault(self._paths.remote(path, worker.layout), []).extend(breakpoints)
        return found

    async def _compare(self, worker: Worker, path: str, remote: str) -> None:
        """Says it once where the editor's file is not the one that the debuggee runs."""
        if path in self._told:
            return
        ours = self._desired.checksums.get(path)
        if ours is None and self._paths.shared:
            ours = files.own(path)
        theirs = await worker.file(remote) if ours else None
        if theirs is None or theirs.sha256 == ours or path in self._told:  # by another one meanwhile
            return
        self._told.add(path)
        self._say(
            f"{path} was changed after the job was submitted: the tasks run what was submitted, and lines may"
            " differ. Submit the job again to debug what you see."
        )

    def _tell_breakpoints(self) -> None:
        """Tells the editor of those whose state is not what it was told."""
        for breakpoints in self._desired.files.values():
            for breakpoint_ in breakpoints:
                document = breakpoint_.document()
                if breakpoint_.told is not None and breakpoint_.told != document:
                    breakpoint_.told = document
                    self._event_to_editor("breakpoint", {"reason": "changed", "breakpoint": document})

    async def _set_exception_breakpoints(self, editor: Editor, request: Message, arguments: Message) -> None:
        filters = _list(arguments, "filters")
        self._desired.except_for(arguments)
        await self._fan_out(lambda worker: worker.set_exceptions(self._desired))
        editor.respond(request, {"breakpoints": [{"verified": True} for _ in filters]})
        self._rest()

    async def _set_function_breakpoints(self, editor: Editor, request: Message, arguments: Message) -> None:
        specs = _list(arguments, "breakpoints")
        self._desired.functions = {"breakpoints": specs}
        answers = await self._fan_out(lambda worker: worker.set_functions(self._desired))
        verified = [any(answer[n : n + 1] == [True] for answer in answers) for n in range(len(specs))]
        editor.respond(request, {"breakpoints": [{"verified": each} for each in verified]})
        self._rest()

    def _rest(self) -> None:
        """Debuggees that have nothing to stop at run at full speed."""
        if not self._desired.needs_tracing:
            for worker in self._attached():
                self._spawn(worker.sleep())

    # --- the rest ------------------------------------------------------------------------

    async def _forward(self, editor: Editor, request: Message, arguments: Message) -> None:
        """The default: to the debuggee that the numbers in the request are of, else to the one in focus."""
        worker, inner = self._inward(arguments)
        await self._forward_to(worker, editor, request, inner)

    async def _forward_to(self, worker: Worker, editor: Editor, request: Message, inner: Message) -> None:
        command = request["command"]
        moves = worker.moves
        response = await worker.answer(command, inner, EVALUATION if command in _RUN_USER_CODE else PATIENCE)
        if not response.get("success"):
            editor.refuse(request, reason(response))
            return
        body = response.get("body")
        if isinstance(body, dict) and worker.moves == moves:
            body = self._outward(worker, body)
        editor.respond(request, body if isinstance(body, dict) else None)

    def _inward(self, arguments: Message, worker: Worker | None = None) -> tuple[Worker, Message]:
        """Who is meant, and the arguments as it knows them. Raises UnknownId, Refused."""
        inner = dict(arguments)
        owner: Hashable = worker
        places = [inner]
        if isinstance(inner.get("source"), dict):
            inner["source"] = dict(inner["source"])
            places.append(inner["source"])
        for place in places:
            for name, kind in translation.ARGUMENTS.items():
                if not place.get(name):
                    continue
                of, place[name] = self._ids.inner(place[name], kind)
                if owner is not None and of is not owner:
                    raise Refused("the request names things of two tasks")
                owner = of
        if owner == _CLUSTER:
            raise Refused("choose a task: the row of the cluster has no frames")
        found = owner if isinstance(owner, Worker) else self._focused()
        self._focus = found
        for place in places[1:]:
            if isinstance(place.get("path"), str):
                place["path"] = self._paths.remote(place["path"], found.layout)
        return found, inner

    def _focused(self) -> Worker:
        attached = self._attached()
        if self._focus in attached and self._focus is not None:
            return self._focus
        standing = [worker for worker in attached if worker.stops]
        if standing or len(attached) == 1:
            return [*standing, *attached][0]
        raise Refused("no task is stopped")

    def _outward(self, worker: Worker, body: Message) -> Message:
        def number(kind: Kind, inner: int) -> int:
            return self._ids.outer(worker, kind, inner)

        def source(found: Message) -> None:
            path = found.get("path")
            local = self._paths.local(path) if isinstance(path, str) else None
            if local is not None:
                # Its own file, which it can edit, rather than the text that the debuggee has.
                found["path"] = local
                found["sourceReference"] = 0

        return translation.outward(body, number, source)

    async def _settle(self, work: list[Coroutine[Any, Any, Any]]) -> list[Any]:
        """Does it side by side for at most FAN_OUT seconds; what takes longer goes on.

        Returns:
            The results of what was done without an error.
        """
        tasks = [self._spawn(each) for each in work]
        if not tasks:
            return []
        done, _ = await asyncio.wait(tasks, timeout=FAN_OUT)
        return [
            task.result() for task in tasks if task in done and not task.cancelled() and not task.exception()
        ]

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Future[Any]:
        future = asyncio.ensure_future(work)
        self._work.add(future)
        future.add_done_callback(self._worked)
        return future

    def _worked(self, future: asyncio.Future[Any]) -> None:
        self._work.discard(future)
        if future.cancelled():
            return
        error = future.exception()
        if error is not None and not isinstance(error, RequestFailed | DebuggerGone):
            self._log(f"a defect: {error!r}")


def _mappings(given: object) -> list[tuple[str, str]]:
    if given is None:
        return []
    if not isinstance(given, list):
        raise Refused("`pathMappings` has to be a list")
    found = []
    for mapping in given:
        local = mapping.get("localRoot") if isinstance(mapping, dict) else None
        remote = mapping.get("remoteRoot") if isinstance(mapping, dict) else None
        if not isinstance(local, str) or not isinstance(remote, str) or not local.startswith("/"):
            raise Refused("each of `pathMappings` has an absolute localRoot and a remoteRoot")
        found.append((local, remote))
    return found


def _list(arguments: Message, name: str) -> list[Any]:
    found = arguments.get(name)
    if not isinstance(found, list | None):
        raise Refused(f"`{name}` has to be a list")
    return found or []


def _ray(debuggee: Debuggee) -> Message:
    return {
        "task": debuggee.task,
        "workerId": debuggee.worker_id,
        "nodeIp": debuggee.node_ip,
        "pid": debuggee.pid,
        "jobId": debuggee.job_id,
        "submissionId": debuggee.submission_id,
    }


def _said(text: str) -> Message:
    return {"category": "important", "output": f"{text}\n"}
