"""Takes what many debuggees answer side by side: each is waited for a bounded time, and none is trusted."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import TypeVar

from bootstrap.dap.framing import Message
from bootstrap.relay.debuggee import Debuggee
from bootstrap.relay.rules import Rule

# Seconds for Ray to list all debuggees, for each of them to answer, and for all of them together.
LOOKING, ANSWERING, IN_ALL = 5.0, 5.0, 12.0
Answer = Message | str  # what a debuggee has answered, or why there is nothing

SILENT = f"it did not answer within {ANSWERING:g} s; it may be in code that keeps Python's lock"
GONE = "it has just ended, or a debugger has just left it"
STRANGE = "its answer is none that the relay knows"
LATE = f"there was no time left for it within {IN_ALL:g} s"

_Key = TypeVar("_Key")
_Answer = TypeVar("_Answer")


def taken(text: object, rule: Rule, longest: int) -> Answer:
    """Returns a debuggee's answer, which is JSON of at most `longest` characters, as the rule takes it."""
    if not isinstance(text, str) or len(text) > longest:
        return STRANGE
    try:
        answer: Message = rule.take(json.loads(text), "")
    except (ValueError, RecursionError):  # NotDap is one
        return STRANGE
    return answer


def row(debuggee: Debuggee, thread: str) -> Message:
    """Returns who it is that has answered, or has not; `thread` is its thread's name, empty if unknown."""
    return {
        "task": debuggee.task,
        "pid": debuggee.pid,
        "node": debuggee.node_ip,
        "thread": thread,
        "workerId": debuggee.shown_id,
        "submissionId": debuggee.submission_id,
    }


async def together(
    asked: Mapping[asyncio.Future[_Answer], _Key],
) -> list[tuple[_Key, _Answer | str]]:
    """Waits for all who are asked, for at most IN_ALL seconds; whoever is later is told as LATE."""
    if asked:
        await asyncio.wait(asked, timeout=IN_ALL)
    return [(key, asking.result() if asking.done() else LATE) for asking, key in asked.items()]
