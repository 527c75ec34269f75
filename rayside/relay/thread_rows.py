"""Rows of threads that an editor lists: debuggees' threads, and the row that stands for the cluster."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from itertools import islice
from pathlib import PurePath
from typing import Any

from rayside.dap.drawn_stacks import rows
from rayside.dap.framing import Message, as_json
from rayside.errors import DebuggerGone, RequestFailed
from rayside.relay.comparison import compared
from rayside.relay.connection import PATIENCE
from rayside.relay.debuggee import Debuggee
from rayside.relay.editor import CurrentEditor
from rayside.relay.fan_out import BackgroundTasks, Coalesced
from rayside.relay.schemas import Refused
from rayside.relay.translation import Ids, UnknownId
from rayside.relay.worker import Worker, Workers

# This row is always listed: VS Code hides a single row, and so the task's name.
CLUSTER = "Ray cluster"


class ThreadRows:
    """Keeps the rows that a session's editor has.

    Attributes:
        others: the other Python threads of processes in which one has stopped.
    """

    def __init__(self, workers: Workers, *, ids: Ids, editor: CurrentEditor) -> None:
        self._workers, self._ids, self._editor = workers, ids, editor
        self.others = OtherThreads(workers, self._other_gone)

    @property
    def cluster(self) -> int:
        """Returns the editor's number of the row that is always listed."""
        return self._ids.outer(CLUSTER, "thread", 0)

    def cluster_frame(self, number: int) -> int:
        """Returns the editor's number of a frame of that row, which has them for all tasks."""
        return self._ids.outer(CLUSTER, "frame", number)

    def is_of_cluster(self, frame: object) -> bool:
        """Returns whether that is the editor's number of a frame of that row."""
        try:
            return self._ids.inner(frame, "frame")[0] == CLUSTER
        except UnknownId:
            return False

    async def listed(self) -> bytes:
        """Returns the body of the answer to `threads`, in JSON; no debuggee is asked.

        It has DAP's Thread for each, of each process the stopped ones first.
        """
        rows: list[bytes] = []
        for worker in self._workers.attached:
            for thread in worker.rows:
                rows.append(b'{"id":%d,%b}' % (self.number(worker, thread), _in_row(worker, thread).row))
            if worker.others:
                others = self.others.rows(worker)
                rows += [_other(worker, self.number(worker, thread), name) for thread, name in others]
        rows.append(as_json({"id": self.cluster, "name": CLUSTER}))
        return b'{"threads":[%b]}' % b",".join(rows)

    def follow_task(self, worker: Worker) -> None:
        """Gives a worker a row while it runs a task, or always where an editor asked for all threads."""
        if worker.is_idle and not self.others.shows_all:
            for thread in [*worker.rows]:
                self.remove(worker, thread)
        elif not worker.rows:
            self.show(worker, worker.main_thread)

    def show(self, worker: Worker, thread: int) -> None:
        """Gives a thread a row. The main thread's is dropped for one that stops: it only waits for that."""
        main = worker.main_thread
        if thread != main and main in worker.rows and main not in worker.stops:
            self.remove(worker, main)
        if thread not in worker.rows:
            worker.rows.add(thread)
            self.tell("started", worker, thread)

    def add_all(self, worker: Worker) -> None:
        """Gives the editor the rows that another one had."""
        for thread in worker.rows:
            self.tell("started", worker, thread)

    def remove(self, worker: Worker, thread: int) -> None:
        """Removes a thread's row."""
        worker.rows.remove(thread)
        self.tell("exited", worker, thread)

    def _other_gone(self, worker: Worker, thread: int) -> None:
        self._ids.forget_stop(worker, thread)
        if thread not in worker.rows:
            self.tell("exited", worker, thread)

    def number(self, worker: Worker, thread: int) -> int:
        """Returns the editor's number of a thread."""
        return self._ids.outer(worker, "thread", thread)

    def tell(self, change: str, worker: Worker, thread: int, why: str = "") -> None:
        ray = {"ray": {"reason": why}} if why else {}
        self._editor.event("thread", {"reason": change, "threadId": self.number(worker, thread), **ray})


