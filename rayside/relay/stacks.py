"""Stack dump of all processes of a job, merged to a tree; nothing is stopped, and nothing resumes.

A debuggee that a session holds is asked there. Each other one is visited: the relay connects, asks before it
says that it is configured, and leaves. So no `breakpoint()` stops for it, nothing that waits for a debugger
is let go, and nobody is taken over (docs/adr/0032-stacks-are-read-on-a-visit.md).
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

# The most characters of a tree in JSON: an editor that leaves more than 16 MiB unread is dropped (editor.py).
MOST = 8_000_000
# The characters of a node, and of a thread at its end, but for the names in them.
_NODE, _HERE = 160, 80
# Where one branch has this share of a fork's threads or more, the others are the odd ones.
_CROWD = 0.75


@dataclass(frozen=True)
class Thread:
    """Thread, or asyncio task, of one process, and what it does.

    Attributes:
        worker_id, title: those of its process.
        name: its own.
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
    """Function that threads have called in the same way: by the functions above it.

    Attributes:
        lines: how many threads are at each line.
        here: the threads of which it is the innermost frame, each with its line.
        calls: what is called from here, by file and function.
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
        """Adds a thread's stack; returns about how many characters of JSON the tree has more of it."""
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
        """Returns what is called from here, as data; the most threads first."""
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
    """Merges stacks to a tree of about `most` characters of JSON.

    Returns:
        The tree, as data, and the number of threads that are in it: the first ones. The tree is a list of
        `{"function", "file", "local": bool, "own": bool, "lines": [[line, threads]], "threads", "processes",
        "odd": bool, "here": [{"worker_id", "task", "thread", "stopped": bool, "line"}],
        "calls": [the same]}`, the outermost function first. `odd`: a few threads do this where most do
        something else.
    """
    root, number = Node(), 0
    for thread in threads:
        if most <= 0:
            break
        most -= root.add(thread)
        number += 1
    return root.rows(), number


# So many are visited at once: of a thousand at once each would answer late.
_VISITS = 64

_HELD = "a session has it by now"
_REFUSED = "it is not asked again so soon, or at all: another debugger has it, or had it when it was asked"


class Stacks:
    """Reads them for one relay."""

    def __init__(self, dispatch: Dispatch, work: BackgroundTasks) -> None:
        self._dispatch, self._work = dispatch, work
        self._turns = asyncio.Semaphore(_VISITS)
        self._visits: set[asyncio.Future[Any]] = set()
        self._tries = AttachTries()

    async def close(self) -> None:
        """Waits until nobody is visited: who leaves in haste spoils the debuggee."""
        if self._visits:
            await asyncio.wait(self._visits, timeout=CLOSING)

    async def of(self, session: DebugSession, paths: Paths) -> Message:
        """Returns what all threads of a session's jobs do now, merged; also those that others debug here.

        Args:
            paths: those of who asks.

        Returns:
            `{"stacks": as `merged` has them, "processes", "threads": how many have answered, and are told,
            "left_out": the number of threads that are too many,
            "unanswered": [{"worker_id", "task", "why"}]}`.

        Raises Refused where Ray does not answer.
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
            elif session.is_for(debuggee):  # else nobody can say whether it is
                unanswered.append({"worker_id": process[0], "task": process[1], "why": answer})
        # Not here: it takes a moment, in which editors wait.
        tree, number = await asyncio.to_thread(merged, threads)
        return {
            "processes": processes,
            "threads": number,
            "left_out": left_out + len(threads) - number,
            "unanswered": unanswered,
            "stacks": tree,
        }

    async def _ask(self, debuggee: Debuggee, session: DebugSession, rule: Rule) -> Answer | None:
        """Returns a debuggee's answer; None where it turns out to be of another job."""
        if self._dispatch.held(debuggee) is None:
            # One that does not answer in time is waited for all the same: who leaves in haste spoils it.
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
        """Asks by the connection of the session that holds it."""
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
            # Every try may spoil it for whoever debugs it.
            self._tries.give_up(debuggee)
            return line(error.message, LONGEST)
        except Exception as error:  # it has ended, or speaks no DAP
            return line(str(error), LONGEST)
        finally:
            self._work.start(self._settle(debuggee.worker_id, settling(time.monotonic() - began)))
        raise AssertionError("a visit claims nothing")

    async def _settle(self, worker_id: str, seconds: float) -> None:
        # As after each `disconnect`, it may not answer at once.
        await asyncio.sleep(seconds)
        self._dispatch.visited.pop(worker_id).set()


class _Visit:
    """`Claims` and `Holder` of one debuggee that is visited: it reads, and wants nothing.

    Attributes:
        answer: what the debuggee has answered.
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
            # Ray's own debugger, which is met by nobody before it is attached to.
            await self.meet(worker, await worker.ask_origin())
        await worker.connection.begin()
        self.answer = await read_stacks(worker, self._rule, ATTACHING)
        raise NotWanted  # it waits on, for whoever debugs it

    def event(self, worker: Worker, message: Message) -> None:
        """Leaves what it tells: nothing of it was asked for."""

    def attached_to(self, worker: Worker) -> None:
        raise AssertionError("a visit is never attached")

    def refused(self, worker: Worker, error: Exception) -> None:
        """Leaves it: `Stacks` gets the error itself."""

    def end(self, worker: Worker) -> None:
        """Leaves it: the next request to it says so."""
