"""Steps into Ray's `.remote()`: into the task that the call starts, in any process.

The stepping thread asks the relay before it submits the task, and reports the task's id afterwards
(evaluated/stepped_calls.py). After the request, tasks of that function wait for the id in every debuggee,
for some milliseconds; after the report, a debuggee stops at the first line of the task with the id (same
module). The caller's frames are shown below the task's own, in each of its stops.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import itertools
import re
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from weakref import WeakSet

from rayside.dap.framing import Message
from rayside.errors import DebuggerGone, RequestFailed
from rayside.plain import line
from rayside.relay.connection import SOON
from rayside.relay.connection import call as expression_of
from rayside.relay.debuggee import Stop
from rayside.relay.fan_out import BackgroundTasks
from rayside.relay.translation import Ids, OfAStop, UnknownId
from rayside.relay.worker import Worker, Workers
from rayside.worker.evaluated.stepped_calls import begin, task_id

# Limit of tasks that were stepped into and have not started; a newer one replaces the oldest.
MOST_EXPECTED = 16
# Limits: tasks whose caller is known, and callers' frames that are shown below a task's own.
MOST_KNOWN, MOST_FRAMES = 256, 200
# Seconds for which the caller's stop is delayed, so that the task's comes first. A task whose worker has to
# start, or that waits for resources, takes longer.
FIRST = 1.5
_LONGEST_NAME = 100
_ID = re.compile(r"[0-9a-f]{1,64}")


@dataclass(eq=False)
class RemoteCall:
    """Call of `.remote()` with a step into it.

    Attributes:
        number: id of the call in debuggees.
        caller, thread: the calling debuggee and its thread.
        key: the caller's own id of the call.
        function: the unqualified name of the called function.
        frames: the caller's frames, each with its debuggee; a label first.
        task: the id of the task, in hex; empty until known.
        told: set when the task's stop has been reported to the editor, or is not expected any more.
    """

    number: int
    caller: Worker
    thread: int
    key: int
    function: str
    frames: list[tuple[Worker, Message]]
    task: str = ""
    told: asyncio.Event = field(default_factory=asyncio.Event)


class RemoteCalls:
    """Steps into `.remote()` in one debug session."""

    def __init__(
        self, workers: Workers, *, ids: Ids, work: BackgroundTasks, say: Callable[[str], None]
    ) -> None:
        self._workers, self._ids, self._work, self._say = workers, ids, work, say
        self._numbers = itertools.count(1)
        self._notice: WeakSet[Worker] = WeakSet()  # debuggees that report their calls
        # Threads that step in, with the call that each has made since then.
        self._steps: dict[tuple[Worker, int], RemoteCall | None] = {}
        self._expected: OrderedDict[int, RemoteCall] = OrderedDict()
        self._known: OrderedDict[str, RemoteCall] = OrderedDict()  # by the task's id
        self._ran: WeakSet[Worker] = WeakSet()  # debuggees that have started such a task

    def begin(self) -> None:
        """Drops all expected tasks: the editor has disconnected, or another one has attached."""
        for call in [*self._expected.values()]:
            self._drop(call)
        self._steps.clear()
        self._tell_all()

    def forget(self, worker: Worker) -> None:
        """Forgets a debuggee that has ended, or belongs to another session now."""
        for step in [step for step in self._steps if step[0] is worker]:
            del self._steps[step]

    # --- the caller ----------------------------------------------------------------------

    async def step_in(self, worker: Worker, thread: int) -> None:
        """Prepares for a step of a thread into a call. Raises DebuggerGone."""
        self._steps[worker, thread] = None
        if worker in self._notice:
            return
        # Without Ray in the process there are no calls to report, until Ray is imported.
        if await worker.connection.ask(SOON, begin) is True:
            self._notice.add(worker)

    def take(self, worker: Worker, body: Message) -> None:
        """Handles a debuggee's event; `body` is as in `messages.EVENTS`."""
        if body["what"] == "call":
            self._work.start(self._called(worker, body))
        elif body["what"] == "called":
            self._submitted(worker, body)
        elif body["what"] == "entered" and self._expected.pop(body["key"], None) is not None:
            self._ran.add(worker)
            self._tell_all()

    async def _called(self, worker: Worker, body: Message) -> None:
        """Answers a thread that is about to call, after every debuggee is notified if the thread steps."""
        step = worker, body.get("threadId", 0)
        # Unsolicited events of a debuggee must not delay the others.
        is_step = step in self._steps and self._steps[step] is None
        if is_step:
            self._steps[step] = call = RemoteCall(
                next(self._numbers), *step, body["key"], body.get("function", ""), self._frames(worker, body)
            )
            self._expected[call.number] = call
            if len(self._expected) > MOST_EXPECTED:
                self._drop(next(iter(self._expected.values())))
            await self._work.side_by_side([self._tell(each) for each in self._workers.values()])
        with contextlib.suppress(RequestFailed, DebuggerGone):
            await worker.installed.answer_thread(body.get("number", 0), is_step)

    def _submitted(self, worker: Worker, body: Message) -> None:
        made = [call for call in self._expected.values() if (call.caller, call.key) == (worker, body["key"])]
        for call in [call for call in made if not call.task]:
            call.task = body.get("taskId", "")
            if _ID.fullmatch(call.task):
                self._known[call.task] = call
                if len(self._known) > MOST_KNOWN:
                    self._known.popitem(last=False)
            else:
                self._drop(call)
            self._tell_all()

    def _drop(self, call: RemoteCall) -> None:
        self._expected.pop(call.number, None)
        call.told.set()

    def _frames(self, worker: Worker, body: Message) -> list[tuple[Worker, Message]]:
        title = replace(worker.debuggee, task=body.get("task") or worker.debuggee.task).title
        label = {"name": f"called by: {title}", "line": 0, "column": 0, "presentationHint": "label"}
        above = self._known.get(body.get("taskId", ""))
        frames = [(worker, frame) for frame in [label, *body.get("frames", [])]]
        return [*frames, *(above.frames if above else [])][:MOST_FRAMES]

    # --- debuggees that may run the task -------------------------------------------------

    async def put_into(self, worker: Worker) -> None:
        """Sends the expected tasks to a debuggee. Raises DebuggerGone."""
        if worker.debuggee.driver or worker.debuggee.parent:  # These run no tasks.
            return
        with contextlib.suppress(RequestFailed):
            await worker.installed.expect_tasks(
                lambda: {call.number: (call.function, call.task) for call in self._expected.values()}
            )

    async def _tell(self, worker: Worker) -> None:
        # A debuggee that is still attaching may have been configured already.
        await worker.settled()
        if not worker.has_left:
            await self.put_into(worker)

    def _tell_all(self) -> None:
        for worker in self._workers.attached:
            self._work.start(self.put_into(worker))

    # --- stops ---------------------------------------------------------------------------

    async def look_at_stop(self, worker: Worker, thread: int) -> None:
        """Asks a stopped thread for its task's id, if it may be one that was stepped into.

        For a thread that has stepped into a call, it waits up to FIRST seconds for the stop of the task.
        """
        stop = worker.stops.get(thread)
        if stop is not None and worker in self._ran:
            stop.task_id = await worker.text_at(thread, expression_of(task_id))
        call = self._steps.pop((worker, thread), None)
        if call is None:
            return
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(call.told.wait(), FIRST)
        if call.number in self._expected:
            name = line(call.function, _LONGEST_NAME)
            self._say(f"{name} has not begun yet; it stops at its first line then, if it can be debugged.")

    def arrive(self, stop: Stop) -> RemoteCall | None:
        """Returns the call whose task stops here for the first time, when the stop is reported; else None."""
        call = self._known.get(stop.task_id)
        if call is None or call.told.is_set():
            return None
        call.told.set()
        return call

    # --- frames --------------------------------------------------------------------------

    def with_callers(
        self,
        worker: Worker,
        thread: int | None,
        arguments: Message,
        body: Message,
        outward: Callable[[Worker, Message], Message],
    ) -> Message:
        """Returns the answer to `stackTrace` with the frames of all callers appended.

        Args:
            arguments: the arguments of the request.
            body: the body of the answer, with the editor's ids and paths.
            outward: translates a debuggee's document to the editor's ids and paths.
        """
        stop = worker.stops.get(thread) if thread is not None else None
        call = self._known.get(stop.task_id) if stop is not None else None
        frames = body.get("stackFrames")
        if call is None or not isinstance(frames, list):
            return body
        start, levels = arguments.get("startFrame", 0), arguments.get("levels", 0)
        own = body.get("totalFrames", start + len(frames))
        end = start + levels if levels else own + len(call.frames)
        below = [
            {
                "id": self._ids.outer(OfAStop(worker, thread), "frame", -1 - index),
                **outward(caller, copy.deepcopy(frame)),
            }
            for index, (caller, frame) in enumerate(call.frames)
            if start <= own + index < end
        ]
        return {**body, "stackFrames": [*frames, *below], "totalFrames": own + len(call.frames)}

    def is_callers(self, frame: object) -> bool:
        """Returns whether the editor's frame id belongs to a caller's frame, which has no variables."""
        try:
            return self._ids.inner(frame, "frame")[1] < 0
        except UnknownId:
            return False
