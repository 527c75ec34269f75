"""Stack dump of all processes of a job, merged into a tree; no thread stops or resumes for it.

A debuggee that a session holds is asked through that session. The relay visits each other one: it connects,
asks before `configurationDone`, and disconnects. So no `breakpoint()` stops, no thread that waits for a
debugger resumes, and no debugger is replaced (docs/adr/0032-stacks-are-read-on-a-visit.md).
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rayside.dap.client import STOP_IN_USER_CODE, AlreadyDebugged, Origin
from rayside.dap.framing import Message
from rayside.errors import AttachFailed, DebuggerGone, RaysideError
from rayside.plain import line
from rayside.relay.connection import ATTACHING
from rayside.relay.debug_session import DebugSession
from rayside.relay.debuggee import AttachTries, Debuggee
from rayside.relay.dispatch import Dispatch
from rayside.relay.fan_out import (
    ANSWERING,
    GONE,
    LOOKING,
    SILENT,
    Answer,
    BackgroundTasks,
    read_stacks,
    together,
)
from rayside.relay.lifecycle import CLOSING, settling
from rayside.relay.messages import Frame, stacks_rule
from rayside.relay.schemas import Refused, Rule
from rayside.relay.source_files import Files, Paths
from rayside.relay.worker import Configure, NotWanted, Worker
from rayside.worker.evaluated.thread_stacks import LONGEST

# Limit in characters of a tree in JSON: an editor that leaves more than 16 MiB unread is dropped (editor.py).
MOST = 8_000_000
# Characters of a node, and of a thread at its end, without the names in them.
_NODE, _HERE = 160, 80
# If one branch has at least this share of a fork's threads, the other branches are marked as odd.
_CROWD = 0.75


@dataclass(frozen=True)
class Thread:
    """Stack of a thread, or asyncio task, in one process.

    Attributes:
        worker_id, title: of its process.
        name: name of the thread or asyncio task.
        stopped: whether it is stopped in a debugger.
        frames: the outermost first.
    """

    worker_id: str
    title: str
    name: str
    stopped: bool
    frames: Sequence[Frame]


@dataclass
class Node:
    """Function in the tree of stacks, with the threads that have called it through the functions above.

    Attributes:
        lines: number of threads at each line.
        here: the threads whose innermost frame it is, each with its line.
        calls: the called functions, by file and name.
    """

    file: str = ""
    local: bool = False
    function: str = ""
    own: bool = False
    threads: int = 0
    workers: set[str] = field(default_factory=set)
    lines: Counter[int] = field(default_factory=Counter)
    here: list[tuple[Thread, int]] = field(default_factory=list)
    calls: dict[tuple[str, str], Node] = field(default_factory=dict)

    def add(self, thread: Thread) -> int:
        """Adds a thread's stack; returns the approximate number of characters of JSON that this adds."""
        node, cost = self, 0
        for frame in thread.frames:
            key = frame.file, frame.function
            if key not in node.calls:
                node.calls[key] = Node(frame.file, frame.local, frame.function, frame.own)
                cost += _NODE + len(json.dumps(key))
            node = node.calls[key]
            node.threads += 1
            node.workers.add(thread.worker_id)
            node.lines[frame.line] += 1
        if node is not self:
            node.here.append((thread, thread.frames[-1].line))
            cost += _HERE + len(json.dumps([thread.worker_id, thread.title, thread.name]))
        return cost

    def rows(self) -> list[dict[str, Any]]:
        """Returns the called functions, as data; those with the most threads first."""
        nodes = sorted(self.calls.values(), key=lambda node: (-node.threads, node.file, node.function))
        everything = sum(node.threads for node in nodes) + len(self.here)
        most = nodes[0].threads if nodes else 0
        crowded = everything > 2 and most / everything >= _CROWD
        return [node._row(odd=crowded and node is not nodes[0]) for node in nodes]

    def _row(self, odd: bool) -> dict[str, Any]:
        return {
            "function": self.function,
            "file": self.file,
            "local": self.local,
            "own": self.own,
            "lines": [[line, count] for line, count in self.lines.most_common()],
            "threads": self.threads,
            "processes": len(self.workers),
            "odd": odd,
            "here": [
                {
                    "worker_id": thread.worker_id,
                    "task": thread.title,
                    "thread": thread.name,
                    "stopped": thread.stopped,
                    "line": line,
                }
                for thread, line in self.here
            ],
            "calls": self.rows(),
        }


