"""Answers for the row of the cluster, which stands for all tasks.

What is evaluated there is evaluated in all that are stopped, and its stack is what all of them do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from itertools import islice
from pathlib import PurePath
from typing import Any

from bootstrap.dap.framing import Message
from bootstrap.dap.stacks import rows
from bootstrap.relay.comparison import compared
from bootstrap.relay.editor import Refused
from bootstrap.relay.gathered import Gathered
from bootstrap.relay.threads import Threads
from bootstrap.relay.work import Work
from bootstrap.relay.worker import Worker, Workers

NAME = "all stopped tasks"
# In these contexts an editor evaluates what somebody has typed; what the mouse rests on is one task's.
_CONTEXTS = frozenset({"repl", "watch"})
# The most frames below the first.
_MOST = 500


class ClusterRow:
    """Answers for one debug session; `read_stacks` returns all stacks of its jobs, as `Stacks.of` does."""

    def __init__(
        self,
        workers: Workers,
        threads: Threads,
        work: Work,
        read_stacks: Callable[[], Awaitable[Message]],
    ) -> None:
        self._workers, self._threads, self._work = workers, threads, work
        self._read_stacks = read_stacks
        self._frames = Gathered(self._read_frames)

    async def stack(self, arguments: Message) -> Message:
        """Returns the body of the answer to `stackTrace`.

        An editor evaluates where it has a frame: in the first. Below it are the stacks of all processes,
        merged to a tree; who wants the first frame alone does not wait for them.
        """
        start, levels = max(arguments.get("startFrame") or 0, 0), max(arguments.get("levels") or 0, 0)
        frames = [self._frame(0, {"name": NAME})]
        if (start, levels) == (0, 1):
            return {"stackFrames": frames, "totalFrames": _MOST}
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
            for row in islice(rows(answer), _MOST)
        ]
        if len(shown) == _MOST:
            shown[-1] = _remark("... more: debug --stacks has them")
        return [self._frame(number, frame) for number, frame in enumerate(shown, 1)]

    def _frame(self, number: int, frame: Message) -> Message:
        return {"id": self._threads.cluster_frame(number), "line": 0, "column": 0, **frame}

    @property
    def workers(self) -> list[Worker]:
        """Returns those in which a thread is stopped."""
        return [worker for worker in self._workers.attached if worker.stops]

    def is_meant(self, arguments: Message) -> bool:
        """Returns whether the arguments of an `evaluate` mean all tasks. Raises Refused for a wrong one."""
        context = arguments.get("context")
        if not self._threads.is_of_cluster(arguments.get("frameId")):
            if arguments.get("frameId") or context != "repl":
                return False
            # VS Code has no frame where the row is chosen: it asks for no stack of what runs. A task that is
            # stopped alone is asked by itself, for its value can then be expanded.
            return sum(len(worker.stops) for worker in self.workers) > 1
        if context is not None and context not in _CONTEXTS:
            raise Refused("choose a task: on the row of the cluster the debug console and watches evaluate")
        return True

    async def compared(self, expression: object) -> Message:
        """Returns what `comparison.compared` does. Raises Refused, also where nothing is stopped."""
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
