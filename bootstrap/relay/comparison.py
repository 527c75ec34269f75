"""Evaluates one expression in all tasks that are stopped, side by side, and groups what it gives.

Each value is summed up in its process (`bootstrap.hook.evaluated.summary`). Only a task that a session holds
is asked, by its connection, in its thread: see docs/adr/0033-only-what-a-debugger-holds-is-compared.md.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from bootstrap.dap.expressions import refusal_of
from bootstrap.dap.framing import Message
from bootstrap.errors import DebuggerGone, RequestFailed
from bootstrap.hook.evaluated import shown, summary
from bootstrap.plain import line
from bootstrap.redaction import REDACTED
from bootstrap.relay.answers import ANSWERING, GONE, Answer, row, taken, together
from bootstrap.relay.connection import SOON
from bootstrap.relay.debuggee import Debuggee
from bootstrap.relay.editor import Refused
from bootstrap.relay.rules import Many, Number, Real, Text, choice, record
from bootstrap.relay.sent import ARRAYS, REDACTION, SECRET_VALUES, SHOWN, SUMMARY
from bootstrap.relay.value_groups import grouped
from bootstrap.relay.work import Work
from bootstrap.relay.worker import Worker

# The most tasks that are asked at once, the most frames of one among which the user's is sought, the most
# characters of a debuggee's answer, and of a value in ours.
MOST, _FRAMES, _LONGEST, _LONGEST_SHOWN = 5_000, 50, 100_000, 500

_SILENT = f"it did not answer within {ANSWERING:g} s, and was interrupted"
_INTERRUPTED = "its evaluation was interrupted: it goes on, or that was cancelled"
_BUSY = "it evaluates something else: ask again once that has ended"
_WENT_ON = "it has gone on meanwhile"
_WAITS = "it waits for a debugger, and is asked once one has it"

_NUMBERS = itertools.count()
_COUNT, _REAL, _NAME = Number(most=2**63 - 1), Real(), Text(summary.LONGEST_NAME)
_MEASURES: dict[str, Any] = {
    **dict.fromkeys(("nan", "inf", "sample"), _COUNT),
    **dict.fromkeys(("min", "max", "mean"), _REAL),
}
_VALUE = record(
    *("kind", "type", "shown", "digest"),
    kind=choice("number array table text container object error"),
    type=_NAME,
    shown=Text(shown.LONGEST + 100),
    digest=Text(100),
    number=_REAL,
    size=_COUNT,
    shape=Many(_COUNT, summary.MOST_DIMENSIONS),
    dtype=_NAME,
    device=_NAME,
    columns=Many(record("name", "dtype", name=_NAME, dtype=_NAME, **_MEASURES), summary.SHOWN_COLUMNS),
    **_MEASURES,
)
_RULE = record("thread", "value", thread=_NAME, value=_VALUE)


async def compared(
    expression: object,
    workers: Iterable[Worker],
    work: Work,
    waiting: Callable[[], Coroutine[Any, Any, list[Debuggee]]] | None = None,
) -> Message:
    """Evaluates in the user's innermost frame of each thread of these workers that is stopped.

    Args:
        waiting: gives those that wait for a debugger, which are named only.

    Returns:
        `{"expression", ...what `grouped` returns, "failed": [a row, with "why" and "waiting": bool]}`. A row
        of a task is `{"task", "pid", "node", "thread", "workerId", "submissionId"}`. A `tasks` of 0 says that
        nothing is stopped, or that none of it has answered.

    Raises Refused, before anybody is asked, where it is no expression.
    """
    if not isinstance(expression, str):
        raise Refused("`expression` has to be a text")
    if problem := refusal_of(expression):
        raise Refused(problem)
    looking = work.start(waiting()) if waiting is not None else None
    stops = [(worker, thread) for worker in workers for thread in sorted(worker.stops)]
    asked = {
        work.start(_ask(worker, thread, expression)): row(worker.described_at(thread), _name(worker, thread))
        for worker, thread in stops[:MOST]
    }
    told, failed = [], []
    # What takes longer is not given up: its own patience ends it, and interrupts what it evaluates.
    for task, answer in await together(asked):
        if isinstance(answer, str):
            failed.append({**task, "why": answer, "waiting": False})
        else:
            told.append((answer["value"], {**task, "thread": answer["thread"]}))
    wait = await looking if looking is not None else []
    failed += [{**row(debuggee, ""), "why": _WAITS, "waiting": True} for debuggee in wait]
    # Not here: it takes a moment, in which editors wait.
    groups = await asyncio.to_thread(grouped, told)
    left_out = groups["left_out"] + len(stops[MOST:])
    return {"expression": expression, **groups, "left_out": left_out, "failed": failed}


async def _ask(worker: Worker, thread: int, expression: str) -> Answer:
    stop, began = worker.stops.get(thread), time.monotonic()
    try:
        answer = await _evaluated(worker, thread, expression)
    except DebuggerGone:
        return GONE
    except RequestFailed as error:
        why = worker.masks.text(error.message)
        answer = _SILENT if time.monotonic() - began >= ANSWERING else line(why, _LONGEST_SHOWN)
    # Nobody but the relay interrupts it: upon `cancel`, or before its thread resumes.
    if not isinstance(answer, str) and answer["value"]["type"] == KeyboardInterrupt.__name__:
        answer = _INTERRUPTED
    if isinstance(answer, str):
        return _WENT_ON if worker.stops.get(thread) is not stop else answer
    value = await _masked(worker, expression, answer["value"])
    return {"thread": worker.masks.text(answer["thread"]), "value": value}


async def _evaluated(worker: Worker, thread: int, expression: str) -> Answer:
    """Returns the answer of one thread. Raises RequestFailed, DebuggerGone."""
    connection = worker.connection
    body = await connection.client.request(
        "stackTrace", {"threadId": thread, "levels": _FRAMES}, timeout=ANSWERING
    )
    frames = [frame for frame in body.get("stackFrames") or [] if isinstance(frame.get("id"), int)]
    # Those of libraries are shown as subtle, where they are shown.
    users = [frame for frame in frames if frame.get("presentationHint") != "subtle"]
    if not frames:
        return _WENT_ON
    await connection.send_once(REDACTION, SECRET_VALUES, SHOWN, ARRAYS, SUMMARY)
    frame = [*users, *frames][0]["id"]
    # Ours would wait behind it, and the end of our patience would interrupt it.
    if not await connection.is_free(SOON):
        return _BUSY
    number = next(_NUMBERS)
    # In a thread of its own, so at once; what begins too late there evaluates nothing.
    await connection.run(SUMMARY.call("asked", number, ANSWERING), SOON)
    text = await connection.users_literal(
        SUMMARY.call("summary", number, expression, worker.masks.known), frame, timeout=ANSWERING
    )
    return taken(text, _RULE, _LONGEST)


async def _masked(worker: Worker, expression: str, value: Message) -> Message:
    """Returns a value without secrets: one that the expression's names call secret shows nothing at all."""
    # An error is a sentence, which a name in the expression does not make a secret.
    asked = {"expression": "" if value["kind"] == "error" else expression}
    body = {"result": value["shown"], "type": value["type"]}
    body = await worker.masks.response("evaluate", asked, body)
    if body["result"] == REDACTED:
        name = worker.masks.text(value["type"])
        return {"kind": "object", "type": name, "shown": REDACTED, "digest": value["digest"]}
    columns = [_without_secrets(worker, column) for column in value.get("columns", [])]
    value = {**_without_secrets(worker, value), "shown": line(body["result"], _LONGEST_SHOWN)}
    return {**value, "columns": columns} if columns else value


def _without_secrets(worker: Worker, document: Message) -> Message:
    """Returns a value or a column with the secrets taken out of what names it."""
    names = {name: document[name] for name in ("name", "type", "dtype", "device") if name in document}
    return {**document, **{name: worker.masks.text(text) for name, text in names.items()}}


def _name(worker: Worker, thread: int) -> str:
    return "MainThread" if thread == worker.main_thread else ""
