"""Says of members of groups where they stand, what those do that are late, and why some have ended."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence

from bootstrap.dap.framing import Message
from bootstrap.dap.groups import ENDED, LATE, STOPPED
from bootstrap.errors import DebuggerGone, RaysideError, RequestFailed
from bootstrap.plain import line
from bootstrap.relay.answers import ANSWERING, together
from bootstrap.relay.debuggee import Debuggee
from bootstrap.relay.group_steps import Outcome
from bootstrap.relay.rules import Rule
from bootstrap.relay.stack_answers import read, rule_of
from bootstrap.relay.stack_tree import Frame
from bootstrap.relay.work import Work
from bootstrap.relay.worker import Worker

# Of so many Ray is asked why they have ended, and the most characters of what it says.
_MOST_ASKED, _LONGEST = 20, 600

WhyEnded = Callable[[Debuggee], Awaitable[str]]


class MemberStates:
    """Reads them for one debug session."""

    def __init__(self, why_ended: WhyEnded, work: Work) -> None:
        self._why_ended, self._work = why_ended, work

    async def of(self, outcomes: Sequence[Outcome], local: Callable[[str], str | None]) -> list[Message]:
        """Returns a row for each, side by side and within a bounded time.

        Args:
            local: returns the editor's path for a debuggee's, if it has one.

        Returns:
            `[{...the member's row, "state", "why", "place": {"file", "line", "function"} or None, "own": the
            same of the user's innermost frame, where that is another, or None}]`.
        """
        rule = rule_of(local)
        ended = [outcome for outcome in outcomes if outcome.state == ENDED][:_MOST_ASKED]
        asked = {
            self._work.start(self._read(outcome, rule, local, asks=outcome in ended)): outcome
            for outcome in outcomes
        }
        return [
            {**_row(outcome), **(answer if not isinstance(answer, str) else {"why": answer})}
            for outcome, answer in await together(asked)
        ]

    async def _read(
        self, outcome: Outcome, rule: Rule, local: Callable[[str], str | None], *, asks: bool
    ) -> Message:
        worker, thread = outcome.member.worker, outcome.member.thread
        try:
            if outcome.state == STOPPED and thread is not None:
                return {"place": await _top(worker, thread, local)}
            if outcome.state == LATE:
                return await _doing(worker, thread, rule)
        except RequestFailed:  # it goes on meanwhile
            return {}
        except DebuggerGone:
            return {"state": ENDED}
        return {"why": await self._why(worker.debuggee)} if asks else {}

    async def _why(self, debuggee: Debuggee) -> str:
        try:
            why = await asyncio.wait_for(self._why_ended(debuggee), ANSWERING)
        except (RaysideError, asyncio.TimeoutError):
            why = ""
        return line(why or "Ray does not say why", _LONGEST)


def _row(outcome: Outcome) -> Message:
    row = {**outcome.member.row, "state": outcome.state, "why": outcome.why}
    return {**row, "place": None, "own": None}


async def _top(worker: Worker, thread: int, local: Callable[[str], str | None]) -> Message | None:
    body = await worker.connection.client.request(
        "stackTrace", {"threadId": thread, "levels": 1}, timeout=ANSWERING
    )
    frames = body.get("stackFrames") or []
    if not frames:
        return None
    path = (frames[0].get("source") or {}).get("path") or ""
    file = local(path) or path
    return {"file": file, "line": frames[0].get("line", 0), "function": frames[0].get("name", "")}


async def _doing(worker: Worker, thread: int | None, rule: Rule) -> Message:
    """Returns what a thread that runs does now; where it is not known there, what the program's own does."""
    answer = await read(worker, rule, ANSWERING)
    if isinstance(answer, str):
        return {"why": answer}
    rows = [row for row in answer["threads"] if row["frames"]]
    name = await _name(worker, thread)
    own = [row for row in rows if any(frame.own for frame in row["frames"])]
    named = [row for row in rows if row["name"] == name]
    frames: Sequence[Frame] = [*named, *own, *rows, {"frames": []}][0]["frames"]
    if not frames:
        return {"why": "it runs no Python code"}
    users = next((frame for frame in reversed(frames) if frame.own), None)
    own_place = None if users is None or users is frames[-1] else _place(users)
    return {"place": _place(frames[-1]), "own": own_place}


async def _name(worker: Worker, thread: int | None) -> str:
    """Returns the name of a thread, as its program has it."""
    if thread is None or thread == worker.main_thread:
        return "MainThread"
    body = await worker.connection.client.request("threads", timeout=ANSWERING)
    rows: Iterable[Message] = body.get("threads") or []
    return next((str(row.get("name", "")) for row in rows if row.get("id") == thread), "")


def _place(frame: Frame) -> Message:
    return {"file": frame.file, "line": frame.line, "function": frame.function}
