"""Handlers of an attached editor's requests, answered here or forwarded to a debuggee."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from rayside.dap.channel import reason
from rayside.dap.drawn_values import drawn
from rayside.dap.framing import Message
from rayside.relay import translation
from rayside.relay.config import Masking
from rayside.relay.configuration import Configuration
from rayside.relay.connection import PATIENCE
from rayside.relay.edited_files import EditedFiles
from rayside.relay.editor import CurrentEditor, Editor, Handler
from rayside.relay.fan_out import BackgroundTasks, Coalesced
from rayside.relay.group_members import Members, WhyEnded
from rayside.relay.groups import Groups
from rayside.relay.masking import masked_breakpoint
from rayside.relay.remote_calls import RemoteCalls
from rayside.relay.retries import Retries
from rayside.relay.retry_requests import RetryRequests, mark_restartable
from rayside.relay.schemas import NotDap, Refused, arguments_of
from rayside.relay.thread_rows import CLUSTER, ClusterRow
from rayside.relay.threads import Threads
from rayside.relay.translation import Ids, OfAStop, Translator
from rayside.relay.worker import Worker, Workers

# Timeout in seconds of requests that run user code.
EVALUATION = 60.0

# Answers for frames that no task has.
_OF_NOTHING: dict[str, Message] = {"scopes": {"scopes": []}, "completions": {"targets": []}}
_RESUMING = frozenset({"continue", "next", "stepIn", "stepOut", "goto"})
_RUN_USER_CODE = frozenset({"evaluate", "setVariable", "setExpression", "variables", "completions"})

# Requests of an editor that only watches: none resumes a task, sets anything or evaluates an expression.
_READ = frozenset(
    {
        *("breakpointLocations", "exceptionInfo", "loadedSources", "modules", "scopes"),
        *("source", "stackTrace", "threads", "variables"),
    }
)
# Requests that editors send by themselves, maybe for a stop that has just ended, or whose errors they show at
# the typed expression: these errors need no message box.
SENT_UNASKED = _READ | {"completions", "evaluate"}
_SET = frozenset({"setBreakpoints", "setExceptionBreakpoints", "setFunctionBreakpoints"})
_WATCHES = (
    "this editor only watches: another one debugs these tasks. End this session, and attach to take over."
)


class EditorRequests:
    """Request handlers of one debug session; other requests in `schemas` are forwarded to a debuggee."""

    def __init__(
        self,
        workers: Workers,
        *,
        ids: Ids,
        threads: Threads,
        calls: RemoteCalls,
        configuration: Configuration,
        editor: CurrentEditor,
        masking: Masking,
        work: BackgroundTasks,
        read_stacks: Callable[[], Awaitable[Message]],
        why_ended: WhyEnded,
        attached_beside: Callable[[], Awaitable[None]],
    ) -> None:
        self._attached_beside = attached_beside
        self._workers, self._ids, self._threads = workers, ids, threads
        self._configuration, self._current, self._masking = configuration, editor, masking
        self._calls = calls
        self.outward = Translator(ids, lambda: configuration.paths).outward
        self._cluster_row = ClusterRow(workers, threads.rows, work, read_stacks)
        members = Members(workers, work)
        edited = EditedFiles(workers, configuration, work)
        self.retries = Retries(edited, threads, members, configuration, work)
        self._groups = Groups(
            members,
            threads,
            retry=self.retries.retry,
            paths=lambda: configuration.paths,
            why_ended=why_ended,
            work=work,
        )
        self._all_rows = Coalesced(threads.rows.listed)
        # Workers of pending evaluations, by editor and number of the request.
        self._evaluating: dict[tuple[Editor, object], list[Worker]] = {}
        self._handlers: dict[str, Handler] = {
            "breakpointLocations": self._breakpoint_locations,
            "cancel": self._cancel,
            "evaluate": self._evaluate,
            "focusTask": self._focus_task,
            "group": self._group,
            "pause": self._pause,
            "setBreakpoints": self._set_breakpoints,
            "setExceptionBreakpoints": self._set_exception_breakpoints,
            "setFunctionBreakpoints": self._set_function_breakpoints,
            "stackTrace": self._stack_trace,
            "threads": self._rows,
            **RetryRequests(self.retries, self._inward).handlers,
            **dict.fromkeys(_OF_NOTHING, self._of_frame),
            **dict.fromkeys(_RESUMING, self._resume),
        }

    async def answer(self, editor: Editor, request: Message, arguments: Message) -> None:
        """Answers a request. Raises Refused, UnknownId, DebuggerGone, RequestFailed."""
        command = request["command"]
        if editor is not self._current.editor and command not in _READ:
            self._refuse_watcher(editor, request, arguments)
            return
        await self.answer_beside(editor, request, arguments)

    async def answer_beside(self, editor: Editor, request: Message, arguments: Message) -> None:
        """Answers as `answer` does, also for other connections than the session's editor."""
        command = request["command"]
        try:
            known = arguments_of(command, arguments)
        except NotDap as error:
            raise Refused(f"{command}: {error}") from None
        handler = self._handlers.get(command, self._forward if known is not None else None)
        if handler is None:
            raise Refused(f"the relay does not know the request `{command}`")
        await handler(editor, request, arguments if known is None else known)

    def _refuse_watcher(self, editor: Editor, request: Message, arguments: Message) -> None:
        """Refuses a watching editor's request; for `setBreakpoints` etc., with unverified breakpoints."""
        listed = arguments.get(
            "filters" if request["command"] == "setExceptionBreakpoints" else "breakpoints"
        )
        if request["command"] not in _SET or not isinstance(listed, list):
            raise Refused(f"`{request['command']}`: {_WATCHES}")
        editor.respond(request, {"breakpoints": [{"verified": False, "message": _WATCHES} for _ in listed]})

    async def _focus_task(self, editor: Editor, request: Message, arguments: Message) -> None:
        named = arguments.get("workerId")
        for worker in self._workers.attached:
            thread = next((thread for thread, stop in worker.stops.items() if stop.reported), None)
            if worker.debuggee.shown_id == named and thread is not None:
                editor.respond(request)
                self._threads.tell_stop(worker, thread, focus=True)
                return
        raise Refused(f"no task of worker {named!r} is stopped")

    async def _cancel(self, editor: Editor, request: Message, arguments: Message) -> None:
        workers = self._evaluating.get((editor, arguments.get("requestId")))
        if workers is None:
            why = "there is nothing to cancel: only an `evaluate` that has no answer yet can be"
            editor.refuse(request, why, is_for_users=False)
            return
        await asyncio.gather(*(worker.connection.interrupt() for worker in workers))
        editor.respond(request)

    # --- threads -------------------------------------------------------------------------

    async def _rows(self, editor: Editor, request: Message, arguments: Message) -> None:
        asked = asyncio.get_running_loop().time()
        # One answer is sent at a time: with a thousand debuggees each has 300 kB, and an editor that leaves
        # too much unread is dropped.
        async with editor.turn:
            editor.respond(request, await self._all_rows.since(asked))
            await editor.taken()

    async def _stack_trace(self, editor: Editor, request: Message, arguments: Message) -> None:
        if arguments.get("threadId") == self._threads.rows.cluster:
            editor.respond(request, await self._cluster_row.stack(arguments))
            return
        await self._forward(editor, request, arguments)

    async def _of_frame(self, editor: Editor, request: Message, arguments: Message) -> None:
        frame = arguments.get("frameId")
        if not frame or self._threads.rows.is_of_cluster(frame) or self._calls.is_callers(frame):
            editor.respond(request, _OF_NOTHING[request["command"]])
            return
        await self._forward(editor, request, arguments)

    async def _resume(self, editor: Editor, request: Message, arguments: Message) -> None:
        command = request["command"]
        await self._attached_beside()
        if arguments.get("threadId") == self._threads.rows.cluster:
            if command != "continue":
                raise Refused("choose a task: the row of the cluster can only be paused and continued")
            await self._threads.continue_all()
            editor.respond(request, {"allThreadsContinued": False})
            return
        worker, thread, inner = self._inward(editor, arguments)
        if thread not in worker.stops and command == "continue":
            # It resumed together with another thread of its process, and the editor has got an event since.
            editor.respond(request, {"allThreadsContinued": False})
            return
        if thread not in worker.stops:
            raise Refused(f"{worker.debuggee.title} is not stopped")

        def answered(body: Message) -> None:
            # Without `allThreadsContinued: false`, VS Code shows every thread as running.
            editor.respond(request, {**body, "allThreadsContinued": False} if command == "continue" else body)

        self._threads.resumed = worker
        await self._threads.resume(worker, command, inner, answered)

    async def _pause(self, editor: Editor, request: Message, arguments: Message) -> None:
        if arguments.get("threadId") == self._threads.rows.cluster:
            await self._threads.pause_all()
            editor.respond(request)
            return
        worker, thread, inner = self._inward(editor, arguments)
        # Only a debuggee that traces its code notices a pause.
        await worker.installed.tracing.wake()
        # The main thread's row represents all threads of the process until one has stopped.
        everything = thread == worker.main_thread and not worker.stops
        await self._forward_to(
            worker, thread, editor, request, {**inner, "threadId": "*"} if everything else inner
        )

    # --- all stopped tasks together ------------------------------------------------------

    async def _group(self, editor: Editor, request: Message, arguments: Message) -> None:
        answer = await self._groups.act(**arguments)
        # As with `threads`: the answer for a thousand members is long.
        async with editor.turn:
            editor.respond(request, answer)
            await editor.taken()

    async def _evaluate(self, editor: Editor, request: Message, arguments: Message) -> None:
        if (answer_of_group := await self._groups.typed(arguments)) is not None:
            editor.respond(request, {"result": answer_of_group, "variablesReference": 0})
            return
        if not self._cluster_row.is_meant(arguments):
            await self._forward(editor, request, arguments)
            return
        asked = (editor, request["seq"])
        self._evaluating[asked] = self._cluster_row.workers
        try:
            answer = await self._cluster_row.compared(arguments["expression"])
        finally:
            self._evaluating.pop(asked, None)
        editor.respond(request, {"result": "\n".join(drawn(answer)), "variablesReference": 0})

    async def compare(self, editor: Editor, expression: object) -> Message:
        """Compares an expression's values in all stopped tasks of the session. Raises Refused."""
        if editor is not self._current.editor:
            raise Refused(f"`compare`: {_WATCHES}")
        return await self._cluster_row.compared(expression)

    # --- breakpoints ---------------------------------------------------------------------

    async def _set_breakpoints(self, editor: Editor, request: Message, arguments: Message) -> None:
        source = arguments["source"]
        if not (path := source.get("path")):
            raise Refused("breakpoints can be set in files that have a path")
        specs = arguments.get("breakpoints")
        if specs is None:
            specs = [{"line": line} for line in arguments.get("lines", [])]
        specs = [masked_breakpoint(spec, self._masking) if "logMessage" in spec else spec for spec in specs]
        sums = {sum_.get("algorithm"): sum_.get("checksum", "") for sum_ in source.get("checksums", [])}
        sha256 = sums["SHA256"].lower() if "SHA256" in sums else None
        breakpoints = await self._configuration.set_breakpoints(path, specs, sha256=sha256)
        editor.respond(request, {"breakpoints": breakpoints})

    async def _breakpoint_locations(self, editor: Editor, request: Message, arguments: Message) -> None:
        path = arguments["source"].get("path")
        lines = await self._configuration.lines(path) if path else None
        editor.respond(request, {"breakpoints": lines.locations(arguments) if lines is not None else []})

    async def _set_exception_breakpoints(self, editor: Editor, request: Message, arguments: Message) -> None:
        editor.respond(request, {"breakpoints": await self._configuration.set_exceptions(arguments)})

    async def _set_function_breakpoints(self, editor: Editor, request: Message, arguments: Message) -> None:
        breakpoints = await self._configuration.set_functions(arguments.get("breakpoints", []))
        editor.respond(request, {"breakpoints": breakpoints})

    # --- forwarding ----------------------------------------------------------------------

    async def _forward(self, editor: Editor, request: Message, arguments: Message) -> None:
        """Forwards a request to the debuggee of the ids in it, else to the one in focus."""
        worker, thread, inner = self._inward(editor, arguments)
        await self._forward_to(worker, thread, editor, request, inner)

    async def _forward_to(
        self, worker: Worker, thread: int | None, editor: Editor, request: Message, inner: Message
    ) -> None:
        command = request["command"]
        resumes = worker.resumes[thread]
        asked = (editor, request["seq"])
        sent = inner
        if command == "evaluate":
            self._evaluating[asked] = [worker]
            sent = translation.evaluated(worker.connection, inner)
        try:
            response = await worker.connection.answer(
                command, sent, EVALUATION if command in _RUN_USER_CODE else PATIENCE
            )
        finally:
            self._evaluating.pop(asked, None)
        if not response.get("success"):
            editor.refuse(request, worker.masks.text(reason(response)))
            return
        body = response["body"]
        if command == "completions":
            targets = await translation.completed(worker.connection, inner, body.get("targets", []))
            body = {**body, "targets": targets}
        body = translation.page(inner, body)
        translation.as_typed(body.get("variables", []))
        if command == "stackTrace":
            mark_restartable(inner, body, failed=thread is not None and worker.has_failed(thread))
        body = await worker.masks.response(command, inner, body)
        if worker.resumes[thread] == resumes:
            body = self.outward(worker, body, thread)
            if command == "stackTrace":
                body = self._calls.with_callers(worker, thread, inner, body, self.outward)
        editor.respond(request, body)

    def _inward(self, editor: Editor, arguments: Message) -> tuple[Worker, int | None, Message]:
        """Returns the request's debuggee, its thread, and the arguments with the debuggee's own ids.

        Raises UnknownId, Refused.
        """
        named, inner = translation.inward(arguments, self._ids.inner)
        owners = {each.owner if isinstance(each, OfAStop) else each for each in named}
        # Targets of a goto belong to no thread.
        threads = {each.thread for each in named if isinstance(each, OfAStop) and each.thread is not None}
        if "threadId" in inner:
            threads.add(inner["threadId"])
        if len(owners) > 1 or len(threads) > 1:
            raise Refused("the request names things of two tasks")
        if CLUSTER in owners:
            raise Refused("choose a task: the row of the cluster has no variables")
        if inner.get("frameId", 0) < 0:
            raise Refused("this frame is of the caller, as it was at the call: it has no variables here")
        worker = next((owner for owner in owners if isinstance(owner, Worker)), None) or self._focused()
        if editor is self._current.editor:
            self._threads.focus = worker
        if path := inner.get("source", {}).get("path"):
            inner["source"]["path"] = self._configuration.paths.remote(path, worker.layout)
        return worker, next(iter(threads), None), inner

    def _focused(self) -> Worker:
        worker = self._threads.in_focus()
        if worker is None:
            raise Refused("no task is stopped")
        return worker