def _in_row(worker: Worker, thread: int) -> Debuggee:
    """Returns a debuggee as the row of that thread shows it. That is seldom another: making one takes most of
    the time of a row."""
    stop = worker.stops.get(thread)
    is_same = stop is None or stop.task in ("", worker.debuggee.task)
    return worker.debuggee if is_same else worker.described_at(thread)


def _other(worker: Worker, number: int, name: str) -> bytes:
    """Returns DAP's Thread, in JSON, for a thread that is not debugged by itself."""
    return as_json({"id": number, "name": name, "ray": {"workerId": worker.debuggee.shown_id}})


# The most rows for one process, and for all that are stopped. Editors ask for all rows with each stop.
MOST_OTHERS, MOST_OTHERS_IN_ALL = 50, 300
# Seconds for which the rows stay when their process resumes: a step resumes and stops it, and rows that go
# and come with each are worse than rows that are a moment old.
LINGER = 1.0
# Names of threads that run nothing of the user's: Ray's own, the debugger's, and `Dummy-1`, as pydevd
# calls those that Python did not start: on 3.12 some of these have ended, or never were.
_NOT_USERS = re.compile(
    r"Dummy-\d+|PythonGCThread|ray_(import_thread|listen_error_messages|print_logs)|raylet[-_]client"
    r"|(pydevd|rayside)\b.*"
)


class OtherThreads:
    """Keeps `Worker.others`.

    Args:
        gone: is called with each thread of a worker that has no row any more.

    Attributes:
        shows_all: whether those that run nothing of the user's have rows, too.
    """

    def __init__(self, workers: Workers, gone: Callable[[Worker, int], None]) -> None:
        self._workers, self._gone, self.shows_all = workers, gone, False
        self._shown: dict[Worker, int] = {}
        self._all = 0  # the sum of `_shown`: a thousand may stop within a second

    async def ask(self, worker: Worker) -> None:
        """Asks a process that has stopped for its threads: in one request, whatever it answers."""
        if self._room(worker) <= 0:
            return
        try:
            body = await worker.connection.client.request("threads", timeout=PATIENCE)
        except (RequestFailed, DebuggerGone):
            return
        before = worker.others
        names = {row["id"]: row.get("name", "") for row in body.get("threads", [])}
        rows = [
            (thread, name)
            for thread, name in names.items()
            if thread not in worker.stops and (self.shows_all or not _NOT_USERS.fullmatch(name))
        ]
        self._keep(worker, dict(rows[: max(min(MOST_OTHERS, self._room(worker)), 0)]))
        for thread in before:
            if thread not in worker.others and thread not in worker.stops:
                self._gone(worker, thread)

    def _room(self, worker: Worker) -> int:
        return MOST_OTHERS_IN_ALL - self._all + self._shown.get(worker, 0)

    def _keep(self, worker: Worker, others: dict[int, str]) -> None:
        self.forget(worker)
        worker.others = others
        if others:
            self._shown[worker] = len(others)
            self._all += len(others)

    def forget(self, worker: Worker) -> None:
        """Forgets a worker that has ended, or is another session's now."""
        self._all -= self._shown.pop(worker, 0)

    def ended(self, worker: Worker, thread: int) -> None:
        """Notes that a thread has ended."""
        worker.others.pop(thread, None)
        self.settle(worker)

    def rows(self, worker: Worker) -> list[tuple[int, str]]:
        """Returns the number and the name of each other thread that has no row of its own."""
        at = f"{worker.debuggee.pid}@{worker.debuggee.node_ip}"
        return [
            (thread, f"{name or thread} · {at}")
            for thread, name in worker.others.items()
            if thread not in worker.rows
        ]

    def continued(self, worker: Worker) -> None:
        """Notes that a thread has resumed; where it was the last that was stopped, the rows are gone soon."""
        if worker.others and not worker.stops:
            asyncio.get_running_loop().call_later(LINGER, self.settle, worker)

    def settle(self, worker: Worker) -> None:
        """Removes the rows of a worker, unless a thread of it is stopped."""
        if worker.stops or worker.has_left or self._workers.get(worker.debuggee.worker_id) is not worker:
            return
        others = worker.others
        self._keep(worker, {})
        for thread in others:
            self._gone(worker, thread)


