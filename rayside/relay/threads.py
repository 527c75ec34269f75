"""Threads of all attached debuggees: stops, resumes, and awaited stops."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable
from enum import Enum
from functools import partial

from rayside.dap.additions import CALLED_BY, EXITED, TAKEN_OVER
from rayside.dap.channel import reason
from rayside.dap.framing import Message
from rayside.errors import DebuggerGone, RequestFailed
from rayside.relay.connection import PATIENCE, SOON
from rayside.relay.debuggee import Stop
from rayside.relay.editor import CurrentEditor, Editor
from rayside.relay.fan_out import BackgroundTasks, Pace
from rayside.relay.remote_calls import RemoteCall, RemoteCalls
from rayside.relay.thread_rows import ThreadRows
from rayside.relay.translation import Ids
from rayside.relay.worker import Worker, Workers


class StopOutcome(Enum):
    """Outcome of an awaited stop."""

    STOPPED = "stopped"
    ENDED = "ended"
    TAKEN = "taken"  # another debugger has it
    GIVEN_UP = "given up"  # the stop is not expected any more


class AwaitedStops:
    """Tracks threads of groups that have yet to stop; thread None: the first one of a process to stop."""

    def __init__(self) -> None:
        self._expected: dict[Worker, dict[int | None, asyncio.Future[StopOutcome]]] = {}

    def expect(self, worker: Worker, thread: int | None) -> asyncio.Future[StopOutcome]:
        """Returns a future for the next stop of a thread, or its end."""
        expected = self._expected.setdefault(worker, {})
        if thread not in expected:
            expected[thread] = asyncio.get_running_loop().create_future()
        return expected[thread]

    def late(self, worker: Worker) -> list[int | None]:
        """Returns the threads of a debuggee whose stop is awaited."""
        return [*self._expected.get(worker, {})]

    def stopped(self, worker: Worker, thread: int) -> None:
        """Handles a thread's stop, after it was reported to the editor."""
        self._tell(worker, [thread, None], StopOutcome.STOPPED)

    def ended(self, worker: Worker, thread: int) -> None:
        """Handles the end of a thread."""
        self._tell(worker, [thread], StopOutcome.ENDED)

    def gone(self, worker: Worker, arrival: StopOutcome = StopOutcome.ENDED) -> None:
        """Handles a debuggee that has ended, is being detached, or belongs to another debugger."""
        self._tell(worker, self.late(worker), arrival)

    def give_up(self, worker: Worker, thread: int | None) -> None:
        """Ends the wait for a thread's stop."""
        self._tell(worker, [thread], StopOutcome.GIVEN_UP)

    def _tell(self, worker: Worker, threads: Iterable[int | None], arrival: StopOutcome) -> None:
        expected = self._expected.get(worker, {})
        for thread in threads:
            if thread in expected:
                expected.pop(thread).set_result(arrival)
        if not expected:
            self._expected.pop(worker, None)


# Seconds for the debuggee in `focusWorkerId` to stop; after that, another one may be shown first.
AWAITED = 10.0


