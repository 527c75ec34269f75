"""Debuggees' threads: how they stop and go on, and the rows that the editor has of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from bootstrap.debug.client import reason
from bootstrap.debug.dap import Message
from bootstrap.debug.debuggee import Debuggee
from bootstrap.debug.editor import CurrentEditor
from bootstrap.debug.ids import OF_A_STOP, Ids
from bootstrap.debug.work import Work
from bootstrap.debug.worker import PATIENCE, Worker, Workers
from bootstrap.errors import RequestFailed

# The row that is always there: with a single row, VS Code hides it, and so the task's name.
CLUSTER = "Ray cluster"


class Threads:
    """Of all debuggees that are attached; each stops and goes on by itself.

    Attributes:
        focus: the debuggee that the editor dealt with last.
        moved: the one that it let go last.
    """

    def __init__(self, workers: Workers, *, ids: Ids, editor: CurrentEditor, work: Work) -> None:
        self.focus: Worker | None = None
        self.moved: Worker | None = None
        self._workers, self._ids, self._editor, self._work = workers, ids, editor, work

    # --- rows ----------------------------------------------------------------------------

    @property
    def cluster(self) -> int:
        """The editor's number of the row that is always there."""
        return self._ids.outer(CLUSTER, "thread", 0)

    def rows(self) -> list[Message]:
        """DAP's Thread for each; no debuggee is asked."""
        rows: list[Message] = [
            {"id": self._row(worker, thread), "name": worker.debuggee.title, "ray": _ray(worker.debuggee)}
            for worker in self._workers.attached
            for thread in worker.threads
        ]
        return [*rows, {"id": self.cluster, "name": CLUSTER}]

    def show(self, worker: Worker, thread: int) -> None:
        """Gives a thread a row. The main thread's is dropped for one that stops: it only waits for that."""
        main = worker.main_thread
        if thread != main and main in worker.threads and main not in worker.stops:
            worker.threads.remove(main)
            self._tell("exited", worker, main)
        if thread not in worker.threads:
            worker.threads.add(thread)
            self._tell("started", worker, thread)

    def ended(self, worker: Worker, thread: int) -> None:
        if thread in worker.threads:
            worker.threads.remove(thread)
            worker.stops.pop(thread, None)
            self._tell("exited", worker, thread)

    def left(self, worker: Worker) -> None:
        """The editor has none of its rows any more; what is in flight may still be translated."""
        for thread in worker.threads:
            self._tell("exited", worker, thread)

    def forget(self, worker: Worker) -> None:
        self._ids.forget(worker)
        if self.focus is worker:
            self.focus = None
        if self.moved is worker:
            self.moved = None

    def _row(self, worker: Worker, thread: int) -> int:
        return self._ids.outer(worker, "thread", thread)

    def _tell(self, what: str, worker: Worker, thread: int) -> None:
        self._editor.event("thread", {"reason": what, "threadId": self._row(worker, thread)})

    # --- stops ---------------------------------------------------------------------------

    def stopped(self, worker: Worker, thread: int, body: Message) -> None:
        """`body`: of debugpy's `stopped` event."""
        worker.stops[thread] = body
        self._work.start(self._name_and_tell(worker, thread, body))

    async def _name_and_tell(self, worker: Worker, thread: int, body: Message) -> None:
        await worker.ready.wait()
        if worker.left:
            return
        # Only then does the editor know that it moved.
        if worker.moving is not None:
            await asyncio.wait({worker.moving}, timeout=PATIENCE)
        await worker.name_task(thread)
        if worker.stops.get(thread) is body:
            worker.named.add(thread)
            self.show(worker, thread)
            self.tell_stop(worker, thread)

    def tell_stop(self, worker: Worker, thread: int, *, focus: bool = False) -> None:
        """Also once more; `focus`: where it is to be what the user looks at from now on."""
        if not self._editor.listens:
            return
        stop = worker.stops[thread]
        body = {name: value for name, value in stop.items() if name != "hitBreakpointIds"}
        if hit := worker.hit(stop.get("hitBreakpointIds")):
            body["hitBreakpointIds"] = hit
        others = [other for other in self._workers.attached if other is not worker and other.told]
        worker.told.add(thread)
        self._editor.event(
            "stopped",
            {
                **body,
                "threadId": self._row(worker, thread),
                "allThreadsStopped": False,
                # A second stop must not steal the focus from what the user is looking at.
                "preserveFocusHint": bool(others) and not focus and worker is not self.moved,
                "ray": _ray(worker.debuggee),
            },
        )
        if focus or not others:
            self.focus = worker

    def in_focus(self) -> Worker | None:
        """The one that is meant where a request names none; None where no task is stopped."""
        attached = self._workers.attached
        if self.focus in attached:
            return self.focus
        stopped = [worker for worker in attached if worker.stops]
        return [*stopped, *attached][0] if stopped or len(attached) == 1 else None

    # --- moving --------------------------------------------------------------------------

    def went_on(self, worker: Worker) -> None:
        """By itself."""
        self._ids.forget(worker, OF_A_STOP)
        self._tell_continued(worker, worker.goes_on())

    async def let_go(
        self,
        worker: Worker,
        command: str,
        arguments: Message,
        answered: Callable[[Message], None],
        asked: int | None = None,
    ) -> None:
        """Moves a debuggee: all its threads, as debugpy does. The editor is told of all but `asked`.

        Args:
            arguments: with the debuggee's own numbers.
            answered: is called with the body of its answer, before the editor is told.

        Raises:
            RequestFailed, DebuggerGone: as `Client.request`.
        """
        # Before it is asked to, for its next stop may come together with the answer.
        stood = worker.goes_on()
        worker.moving = moving = asyncio.get_running_loop().create_future()
        try:
            response = await worker.answer(command, arguments)
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

    async def continue_all(self) -> None:
        async def one(worker: Worker) -> None:
            await self.let_go(worker, "continue", {"threadId": next(iter(worker.stops))}, lambda _: None)

        await self._work.side_by_side([one(worker) for worker in self._workers.attached if worker.stops])

    async def pause_all(self) -> None:
        async def one(worker: Worker) -> None:
            await worker.wake()
            await worker.answer("pause", {"threadId": worker.main_thread})

        await self._work.side_by_side([one(worker) for worker in self._workers.attached if not worker.stops])

    def _tell_continued(self, worker: Worker, threads: Iterable[int]) -> None:
        for thread in threads:
            row = self._row(worker, thread)
            self._editor.event("continued", {"threadId": row, "allThreadsContinued": False})


def _ray(debuggee: Debuggee) -> Message:
    return {
        "task": debuggee.task,
        "workerId": debuggee.worker_id,
        "nodeIp": debuggee.node_ip,
        "pid": debuggee.pid,
        "jobId": debuggee.job_id,
        "submissionId": debuggee.submission_id,
    }
