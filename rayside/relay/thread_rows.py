"""Rows of an editor's thread list: debuggees' threads, and the row for the cluster."""

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

# The cluster's row is always listed: VS Code hides a single row, and with it the task's name.
CLUSTER = "Ray cluster"


class ThreadRows:
    """Rows in the thread list of a session's editor.

    Attributes:
        others: the other Python threads of processes with a stopped thread.
    """

    def __init__(self, workers: Workers, *, ids: Ids, editor: CurrentEditor) -> None:
        self._workers, self._ids, self._editor = workers, ids, editor
        self.others = OtherThreads(workers, self._other_gone)

    @property
    def cluster(self) -> int:
        """Returns the editor's id of the cluster's row."""
        return self._ids.outer(CLUSTER, "thread", 0)

    def cluster_frame(self, number: int) -> int:
        """Returns the editor's id of a frame in the cluster's row; its frames belong to all tasks."""
        return self._ids.outer(CLUSTER, "frame", number)

    def is_of_cluster(self, frame: object) -> bool:
        """Returns whether this is the editor's id of a frame in the cluster's row."""
        try:
            return self._ids.inner(frame, "frame")[0] == CLUSTER
        except UnknownId:
            return False

    async def listed(self) -> bytes:
        """Returns the body of the answer to `threads`, in JSON, without a request to debuggees.

        It contains DAP's Thread for each row; in each process, stopped threads come first.
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
        """Adds a row for a worker that runs a task, and removes an idle one's unless all are shown."""
        if worker.is_idle and not self.others.shows_all:
            for thread in [*worker.rows]:
                self.remove(worker, thread)
        elif not worker.rows:
            self.show(worker, worker.main_thread)

    def show(self, worker: Worker, thread: int) -> None:
        """Adds a thread's row. It replaces the main thread's row, which only represents the process."""
        main = worker.main_thread
        if thread != main and main in worker.rows and main not in worker.stops:
            self.remove(worker, main)
        if thread not in worker.rows:
            worker.rows.add(thread)
            self.tell("started", worker, thread)

    def add_all(self, worker: Worker) -> None:
        """Sends the worker's rows to an editor that takes the worker over."""
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
        """Returns the editor's id of a thread."""
        return self._ids.outer(worker, "thread", thread)

    def tell(self, change: str, worker: Worker, thread: int, why: str = "") -> None:
        ray = {"ray": {"reason": why}} if why else {}
        self._editor.event("thread", {"reason": change, "threadId": self.number(worker, thread), **ray})


def _in_row(worker: Worker, thread: int) -> Debuggee:
    """Returns the debuggee for a thread's row: mostly the worker's own, since a copy takes most of the time
    for a row."""
    stop = worker.stops.get(thread)
    is_same = stop is None or stop.task in ("", worker.debuggee.task)
    return worker.debuggee if is_same else worker.described_at(thread)


def _other(worker: Worker, number: int, name: str) -> bytes:
    """Returns DAP's Thread, in JSON, for one of `Worker.others`."""
    return as_json({"id": number, "name": name, "ray": {"workerId": worker.debuggee.shown_id}})


# Limits of rows for one process, and for all stopped ones. Editors request all rows after each stop.
MOST_OTHERS, MOST_OTHERS_IN_ALL = 50, 300
# Seconds for which the rows stay after their process resumes: a step resumes and stops it, and rows that
# vanish and return with each step are worse than rows that are slightly old.
LINGER = 1.0
# Names of threads without user code: Ray's, the debugger's, and `Dummy-1`, pydevd's name of threads that
# Python did not start: on 3.12 some of these have ended, or never existed.
_NOT_USERS = re.compile(
    r"Dummy-\d+|PythonGCThread|ray_(import_thread|listen_error_messages|print_logs)|raylet[-_]client"
    r"|(pydevd|rayside)\b.*"
)


