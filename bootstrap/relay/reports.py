"""Takes what debuggees report: counts hits of breakpoints; tells messages, errors and what they print."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from bootstrap.dap.framing import Message
from bootstrap.relay.configuration import Configuration
from bootstrap.relay.editor import CurrentEditor
from bootstrap.relay.flood import Flood
from bootstrap.relay.results import Result
from bootstrap.relay.stop_points import Breakpoint, FunctionBreakpoint, LineBreakpoint
from bootstrap.relay.work import Work
from bootstrap.relay.worker import Worker

# So many reports of one debuggee may be answered at a time: each of its threads waits for its own.
MOST_HITS = 256


class Reports:
    """Takes the reports of one debug session's debuggees."""

    def __init__(
        self, configuration: Configuration, *, editor: CurrentEditor, work: Work, flood: Flood[Worker]
    ) -> None:
        self._configuration, self._editor, self._work, self._flood = configuration, editor, work, flood
        self._counting: Counter[Worker] = Counter()

    def take(self, worker: Worker, body: Message) -> None:
        """Takes a report; `body` is that of EVENT of evaluated/reached.py, as `messages.EVENTS` has it."""
        breakpoint_ = self._configuration.by_key(body.get("key"))
        kind = body.get("what")
        if kind in ("hit", "file"):
            if self._counting[worker] < MOST_HITS:
                self._counting[worker] += 1
                self._work.start(self._answer(worker, breakpoint_, body))
        elif breakpoint_ is None:
            return  # it has been removed meanwhile
        elif kind == "loaded" and isinstance(breakpoint_, FunctionBreakpoint):
            breakpoint_.results[worker] = Result(True, 0)
            self._configuration.tell_changes()
        elif kind == "message":
            self._tell_message(worker, breakpoint_, body)
        elif kind == "leftOut":
            self._flood.leave_out(worker, body.get("number", 0))
        elif kind == "error" and not breakpoint_.raised:
            breakpoint_.raised = True
            where = body.get("task", "") or worker.debuggee.title
            self._editor.say(
                f"The condition of {breakpoint_.place} raised {worker.masks.text(body.get('text', ''))}"
                f" in {where};"
                " it counts as false."
            )

    async def _answer(self, worker: Worker, breakpoint_: Breakpoint | None, body: Message) -> None:
        """Sends the answer that a thread of the debuggee waits for."""
        number = body.get("number", 0)
        try:
            if body.get("what") == "file":
                await self._configuration.file_loaded(worker, body.get("text", ""))
                await worker.installed.answer_thread(number)
                return
            # A breakpoint that was removed, or set anew, stops nothing more.
            stops, settled = _counted(breakpoint_) if breakpoint_ is not None else (False, True)
            await worker.installed.answer_thread(number, stops, settled)
        finally:
            self._counting[worker] -= 1
            if not self._counting[worker]:
                del self._counting[worker]

    def printed(self, worker: Worker, body: Message) -> Message | None:
        """Returns DAP's `output` for what was printed, with the debuggee's path; None where nothing is told.

        `body` is that of EVENT of evaluated/prints.py, as `messages.EVENTS` has it.
        """
        if not self._configuration.prints:
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
        """Returns the body of `output` with each of the lines after its task, and without secrets."""
        lines = worker.masks.text(lines)
        debuggee = worker.debuggee if not task else replace(worker.debuggee, task=task)
        text = "".join(f"{debuggee.title}: {line}\n" for line in lines.split("\n"))
        data = {"ray": {"task": debuggee.task, "workerId": debuggee.shown_id}}
        return {"category": category, "output": text, "data": data}

    def _tell_message(self, worker: Worker, breakpoint_: Breakpoint, body: Message) -> None:
        if breakpoint_.hit_condition is not None and not _counted(breakpoint_)[0]:
            return
        output = self._output(worker, body.get("task", ""), body.get("text", ""))
        if not self._flood.passes(worker, output["output"]):
            return
        if isinstance(breakpoint_, LineBreakpoint):
            result = breakpoint_.results.get(worker)
            output |= {
                "source": {"path": breakpoint_.path},
                "line": result.line if result is not None else breakpoint_.line,
            }
        self._editor.event("output", output)


def _counted(breakpoint_: Breakpoint) -> tuple[bool, bool]:
    """Counts a hit; returns whether it stops, and whether all that follow do the same."""
    breakpoint_.hits += 1
    condition = breakpoint_.hit_condition
    if condition is None:
        return True, True
    return condition.holds(breakpoint_.hits), condition.is_settled(breakpoint_.hits)
