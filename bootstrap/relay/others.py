"""Lists the other Python threads of a process in which one has stopped: they feed, beat or wait."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

from bootstrap.dap.framing import Message
from bootstrap.errors import DebuggerGone, RequestFailed
from bootstrap.relay.connection import PATIENCE
from bootstrap.relay.worker import Worker, Workers

# The most rows for one process, and for all that are stopped. Editors ask for all rows with each stop.
MOST, MOST_IN_ALL = 50, 300
# Seconds for which the rows stay when their process resumes: a step resumes and stops it, and rows that go
# and come with each are worse than rows that are a moment old.
LINGER = 1.0
# Names of threads that run nothing of the user's: Ray's own, the debugger's, and `Dummy-1`, as pydevd
# calls those that Python did not start: on 3.12 some of these have ended, or never were.
_NOT_USERS = re.compile(
    r"Dummy-\d+|PythonGCThread|ray_(import_thread|listen_error_messages|print_logs)|raylet[-_]client"
    r"|(pydevd|rayside)\b.*"
)


class Others:
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
        names = {
            row["id"]: str(row.get("name", ""))
            for row in body.get("threads") or []
            if isinstance(row.get("id"), int)
            and (self.shows_all or not _NOT_USERS.fullmatch(str(row.get("name", ""))))
        }
        before = worker.others
        rows = [item for item in names.items() if item[0] not in worker.stops]
        self._keep(worker, dict(rows[: max(min(MOST, self._room(worker)), 0)]))
        for thread in before:
            if thread not in worker.others and thread not in worker.stops:
                self._gone(worker, thread)

    def _room(self, worker: Worker) -> int:
        return MOST_IN_ALL - self._all + self._shown.get(worker, 0)

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


def document(worker: Worker, row: int, name: str) -> Message:
    """Returns DAP's Thread for a row."""
    return {"id": row, "name": name, "ray": {"workerId": worker.debuggee.shown_id}}