CLUSTER_FRAME = "all stopped tasks"
# In these contexts an editor evaluates what somebody has typed; what the mouse rests on is one task's.
_CONTEXTS = frozenset({"repl", "watch"})
# The most frames below the first.
_MOST_FRAMES = 500


class ClusterRow:
    """Answers for one debug session; `read_stacks` returns all stacks of its jobs, as `Stacks.of` does."""

    def __init__(
        self,
        workers: Workers,
        rows: ThreadRows,
        work: BackgroundTasks,
        read_stacks: Callable[[], Awaitable[Message]],
    ) -> None:
        self._workers, self._rows, self._work = workers, rows, work
        self._read_stacks = read_stacks
        self._frames = Coalesced(self._read_frames)

    async def stack(self, arguments: Message) -> Message:
        """Returns the body of the answer to `stackTrace`.

        An editor evaluates where it has a frame: in the first. Below it are the stacks of all processes,
        merged to a tree; who wants the first frame alone does not wait for them.
        """
        start, levels = arguments.get("startFrame", 0), arguments.get("levels", 0)
        frames = [self._frame(0, {"name": CLUSTER_FRAME})]
        if (start, levels) == (0, 1):
            return {"stackFrames": frames, "totalFrames": _MOST_FRAMES}
        frames += await self._frames.since(asyncio.get_running_loop().time())
        end = start + levels if levels else None
        return {"stackFrames": frames[start:end], "totalFrames": len(frames)}

    async def _read_frames(self) -> list[Message]:
        try:
            answer = await self._read_stacks()
        except Refused as error:
            return [self._frame(1, _remark(str(error)))]
        shown = [
            _remark(row.name) if row.function is None else {"name": row.name, **_place(row.function)}
            for row in islice(rows(answer), _MOST_FRAMES)
        ]
        if len(shown) == _MOST_FRAMES:
            shown[-1] = _remark("... more: debug --stacks has them")
        return [self._frame(number, frame) for number, frame in enumerate(shown, 1)]

    def _frame(self, number: int, frame: Message) -> Message:
        return {"id": self._rows.cluster_frame(number), "line": 0, "column": 0, **frame}

    @property
    def workers(self) -> list[Worker]:
        """Returns those in which a thread is stopped."""
        return [worker for worker in self._workers.attached if worker.stops]

    def is_meant(self, arguments: Message) -> bool:
        """Returns whether the arguments of an `evaluate` mean all tasks. Raises Refused for a wrong one."""
        context = arguments.get("context")
        if not self._rows.is_of_cluster(arguments.get("frameId")):
            if arguments.get("frameId") or context != "repl":
                return False
            # VS Code has no frame where the row is chosen: it asks for no stack of what runs. A task that is
            # stopped alone is asked by itself, for its value can then be expanded.
            return sum(len(worker.stops) for worker in self.workers) > 1
        if context is not None and context not in _CONTEXTS:
            raise Refused("choose a task: on the row of the cluster the debug console and watches evaluate")
        return True

    async def compared(self, expression: object) -> Message:
        """Returns what `compared` does. Raises Refused, also where nothing is stopped."""
        if not self.workers:
            raise Refused("no task is stopped")
        return await compared(expression, self.workers, self._work)


def _remark(text: str) -> Message:
    """Returns a frame that only says something."""
    return {"name": text, "presentationHint": "label"}


def _place(function: Mapping[str, Any]) -> Message:
    """Returns where a frame is; no path where the editor has no such file."""
    name = PurePath(function["file"]).name
    source = {"name": name, "path": function["file"]} if function["local"] else {"name": name}
    most = function["lines"][0][0] if function["lines"] else 0
    hint = {} if function["own"] else {"presentationHint": "subtle"}
    return {"source": source, "line": most, "column": 1, **hint}