def merged(threads: Iterable[Thread], most: int = MOST) -> tuple[list[dict[str, Any]], int]:
    """Merges stacks into a tree of about `most` characters of JSON.

    Returns:
        The tree, as data, and the number of threads in it: the first ones. The tree is a list of
        `{"function", "file", "local": bool, "own": bool, "lines": [[line, threads]], "threads", "processes",
        "odd": bool, "here": [{"worker_id", "task", "thread", "stopped": bool, "line"}],
        "calls": [the same]}`, the outermost function first. `odd`: few threads call this function, while most
        call another one.
    """
    root, number = Node(), 0
    for thread in threads:
        if most <= 0:
            break
        most -= root.add(thread)
        number += 1
    return root.rows(), number


# Limit of concurrent visits: with a thousand at once, each debuggee would answer late.
_VISITS = 64

_HELD = "a session has it by now"
_REFUSED = "it is not asked again so soon, or at all: another debugger has it, or had it when it was asked"


class Stacks:
    """Reader of stacks for one relay."""

    def __init__(self, dispatch: Dispatch, work: BackgroundTasks) -> None:
        self._dispatch, self._work = dispatch, work
        self._turns = asyncio.Semaphore(_VISITS)
        self._visits: set[asyncio.Future[Any]] = set()
        self._tries = AttachTries()

    async def close(self) -> None:
        """Waits for the end of all visits: an early disconnect breaks the debuggee."""
        if self._visits:
            await asyncio.wait(self._visits, timeout=CLOSING)

    async def of(self, session: DebugSession, paths: Paths) -> Message:
        """Returns the merged stacks of all threads of a session's jobs, also of debuggees in other sessions.

        Args:
            paths: the path mappings of the requesting client.

        Returns:
            `{"stacks": as from `merged`, "processes": the number that have answered, "threads": the number in
            the stacks, "left_out": the number of threads above the limit,
            "unanswered": [{"worker_id", "task", "why"}]}`.

        Raises Refused if Ray does not answer.
        """
        try:
            known = await asyncio.wait_for(self._dispatch.known(), LOOKING)
        except asyncio.TimeoutError:
            raise Refused(f"Ray did not answer within {LOOKING:g} s") from None
        except RaysideError as error:
            raise Refused(error.message) from error
        rule = stacks_rule(paths.local)
        asked: dict[asyncio.Future[Answer | None], Debuggee] = {
            asyncio.ensure_future(self._ask(debuggee, session, rule)): debuggee
            for debuggee in known
            if session.is_for(debuggee) or not (debuggee.job_id or debuggee.submission_id)
        }
        answers = await together(asked)
        for asking in asked:
            asking.cancel()
        threads: list[Thread] = []
        processes = left_out = 0
        unanswered: list[Message] = []
        for debuggee, answer in answers:
            process = debuggee.shown_id, debuggee.title
            if not isinstance(answer, str):
                if answer is not None:
                    processes += 1
                    left_out += answer.get("more", 0)
                    threads += [Thread(*process, **row) for row in answer["threads"]]
            elif session.is_for(debuggee):  # otherwise its job is unknown
                unanswered.append({"worker_id": process[0], "task": process[1], "why": answer})
        # Merging runs in a thread, so that it does not delay editors.
        tree, number = await asyncio.to_thread(merged, threads)
        return {
            "processes": processes,
            "threads": number,
            "left_out": left_out + len(threads) - number,
            "unanswered": unanswered,
            "stacks": tree,
        }

    async def _ask(self, debuggee: Debuggee, session: DebugSession, rule: Rule) -> Answer | None:
        """Returns a debuggee's answer; None if it turns out to belong to another job."""
        if self._dispatch.held(debuggee) is None:
            # A visit continues after the timeout: an early disconnect breaks the debuggee.
            async with self._turns:
                self._visits.add(visiting := self._work.start(self._visit(debuggee, session, rule)))
                visiting.add_done_callback(self._visits.discard)
                done, _ = await asyncio.wait({visiting}, timeout=ANSWERING)
            if not done:
                return SILENT
            answer: Answer | None = visiting.result()
            if answer is not _HELD:
                return answer
        try:
            return await asyncio.wait_for(self._ask_there(debuggee, session, rule), ANSWERING)
        except asyncio.TimeoutError:
            return SILENT
        except DebuggerGone:
            return GONE

    async def _ask_there(self, debuggee: Debuggee, session: DebugSession, rule: Rule) -> Answer | None:
        """Asks through the connection of the session that holds the debuggee."""
        holding = self._dispatch.held(debuggee)
        if holding is None:
            return GONE
        await holding.settled()
        if not session.is_for(holding.debuggee):
            return None
        return await read_stacks(holding, rule, ANSWERING) if holding.is_attached else GONE

    async def _visit(self, debuggee: Debuggee, session: DebugSession, rule: Rule) -> Answer | None:
        visited = self._dispatch.visited
        while (earlier := visited.get(debuggee.worker_id)) is not None:
            try:
                await asyncio.wait_for(earlier.wait(), ANSWERING)
            except asyncio.TimeoutError:
                return SILENT
        if self._dispatch.held(debuggee) is not None:
            return _HELD
        if not self._tries.may(debuggee):
            return _REFUSED
        visited[debuggee.worker_id] = asyncio.Event()
        visit = _Visit(self._dispatch, session, rule)
        began = time.monotonic()
        try:
            await Worker(debuggee, Files(), visit).attach(STOP_IN_USER_CODE, visit, children=False)
        except NotWanted:
            return visit.answer
        except AlreadyDebugged:
            self._tries.taken(debuggee)
            return "another debugger has it"
        except AttachFailed as error:
            # Every attempt may break the session of another debugger.
            self._tries.give_up(debuggee)
            return line(error.message, LONGEST)
        except Exception as error:  # it has ended, or speaks no DAP
            return line(str(error), LONGEST)
        finally:
            self._work.start(self._settle(debuggee.worker_id, settling(time.monotonic() - began)))
        raise AssertionError("a visit claims nothing")

    async def _settle(self, worker_id: str, seconds: float) -> None:
        # After a `disconnect`, the debuggee may not answer immediately.
        await asyncio.sleep(seconds)
        self._dispatch.visited.pop(worker_id).set()


