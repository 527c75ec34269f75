"""Reports of debuggees: hits of breakpoints, log messages, errors and prints, within a bounded rate."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import PurePosixPath
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

from rayside.dap.framing import Message
from rayside.relay.configuration import Configuration
from rayside.relay.editor import CurrentEditor
from rayside.relay.fan_out import BackgroundTasks
from rayside.relay.stop_points import Breakpoint, FunctionBreakpoint, Gather, LineBreakpoint, Result
from rayside.relay.worker import Worker, Workers
from rayside.worker.evaluated.telling import AT_ONCE, RATE, Bucket

# Limits of output in lines per second and in a burst, for one debuggee, and for all together. VS Code's
# debug console keeps the last 10,000 lines, and stays responsive at some hundreds per second.
EACH, EACH_AT_ONCE = RATE, AT_ONCE
ALL, ALL_AT_ONCE = 1_000.0, 5_000.0
# Characters that count as one line.
WIDTH = 200
# Seconds without a dropped line after which a burst has ended: debuggees report theirs once a second.
ENDED = 1.5
# Seconds after which a burst that continues is reported.
LASTING = 10.0
_SUBMISSION = re.compile(r"[\w.-]{1,100}", re.ASCII)

Debuggee = TypeVar("Debuggee", bound=Hashable)


class Flood(Generic[Debuggee]):
    """Rate limit of debuggees' output to editors; the number of dropped lines is reported in one line.

    A `print` in a hot loop, or a logpoint there, writes thousands of lines per second: more than any debug
    console draws, and enough to fill an editor's connection until it is dropped.

    Args:
        tell: called once for each burst, and every LASTING seconds during one, with the number of dropped
            lines, by debuggee.
        clock: returns seconds (default: `time.monotonic`).
        later: calls a function after a delay in seconds (default: the running event loop's `call_later`).
    """

    def __init__(
        self,
        tell: Callable[[Mapping[Debuggee, int]], None],
        *,
        clock: Callable[[], float] = time.monotonic,
        later: Callable[[float, Callable[[], None]], object] | None = None,
    ) -> None:
        self._tell, self._clock, self._later = tell, clock, later
        self._all = Bucket(ALL, ALL_AT_ONCE, clock)
        self._each: WeakKeyDictionary[Debuggee, Bucket] = WeakKeyDictionary()
        self._left_out: Counter[Debuggee] = Counter()
        self._began_at = self._last_at = 0.0

    def passes(self, debuggee: Debuggee, text: str) -> bool:
        """Returns whether this output of the debuggee is forwarded; otherwise its lines are counted."""
        bucket = self._each.setdefault(debuggee, Bucket(EACH, EACH_AT_ONCE, self._clock))
        lines = text.count("\n")
        amount = max(lines, len(text) / WIDTH, 1)
        if bucket.left >= amount and self._all.passes(amount):
            bucket.take(amount)
            return True
        self.leave_out(debuggee, lines)
        return False

    def leave_out(self, debuggee: Debuggee, lines: int) -> None:
        """Counts lines that were dropped here, or by the debuggee itself."""
        if not lines:
            return
        self._last_at = self._clock()
        if not self._left_out:
            self._began_at = self._last_at
            self._look_later(ENDED)
        self._left_out[debuggee] += lines

    def _look_later(self, seconds: float) -> None:
        (self._later or asyncio.get_running_loop().call_later)(seconds, self._look)

    def _look(self) -> None:
        now = self._clock()
        goes_on = min(self._last_at + ENDED, self._began_at + LASTING) - now
        if goes_on > 0:
            self._look_later(goes_on)
            return
        left_out, self._left_out = self._left_out, Counter()
        self._tell(left_out)


def left_out_line(left_out: Sequence[tuple[str, int]], submissions: Collection[str]) -> str:
    """Returns the message about dropped lines.

    Args:
        left_out: the title of each debuggee, and its number of lines.
        submissions: the submission ids of their jobs.
    """
    total = sum(lines for _, lines in left_out)
    lines = f"{total:,} more lines were" if total != 1 else "1 more line was"
    by = left_out[0][0] if len(left_out) == 1 else f"{len(left_out)} tasks"
    return (
        f"{by}: {lines} left out here, for they came too fast."
        f" What tasks print is all in the job's own output: {logs_command(submissions)}"
    )


def logs_command(submissions: Collection[str]) -> str:
    """Returns the command that shows the complete output of these jobs."""
    names = set(submissions)
    job = f" --job {names.pop()}" if len(names) == 1 and all(map(_SUBMISSION.fullmatch, names)) else ""
    return f"`logs{job}`"


# Limit of one debuggee's pending reports: each thread waits for the answer to its own.
MOST_HITS = 256
# Limit of one debuggee's threads that wait for others, for minutes; further ones resume immediately.
MOST_GATHERED = 1_024
# Limit of missing tasks that are named.
MOST_NAMED = 5


class Reports:
    """Handler of reports from one debug session's debuggees."""

    def __init__(
        self,
        workers: Workers,
        configuration: Configuration,
        *,
        editor: CurrentEditor,
        work: BackgroundTasks,
        flood: Flood[Worker],
    ) -> None:
        self._workers, self._configuration = workers, configuration
        self._editor, self._work, self._flood = editor, work, flood
        self._counting: Counter[Worker] = Counter()
        self._gathering: Counter[Worker] = Counter()

    def take(self, worker: Worker, body: Message) -> None:
        """Handles a report: the `body` of EVENT in evaluated/reached.py, as in `messages.EVENTS`."""
        breakpoint_ = self._configuration.desired.by_key(body.get("key"))
        kind = body.get("what")
        if kind in ("hit", "file"):
            # Without an editor no thread waits for others: tasks that are kept paused were stopped before.
            waits = (
                kind == "hit"
                and breakpoint_ is not None
                and breakpoint_.gather is not None
                and self._editor.editor is not None
                and self._gathering[worker] < MOST_GATHERED
            )
            under_way = self._gathering if waits else self._counting
            if waits or under_way[worker] < MOST_HITS:
                under_way[worker] += 1
                self._work.start(self._answer(worker, breakpoint_, body, under_way))
        elif kind == "leftOut":
            self._flood.leave_out(worker, body.get("number", 0))
        elif breakpoint_ is None:
            return  # it has been removed meanwhile
        elif kind == "gone":
            breakpoint_.rendezvous.leave(worker, body.get("number", 0))
        elif kind == "loaded" and isinstance(breakpoint_, FunctionBreakpoint):
            breakpoint_.results[worker] = Result(True, 0)
            self._configuration.tell_changes()
        elif kind == "message":
            self._tell_message(worker, breakpoint_, body)
        elif kind == "error" and not breakpoint_.raised:
            breakpoint_.raised = True
            where = body.get("task", "") or worker.debuggee.title
            self._editor.say(
                f"The condition of {breakpoint_.place} raised {worker.masks.text(body.get('text', ''))}"
                f" in {where};"
                " it counts as false."
            )

    async def _answer(
        self, worker: Worker, breakpoint_: Breakpoint | None, body: Message, under_way: Counter[Worker]
    ) -> None:
        """Sends the answer for which a debuggee's thread waits; `under_way` has counted the report."""
        number = body.get("number", 0)
        try:
            if body.get("what") == "file":
                await self._configuration.file_loaded(worker, body.get("text", ""))
                await worker.installed.answer_thread(number)
                return
            # A breakpoint that was removed or replaced does not stop.
            stops, settled = False, True
            if breakpoint_ is not None and breakpoint_.gather is not None:
                if under_way is self._gathering:
                    tell = partial(self._tell_gathered, breakpoint_.key, breakpoint_.gather)
                    stops = await breakpoint_.rendezvous.join(worker, number, breakpoint_.gather, tell)
                settled = False
            elif breakpoint_ is not None:
                stops, settled = _counted(breakpoint_)
            await worker.installed.answer_thread(number, stops, settled)
        finally:
            under_way[worker] -= 1
            if not under_way[worker]:
                del under_way[worker]

    def _say(self, worker: Worker, text: str) -> None:
        """Shows a debuggee's message in the editor, within the rate limit."""
        if self._flood.passes(worker, f"{text}\n"):
            self._editor.say(text)

    def _tell_gathered(self, key: int, gather: Gather, came: Sequence[Worker]) -> None:
        """Reports that the threads which waited for each other stop, and which tasks did not come in time."""
        breakpoint_ = self._configuration.desired.by_key(key)
        if breakpoint_ is None:
            return
        if len(came) == gather.number:
            self._say(came[-1], f"{gather.number} tasks have come to {breakpoint_.place}: they stop now.")
            return
        missing = [
            worker.debuggee.title
            for worker in self._workers.attached
            if worker not in came and worker.debuggee.task and _has(worker, breakpoint_)
        ]
        others = f" and {len(missing) - MOST_NAMED} others" if len(missing) > MOST_NAMED else ""
        where = f"; not there: {', '.join(missing[:MOST_NAMED])}{others}" if missing else ""
        self._say(
            came[-1],
            f"{len(came)} of {gather.number} tasks have come to {breakpoint_.place} within"
            f" {gather.seconds} s: they stop now{where}.",
        )

    def printed(self, worker: Worker, body: Message) -> Message | None:
        """Returns DAP's `output` for a printed line, with the debuggee's path; None if it is dropped.

        `body` is the body of EVENT in evaluated/prints.py, as in `messages.EVENTS`.
        """
        if not self._configuration.desired.prints:
            return None
        self._flood.leave_out(worker, body.get("leftOut", 0))
        lines = body.get("output")
        if not isinstance(lines, str):
            return None
        output = self._output(worker, body.get("task", ""), lines, body["category"])
        if not self._flood.passes(worker, output["output"]):
            return None
        path = body.get("path")
        if path and path.startswith("/"):
            output |= {"source": {"path": path, "name": path.rpartition("/")[2]}, "line": body.get("line", 0)}
        return output

    @staticmethod
    def _output(worker: Worker, task: str, lines: str, category: str = "stdout") -> Message:
        """Returns the body of `output`: each line is prefixed with its task, and secrets are masked."""
        lines = worker.masks.text(lines)
        debuggee = worker.debuggee if not task else replace(worker.debuggee, task=task)
        text = "".join(f"{debuggee.title}: {line}\n" for line in lines.split("\n"))
        return {"category": category, "output": text, "data": {"ray": debuggee.ray}}

    def _tell_message(self, worker: Worker, breakpoint_: Breakpoint, body: Message) -> None:
        if breakpoint_.hit_condition is not None and not _counted(breakpoint_)[0]:
            return
        output = self._output(worker, body.get("task", ""), body.get("text", ""))
        if not self._flood.passes(worker, output["output"]):
            return
        if isinstance(breakpoint_, LineBreakpoint):
            result = breakpoint_.results.get(worker)
            output |= {
                "source": {"path": breakpoint_.path, "name": PurePosixPath(breakpoint_.path).name},
                "line": result.line if result is not None else breakpoint_.line,
            }
        self._editor.event("output", output)


def _has(worker: Worker, breakpoint_: Breakpoint) -> bool:
    """Returns whether the breakpoint is verified in a debuggee other than a driver."""
    result = breakpoint_.results.get(worker)
    return result is not None and result.verified and not worker.debuggee.driver


def _counted(breakpoint_: Breakpoint) -> tuple[bool, bool]:
    """Counts a hit; returns whether it stops, and whether all later hits do the same."""
    breakpoint_.hits += 1
    condition = breakpoint_.hit_condition
    if condition is None:
        return True, True
    return condition.holds(breakpoint_.hits), condition.is_settled(breakpoint_.hits)
