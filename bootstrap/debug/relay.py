"""The debug relay: one DAP server that shows many debuggees to one editor as one process.

Downstream an editor; upstream a `Worker` for each debuggee that `Discovery` finds. Here are the server and
the requests of editors. What they ask for is done by `Lifecycle`, which attaches to debuggees and leaves
them, by `Threads`, in which they stop and go on, and by `Configuration`, which is what they stop at.
Source: https://microsoft.github.io/debug-adapter-protocol/specification
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Awaitable, Callable
from typing import Any

from bootstrap.debug import translation
from bootstrap.debug.capabilities import CAPABILITIES, REFUSED
from bootstrap.debug.client import STOP_IN_USER_CODE, reason
from bootstrap.debug.configuration import Configuration
from bootstrap.debug.dap import Message
from bootstrap.debug.debuggee import Discovery
from bootstrap.debug.editor import CurrentEditor, Editor
from bootstrap.debug.ids import Ids, Kind, UnknownId
from bootstrap.debug.lifecycle import Lifecycle
from bootstrap.debug.paths import Paths
from bootstrap.debug.threads import CLUSTER, Threads
from bootstrap.debug.work import Work
from bootstrap.debug.worker import PATIENCE, Asked, Worker, Workers
from bootstrap.errors import DebuggerGone, RequestFailed

# Seconds for a debuggee's answer where user code runs.
EVALUATION = 60.0
# Requests of one editor that may be in flight; it is not read any further until one is answered.
MOST_REQUESTS = 256

# What is answered on a connection that has not attached.
_OF_ANYBODY = frozenset({"initialize", "attach", "disconnect", "pausedTasks"})
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
        self._current = current = CurrentEditor(log)
        self._work = work = Work(log)
        self._ids = Ids()
        self._workers = workers = Workers()
        self._threads = Threads(workers, ids=self._ids, editor=current, work=work)
        self._configuration = Configuration(
            workers,
            paths=Paths(roots=discovery.local_roots, shared=shared_files),
            editor=current,
            work=work,
            log=log,
        )
        self._lifecycle = Lifecycle(
            workers,
            discovery,
            configuration=self._configuration,
            threads=self._threads,
            editor=current,
            work=work,
            log=log,
            on_event=self._event,
        )
        self._handlers: dict[str, Handler] = {
            "attach": self._attach,
            "cancel": self._nothing,
            "configurationDone": self._configuration_done,
            "disconnect": self._disconnect,
            "focusTask": self._focus_task,
            "initialize": self._initialize,
            "pause": self._pause,
            "pausedTasks": self._paused_tasks,
            "setBreakpoints": self._set_breakpoints,
            "setExceptionBreakpoints": self._set_exception_breakpoints,
            "setFunctionBreakpoints": self._set_function_breakpoints,
            "stackTrace": self._stack_trace,
            "threads": self._rows,
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
        self._current.editor = None
        await self._lifecycle.close()
        self._work.cancel()
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
            if editor is self._current.editor:
                self._editor_left()
            await editor.close()

    async def _answer(self, editor: Editor, request: Message) -> None:
        command, arguments = request["command"], request.get("arguments") or {}
        handler = self._handlers.get(command, self._forward)
        try:
            if editor is not self._current.editor and command not in _OF_ANYBODY:
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
        if editor is self._current.editor:
            raise Refused("attached already")
        paths = Paths(
            _mappings(arguments.get("pathMappings")),
            self._discovery.local_roots,
            shared=self._shares(arguments),
        )
        job = arguments.get("job")
        if job is not None and not isinstance(job, str):
            raise Refused("`job` has to be a string: a submission id, or Ray's job id")
        earlier, self._current.editor = self._current.editor, editor
        if earlier is not None:
            self._log("another editor took over")
            earlier.say("Another editor has attached; this session ends.")
            earlier.event("terminated")
            self._work.start(earlier.close())
        given = {name: arguments[name] for name in _OPTIONS if name in arguments}
        asked = Asked({**STOP_IN_USER_CODE, **given}, job or None, self._discovery.submission)
        self._lifecycle.begin(asked, keep_paused=arguments.get("keepPaused") is True)
        self._configuration.begin(paths)
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
        editor.event("thread", {"reason": "started", "threadId": self._threads.cluster})
        self._lifecycle.watch()

    async def _disconnect(self, editor: Editor, request: Message, arguments: Message) -> None:
        # Whatever `terminateDebuggee` says: a worker that is killed has its task run again.
        if editor is self._current.editor:
            if arguments.get("suspendDebuggee") is True:
                self._lifecycle.keep_paused = True
            self._editor_left()
        editor.respond(request)
        await editor.close()

    def _editor_left(self) -> None:
        self._current.editor = None
        kept = "; what is stopped stays so" if self._lifecycle.keep_paused else ""
        self._log(f"the editor has gone{kept}")
        self._lifecycle.editor_left()

    async def _paused_tasks(self, editor: Editor, request: Message, arguments: Message) -> None:
        if editor is not self._current.editor and not self._admits(arguments):
            raise Refused("`pausedTasks` needs the token")
        paused = [worker.debuggee.document() for worker in self._workers.attached if worker.stops]
        editor.respond(
            request, {"tasks": sorted(paused, key=lambda task: (task["since"], task["worker_id"]))}
        )

    async def _focus_task(self, editor: Editor, request: Message, arguments: Message) -> None:
        named = arguments.get("workerId")
        for worker in self._workers.attached:
            thread = next((thread for thread in worker.stops if thread in worker.told), None)
            if worker.debuggee.worker_id == named and thread is not None:
                editor.respond(request)
                self._threads.tell_stop(worker, thread, focus=True)
                return
        raise Refused(f"no task of worker {named!r} is stopped")

    async def _nothing(self, editor: Editor, request: Message, arguments: Message) -> None:
        editor.respond(request)

    async def _refuse(self, editor: Editor, request: Message, arguments: Message) -> None:
        raise Refused(REFUSED[request["command"]])

    # --- threads -------------------------------------------------------------------------

    async def _rows(self, editor: Editor, request: Message, arguments: Message) -> None:
        editor.respond(request, {"threads": self._threads.rows()})

    async def _stack_trace(self, editor: Editor, request: Message, arguments: Message) -> None:
        if arguments.get("threadId") == self._threads.cluster:
            editor.respond(request, {"stackFrames": [], "totalFrames": 0})
            return
        await self._forward(editor, request, arguments)

    async def _move(self, editor: Editor, request: Message, arguments: Message) -> None:
        command = request["command"]
        if arguments.get("threadId") == self._threads.cluster:
            if command != "continue":
                raise Refused("choose a task: the row of the cluster can only be paused and continued")
            await self._threads.continue_all()
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

        self._threads.moved = worker
        await self._threads.let_go(worker, command, inner, answered, thread)

    async def _pause(self, editor: Editor, request: Message, arguments: Message) -> None:
        if arguments.get("threadId") == self._threads.cluster:
            await self._threads.pause_all()
            editor.respond(request)
            return
        worker, inner = self._inward(arguments)
        # Only what watches its own code run notices.
        await worker.wake()
        await self._forward_to(worker, editor, request, inner)

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
        sums = [sum_ for sum_ in _list(source or {}, "checksums") if isinstance(sum_, dict)]
        sha256 = [str(sum_.get("checksum")).lower() for sum_ in sums if sum_.get("algorithm") == "SHA256"]
        breakpoints = await self._configuration.set_breakpoints(path, specs, sha256=[*sha256, None][0])
        editor.respond(request, {"breakpoints": breakpoints})

    async def _set_exception_breakpoints(self, editor: Editor, request: Message, arguments: Message) -> None:
        filters = _list(arguments, "filters")
        await self._configuration.set_exceptions(arguments)
        editor.respond(request, {"breakpoints": [{"verified": True} for _ in filters]})

    async def _set_function_breakpoints(self, editor: Editor, request: Message, arguments: Message) -> None:
        verified = await self._configuration.set_functions(_list(arguments, "breakpoints"))
        editor.respond(request, {"breakpoints": [{"verified": each} for each in verified]})

    # --- forwarding ----------------------------------------------------------------------

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

    def _inward(self, arguments: Message) -> tuple[Worker, Message]:
        """Who is meant, and the arguments as it knows them. Raises UnknownId, Refused."""
        owners, inner = translation.inward(arguments, self._ids.inner)
        if len(owners) > 1:
            raise Refused("the request names things of two tasks")
        if CLUSTER in owners:
            raise Refused("choose a task: the row of the cluster has no frames")
        found = next((owner for owner in owners if isinstance(owner, Worker)), None) or self._focused()
        self._threads.focus = found
        source = inner.get("source")
        if isinstance(source, dict) and isinstance(source.get("path"), str):
            source["path"] = self._configuration.paths.remote(source["path"], found.layout)
        return found, inner

    def _focused(self) -> Worker:
        worker = self._threads.in_focus()
        if worker is None:
            raise Refused("no task is stopped")
        return worker

    def _outward(self, worker: Worker, body: Message) -> Message:
        def number(kind: Kind, inner: int) -> int:
            return self._ids.outer(worker, kind, inner)

        def source(found: Message) -> None:
            path = found.get("path")
            local = self._configuration.paths.local(path) if isinstance(path, str) else None
            if local is not None:
                # Its own file, which it can edit, rather than the text that the debuggee has.
                found["path"] = local
                found["sourceReference"] = 0

        return translation.outward(body, number, source)

    # --- what debuggees say --------------------------------------------------------------

    def _event(self, worker: Worker, message: Message) -> None:
        name, body = message.get("event"), message.get("body") or {}
        if not isinstance(name, str) or not isinstance(body, dict):
            return
        thread = body.get("threadId")
        if name == "stopped":
            if isinstance(thread, int):
                self._threads.stopped(worker, thread, body)
        elif name == "continued":
            self._threads.went_on(worker)
        elif name == "thread":
            if body.get("reason") == "exited" and isinstance(thread, int):
                self._threads.ended(worker, thread)
        elif name == "terminated":
            # The adapter outlives a killed debuggee, and waits for its client to leave.
            self._lifecycle.end(worker)
        elif name not in _SWALLOWED and body.get("category") != "telemetry":
            self._current.event(name, self._outward(worker, body))


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