class _Visit:
    """`Claims` and `Holder` of one visited debuggee: it reads the stacks, and does not claim the debuggee.

    Attributes:
        answer: the debuggee's answer.
    """

    def __init__(self, dispatch: Dispatch, session: DebugSession, rule: Rule) -> None:
        self.user = dispatch.user
        self.answer: Answer | None = None
        self._dispatch, self._session, self._rule = dispatch, session, rule

    async def meet(self, worker: Worker, origin: Origin) -> None:
        await self._dispatch.know(worker, origin)
        if not self._session.is_for(worker.debuggee):
            raise NotWanted

    async def claim(self, worker: Worker) -> Configure:
        if not (worker.debuggee.job_id or worker.debuggee.submission_id):
            # Ray's own debugger has no introduction before `attach`.
            await self.meet(worker, await worker.ask_origin())
        await worker.connection.begin()
        self.answer = await read_stacks(worker, self._rule, ATTACHING)
        raise NotWanted  # the debuggee continues to wait for a debugger

    def event(self, worker: Worker, message: Message) -> None:
        """Ignores events."""

    def attached_to(self, worker: Worker) -> None:
        raise AssertionError("a visit is never attached")

    def refused(self, worker: Worker, error: Exception) -> None:
        """Does nothing: `Stacks` gets the error itself."""

    def end(self, worker: Worker) -> None:
        """Does nothing: the next request to the debuggee fails."""