class OtherThreads:
    """Maintains `Worker.others`.

    Args:
        gone: called with each thread of a worker whose row is removed.

    Attributes:
        shows_all: whether threads without user code have rows, too.
    """

    def __init__(self, workers: Workers, gone: Callable[[Worker, int], None]) -> None:
        self._workers, self._gone, self.shows_all = workers, gone, False
        self._shown: dict[Worker, int] = {}
        self._all = 0  # the sum of `_shown`, kept since a thousand processes may stop within a second

    async def ask(self, worker: Worker) -> None:
        """Asks a process with a stopped thread for its threads, in one request."""
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
        """Forgets a worker that has ended, or belongs to another session now."""
        self._all -= self._shown.pop(worker, 0)

    def ended(self, worker: Worker, thread: int) -> None:
        """Handles the end of a thread."""
        worker.others.pop(thread, None)
        self.settle(worker)

    def rows(self, worker: Worker) -> list[tuple[int, str]]:
        """Returns id and name of each thread in `Worker.others` without a row in `Worker.rows`."""
        at = f"{worker.debuggee.pid}@{worker.debuggee.node_ip}"
        return [
            (thread, f"{name or thread} · {at}")
            for thread, name in worker.others.items()
            if thread not in worker.rows
        ]

    def continued(self, worker: Worker) -> None:
        """Handles a resumed thread; after the last stopped one, the rows are removed after LINGER seconds."""
        if worker.others and not worker.stops:
            asyncio.get_running_loop().call_later(LINGER, self.settle, worker)

    def settle(self, worker: Worker) -> None:
        """Removes the rows of a worker without stopped threads."""
        if worker.stops or worker.has_left or self._workers.get(worker.debuggee.worker_id) is not worker:
            return
        others = worker.others
        self._keep(worker, {})
        for thread in others:
            self._gone(worker, thread)


CLUSTER_FRAME = "all stopped tasks"
# Contexts of typed expressions; `hover` belongs to a single task.
_CONTEXTS = frozenset({"repl", "watch"})
# Limit of frames below the first.
_MOST_FRAMES = 500


class ClusterRow:
    """The cluster's row of one debug session; `read_stacks` returns all its stacks, as `Stacks.of` does."""

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

        The editor evaluates in the first frame. Below it are the stacks of all processes, merged into a
        tree; a request for only the first frame does not wait for them.
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
        """Returns the workers with a stopped thread."""
        return [worker for worker in self._workers.attached if worker.stops]

    def is_meant(self, arguments: Message) -> bool:
        """Returns whether arguments of `evaluate` are for all tasks. Raises Refused for a wrong context."""
        context = arguments.get("context")
        if not self._rows.is_of_cluster(arguments.get("frameId")):
            if arguments.get("frameId") or context != "repl":
                return False
            # VS Code sends no frame if the cluster's row is selected, since it requests no stack of running
            # threads. A single stopped task is evaluated by itself, so that its value can be expanded.
            return sum(len(worker.stops) for worker in self.workers) > 1
        if context is not None and context not in _CONTEXTS:
            raise Refused("choose a task: on the row of the cluster the debug console and watches evaluate")
        return True

    async def compared(self, expression: object) -> Message:
        """Compares an expression's values in all stopped tasks. Raises Refused, also if none is stopped."""
        if not self.workers:
            raise Refused("no task is stopped")
        return await compared(expression, self.workers, self._work)


def _remark(text: str) -> Message:
    """Returns a label in place of a frame."""
    return {"name": text, "presentationHint": "label"}


def _place(function: Mapping[str, Any]) -> Message:
    """Returns source and line of a frame; without a path if the editor lacks the file."""
    name = PurePath(function["file"]).name
    source = {"name": name, "path": function["file"]} if function["local"] else {"name": name}
    most = function["lines"][0][0] if function["lines"] else 0
    hint = {} if function["own"] else {"presentationHint": "subtle"}
    return {"source": source, "line": most, "column": 1, **hint}