class Threads:
    """Threads of all attached debuggees; each stops and resumes independently.

    Attributes:
        focus: the debuggee of the editor's last request.
        resumed: the debuggee that the editor resumed last.
        awaited_stops: stops that groups wait for.
        rows: the threads' rows in the editor.
    """

    def __init__(
        self, workers: Workers, *, ids: Ids, editor: CurrentEditor, work: BackgroundTasks, calls: RemoteCalls
    ) -> None:
        self.focus: Worker | None = None
        self.resumed: Worker | None = None
        self.awaited_stops = AwaitedStops()
        # The id of the worker to show first, and the loop's time until which its stop is awaited.
        self._awaited: tuple[str, float] | None = None
        # Debuggees that were reported as stopped; some may have resumed (`_others_stopped`).
        self._stopped: OrderedDict[Worker, None] = OrderedDict()
        self._workers, self._ids, self._editor, self._work = workers, ids, editor, work
        self._pace = Pace(editor)
        self.rows, self._calls = ThreadRows(workers, ids=ids, editor=editor), calls

    # --- rows ----------------------------------------------------------------------------

    def ended(self, worker: Worker, thread: int) -> None:
        if thread in worker.rows:
            # Some editors show a thread that exits while it is stopped as stopped forever.
            self._tell_no_more_stopped(worker, thread)
            worker.resumed([thread])
            self.rows.remove(worker, thread)
            self.rows.others.ended(worker, thread)
            self.awaited_stops.ended(worker, thread)

    def remove_rows(self, worker: Worker, why: str = "") -> None:
        """Removes a debuggee's rows from the editor; its ids stay for pending requests.

        `why` is sent with each removed row, as `ray.reason`.
        """
        for thread, _ in self.rows.others.rows(worker):
            self.rows.tell("exited", worker, thread, why)
        for thread in worker.rows:
            self._tell_no_more_stopped(worker, thread)
            self.rows.tell("exited", worker, thread, why)
        self.awaited_stops.gone(worker, StopOutcome.TAKEN if why == TAKEN_OVER else StopOutcome.ENDED)

    def forget(self, worker: Worker) -> None:
        self._ids.forget(worker)
        self._stopped.pop(worker, None)
        self.rows.others.forget(worker)
        self._calls.forget(worker)
        for thread in [*worker.resumes, *worker.stops, *worker.rows, *worker.others, None]:
            self._ids.forget_stop(worker, thread)
        if self.focus is worker:
            self.focus = None
        if self.resumed is worker:
            self.resumed = None

    # --- stops ---------------------------------------------------------------------------

    def stopped(self, worker: Worker, thread: int, body: Message) -> None:
        """Handles a thread's stop; `body` is the body of debugpy's `stopped` event."""
        stop = worker.stopped(thread, body)
        self._work.start(self._name_and_tell(worker, thread, stop))

    async def _name_and_tell(self, worker: Worker, thread: int, stop: Stop) -> None:
        await worker.settled()
        if worker.has_left:
            return
        # The answer to the request that resumed the thread has to reach the editor first.
        if thread in worker.resuming:
            await asyncio.wait({worker.resuming[thread]}, timeout=PATIENCE)
        await self._pace.keep(partial(self._look_and_tell, worker, thread, stop))

    async def _look_and_tell(self, worker: Worker, thread: int, stop: Stop) -> None:
        looks = worker.look_at_stop(thread), self._calls.look_at_stop(worker, thread)
        await asyncio.gather(*looks, self.rows.others.ask(worker))
        if worker.stops.get(thread) is stop:
            stop.named = True
            self.rows.show(worker, thread)
            self.tell_stop(worker, thread)

    def begin(self, focus: str, *, shows_all: bool) -> None:
        """Starts for another editor; `focus` is the id of the worker to show first, empty: any.

        `shows_all`: whether idle workers, and threads without user code, have rows.
        """
        self.rows.others.shows_all = shows_all
        self._awaited = (focus, asyncio.get_running_loop().time() + AWAITED) if focus else None

    def _is_awaited(self, worker: Worker) -> bool:
        """Returns whether the editor wants to see this worker first; true only once."""
        if self._awaited is None:
            return False
        name, until = self._awaited
        arrived = worker.debuggee.shown_id == name
        if arrived or asyncio.get_running_loop().time() > until:
            self._awaited = None
        return arrived

    def show_all(self, editor: Editor) -> None:
        """Sends all stopped threads to one editor."""
        for worker in self._workers.attached:
            for thread in sorted(thread for thread, stop in worker.stops.items() if stop.reported):
                editor.event("stopped", {**self._stop(worker, thread), "preserveFocusHint": False})

    def tell_stop(self, worker: Worker, thread: int, *, focus: bool = False) -> None:
        """Reports a stop to the editor, maybe again; `focus`: whether the editor switches to it."""
        if not self._editor.listens:
            return
        others = self._others_stopped(worker)
        worker.stops[thread].reported = True
        self._stopped[worker] = None
        focus = self._is_awaited(worker) or focus
        if (call := self._calls.arrive(worker.stops[thread])) is not None:
            focus, self.resumed = True, worker  # and not the caller
        # A second stop must not steal the focus from the task that the user sees, or that is awaited.
        preserve = (others or self._awaited is not None) and not focus and worker is not self.resumed
        self._editor.event("stopped", {**self._stop(worker, thread, call), "preserveFocusHint": preserve})
        if focus or not others:
            self.focus = worker
        self.awaited_stops.stopped(worker, thread)

    def _others_stopped(self, worker: Worker) -> bool:
        """Returns whether another debuggee was reported to the editor as stopped, and still is.

        Each stop removes a debuggee from the queue at most once, so many stops need no full search each time.
        """
        if worker in self._stopped:
            self._stopped.move_to_end(worker)
        while self._stopped:
            first = next(iter(self._stopped))
            if first is worker or (_is_reported(first) and self._workers.has(first)):
                return first is not worker
            del self._stopped[first]
        return False

    def _stop(self, worker: Worker, thread: int, call: RemoteCall | None = None) -> Message:
        """Returns the body of `stopped`, without the focus hint."""
        stop, ray = worker.stops[thread].body, worker.described_at(thread).ray
        if call is not None and not call.caller.has_left:
            ray[CALLED_BY] = self.rows.number(call.caller, call.thread)
        body = {name: value for name, value in stop.items() if name != "hitBreakpointIds"}
        body = worker.masks.event(body)
        if hit := worker.installed.hit(stop.get("hitBreakpointIds", [])):
            body["hitBreakpointIds"] = hit
        return {
            **body,
            "threadId": self.rows.number(worker, thread),
            "allThreadsStopped": False,
            "ray": ray,
        }

    def in_focus(self) -> Worker | None:
        """Returns the debuggee for requests that name none; None if no task is stopped."""
        if self.focus is not None and self._workers.has(self.focus):
            return self.focus
        attached = self._workers.attached
        stopped = [worker for worker in attached if worker.stops]
        return [*stopped, *attached][0] if stopped or len(attached) == 1 else None

    # --- resuming ------------------------------------------------------------------------

    def continued(self, worker: Worker, body: Message) -> None:
        """Handles a thread that has resumed by itself or with another; `body` is of debugpy's `continued`."""
        thread = body.get("threadId")
        if not isinstance(thread, int) or body.get("allThreadsContinued") is True:
            stops = worker.resumed([*worker.stops])
        else:
            stops = worker.resumed([thread])
        for each in [*stops, None]:
            self._ids.forget_stop(worker, each)
        self._tell_continued(worker, stops)
        self.rows.others.continued(worker)

    async def resume(
        self,
        worker: Worker,
        command: str,
        arguments: Message,
        answered: Callable[[Message], None],
        *,
        unasked: bool = False,
    ) -> None:
        """Resumes one thread. If debugpy's adapter resumes others, too, their `continued` events follow.

        Args:
            command: DAP's request: `continue`, `goto` or a step.
            arguments: the arguments of `command`, with the debuggee's own ids.
            answered: called with the body of the answer, before `continued` events.
            unasked: whether the editor needs a `continued` event, since it did not resume this thread.

        Raises:
            RequestFailed, DebuggerGone: as `Client.request`; but a debuggee that ends on `continue` succeeds.
        """
        thread = arguments["threadId"]
        if command == "continue":
            arguments = {**arguments, "singleThread": True}
        await worker.connection.end_evaluations()
        # The editor may have got an answer for a new breakpoint already, and expects to stop there.
        await worker.installed.changed(SOON)
        if command == "stepIn":
            await self._calls.step_in(worker, thread)
        # The state changes before the request, since the next stop may come together with its answer.
        stops = worker.resumed([thread])
        worker.resuming[thread] = resuming = asyncio.get_running_loop().create_future()
        try:
            response = await self._answer_of(worker, command, arguments)
            if not response.get("success"):
                worker.did_not_resume(stops)
                raise RequestFailed(reason(response), hint="Try again.")
            if not unasked and stops.pop(thread, None) is not None:
                self._editor.tell_watchers("continued", self._continued(worker, thread))
            for each in (thread, None):
                self._ids.forget_stop(worker, each)
            body = response.get("body")
            answered(body if isinstance(body, dict) else {})
        finally:
            # This includes a frozen debuggee, which will resume as soon as it can.
            self._tell_continued(worker, [each for each in stops if each not in worker.stops])
            self.rows.others.continued(worker)
            del worker.resuming[thread]
            resuming.set_result(None)

    async def _answer_of(self, worker: Worker, command: str, arguments: Message) -> Message:
        try:
            return await worker.connection.answer(command, arguments)
        except DebuggerGone:
            if command != "continue":
                raise
            return {"success": True}  # The debuggee resumed, and ended before its answer.

    async def continue_all(self) -> None:
        async def continue_worker(worker: Worker) -> None:
            for thread in [*worker.stops]:
                if thread in worker.stops:
                    await self.resume(worker, "continue", {"threadId": thread}, lambda _: None, unasked=True)

        await self._work.side_by_side(
            [continue_worker(worker) for worker in self._workers.attached if worker.stops]
        )

    async def pause_all(self) -> None:
        await self._work.side_by_side(
            [self.pause(worker) for worker in self._workers.attached if not worker.stops]
        )

    async def pause(self, worker: Worker) -> None:
        """Pauses the debuggee's thread that runs Python code next. Raises RequestFailed, DebuggerGone."""
        await worker.installed.tracing.wake()
        await worker.connection.client.request("pause", {"threadId": "*"}, timeout=PATIENCE)

    def _tell_no_more_stopped(self, worker: Worker, thread: int) -> None:
        """Sends `continued` before a stopped thread's exit; its `ray.reason` is EXITED."""
        if thread in worker.stops and worker.stops[thread].reported:
            self._editor.event("continued", {**self._continued(worker, thread), "ray": {"reason": EXITED}})

    def _tell_continued(self, worker: Worker, threads: Iterable[int]) -> None:
        for thread in threads:
            if worker.has_left or thread not in worker.rows:
                continue  # its exit was reported to the editor
            self._editor.event("continued", self._continued(worker, thread))

    def _continued(self, worker: Worker, thread: int) -> Message:
        return {"threadId": self.rows.number(worker, thread), "allThreadsContinued": False}


def _is_reported(worker: Worker) -> bool:
    return any(stop.reported for stop in worker.stops.values())
