"""Comparison: one expression evaluated in all stopped tasks in parallel, its values grouped.

Each process summarizes its value (evaluated/summary.py). Only tasks that a debug session holds are evaluated,
through the session's connection: see docs/adr/0033-only-what-a-debugger-holds-is-compared.md.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from rayside.dap.expressions import refusal_of
from rayside.dap.framing import Message
from rayside.errors import DebuggerGone, RequestFailed
from rayside.plain import line
from rayside.relay.connection import SOON, call
from rayside.relay.debuggee import Debuggee
from rayside.relay.fan_out import ANSWERING, GONE, LACKS, Answer, BackgroundTasks, row, taken, together
from rayside.relay.schemas import Many, Number, Real, Refused, Text, choice, record
from rayside.relay.worker import Worker
from rayside.worker.evaluated import shown, summary
from rayside.worker.redaction import REDACTED

# Limit in characters of all groups in JSON: an editor that leaves more than 16 MiB unread is dropped
# (editor.py).
MOST_CHARACTERS = 8_000_000
# The least count of numbers among which outliers are detected.
_CROWD = 3
# The limit of the modified z-score, and its factor: Iglewicz and Hoaglin, How to Detect and Handle Outliers,
# 1993.
_MOST_Z, _FACTOR = 3.5, 0.6745
ERROR, NAN, SHAPE, OUTLIER = "error", "nan", "shape", "outlier"
_ORDER = (ERROR, NAN, SHAPE, OUTLIER, "")


@dataclass
class _Group:
    value: Message
    tasks: list[Message] = field(default_factory=list)
    mark: str = ""

    @property
    def measures(self) -> tuple[float, ...]:
        """Returns the numbers that outlier detection compares: one, or min, max and mean of an array."""
        number = self.value.get("number")
        if number is not None:
            return (number,)
        measures = (self.value.get("min"), self.value.get("max"), self.value.get("mean"))
        return () if None in measures else measures  # type: ignore[return-value]

    @property
    def form(self) -> str:
        """Returns types, shapes, and lengths of containers: all but the content."""
        names = ["kind", "type", "shape", "dtype", *(["size"] if self.value["kind"] == "container" else [])]
        columns = [(column.get("name"), column.get("dtype")) for column in self.value.get("columns", [])]
        return json.dumps([*map(self.value.get, names), columns])


def grouped(told: Sequence[tuple[Message, Message]], most: int = MOST_CHARACTERS) -> Message:
    """Groups tasks with equal values.

    Args:
        told: pairs of a value, as in `rayside.worker.evaluated.summary`, and a task's row.
        most: approximate limit in characters of JSON.

    Returns:
        `{"tasks": the number of tasks with a value, "groups": [{"value", "count", "mark", "alike": bool,
        "tasks": the rows}], "left_out": the number of tasks in groups above the limit,
        "numbers": {"count", "min", "median", "max"}, or None if no value is a finite number}`.

        Groups are in the order of their marks: `error`, the expression raises; `nan`, the value contains NaN
        or an infinity; `shape`, the type, shape, or length of a container differs from the most frequent one;
        `outlier`, a number far from the others (of an array min, max or mean). Unmarked groups follow,
        the largest first. A number is an outlier if its modified z-score, 0.6745 |x - median| / MAD, is above
        3.5; MAD is the median of all |x - median|. If MAD is 0, because more than half of the numbers are
        equal, each other number is an outlier. Fewer than three numbers have no outliers. `alike`: another
        group shows the same text, and differs in a part that is not shown.
    """
    groups: dict[str, _Group] = {}
    for value, task in told:
        groups.setdefault(json.dumps(value, sort_keys=True), _Group(value)).tasks.append(task)
    every = list(groups.values())
    _mark(every)
    every.sort(key=lambda group: (_ORDER.index(group.mark), -len(group.tasks)))
    shown = Counter(map(_shown, every))
    rows: list[Message] = []
    left_out = 0
    for group in every:
        value = {name: part for name, part in group.value.items() if name != "digest"}
        row = {
            "value": value,
            "count": len(group.tasks),
            "mark": group.mark,
            "alike": shown[_shown(group)] > 1,
        }
        most -= len(json.dumps([row, group.tasks]))
        if most < 0 and rows:
            left_out += len(group.tasks)
        else:
            rows.append({**row, "tasks": group.tasks})
    return {"tasks": len(told), "groups": rows, "left_out": left_out, "numbers": _numbers(every)}


def _shown(group: _Group) -> str:
    return json.dumps({name: part for name, part in group.value.items() if name != "digest"})


def _mark(groups: Sequence[_Group]) -> None:
    forms: Counter[str] = Counter()
    for group in groups:
        if group.value["kind"] != ERROR:
            forms[group.form] += len(group.tasks)
    common = [form for form, count in forms.items() if count == max(forms.values())]
    usual = common[0] if len(common) == 1 else None
    far = {id(group) for group in _far(groups)}
    for group in groups:
        if group.value["kind"] == ERROR:
            group.mark = ERROR
        elif group.value.get("nan", 0) or group.value.get("inf", 0):
            group.mark = NAN
        elif group.form != usual:
            group.mark = SHAPE
        elif id(group) in far:
            group.mark = OUTLIER


def _far(groups: Sequence[_Group]) -> Iterator[_Group]:
    """Yields the groups with outliers; see `grouped`."""
    for width in (1, 3):
        measured = [group for group in groups if len(group.measures) == width]
        if sum(len(group.tasks) for group in measured) < _CROWD:
            continue
        for place in range(width):
            middle = _median(_each(measured, place))
            deviation = median(abs(number - middle) for number in _each(measured, place))
            for group in measured:
                distance = abs(group.measures[place] - middle)
                if deviation == 0:
                    far = not math.isclose(group.measures[place], middle)
                else:
                    far = _FACTOR * distance / deviation > _MOST_Z
                if far:
                    yield group


def _each(groups: Sequence[_Group], place: int) -> list[float]:
    """Returns a number for each task."""
    return [group.measures[place] for group in groups for _ in group.tasks]


def _median(numbers: Sequence[float]) -> float:
    middle = median(numbers)
    # The sum of the two middle numbers may overflow.
    return middle if math.isfinite(middle) else 2 * median(number / 2 for number in numbers)


def _numbers(groups: Sequence[_Group]) -> dict[str, Any] | None:
    numbers = _each([group for group in groups if len(group.measures) == 1], 0)
    if not numbers:
        return None
    return {"count": len(numbers), "min": min(numbers), "median": _median(numbers), "max": max(numbers)}


# Limits: tasks per comparison, frames of a task that are searched for user code, characters of a debuggee's
# answer, and characters of a value in the relay's answer.
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
    work: BackgroundTasks,
    waiting: Callable[[], Coroutine[Any, Any, list[Debuggee]]] | None = None,
) -> Message:
    """Evaluates an expression in the innermost user frame of each stopped thread of these workers.

    Args:
        waiting: returns the debuggees that wait for a debugger; they are only listed.

    Returns:
        `{"expression", ...the fields from `grouped`, "failed": [a row, with "why" and "waiting": bool]}`. A
        row of a task is `{"task", "pid", "node", "thread", "workerId", "submissionId"}`. `tasks` is 0 if no
        thread is stopped, or none has answered.

    Raises Refused, before any request to a worker, if the text is not an expression.
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
    # Later answers are not abandoned: each request's own timeout ends it, and interrupts the evaluation.
    for task, answer in await together(asked):
        if isinstance(answer, str):
            failed.append({**task, "why": answer, "waiting": False})
        else:
            told.append((answer["value"], {**task, "thread": answer["thread"]}))
    wait = await looking if looking is not None else []
    failed += [{**row(debuggee, ""), "why": _WAITS, "waiting": True} for debuggee in wait]
    # Grouping runs in a thread, so that it does not delay editors.
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
    # Only the relay interrupts an evaluation: upon `cancel`, or before the thread resumes.
    if not isinstance(answer, str) and answer["value"]["type"] == KeyboardInterrupt.__name__:
        answer = _INTERRUPTED
    if isinstance(answer, str):
        return _WENT_ON if worker.stops.get(thread) is not stop else answer
    value = await _masked(worker, expression, answer["value"])
    return {"thread": worker.masks.text(answer["thread"]), "value": value}


async def _evaluated(worker: Worker, thread: int, expression: str) -> Answer:
    """Returns the answer of one thread. Raises RequestFailed, DebuggerGone."""
    connection = worker.connection
    if not connection.has_package:
        return LACKS
    body = await connection.client.request(
        "stackTrace", {"threadId": thread, "levels": _FRAMES}, timeout=ANSWERING
    )
    frames = body.get("stackFrames", [])
    # Frames of libraries have the hint `subtle`.
    users = [frame for frame in frames if frame.get("presentationHint") != "subtle"]
    if not frames:
        return _WENT_ON
    frame = [*users, *frames][0]["id"]
    # Our request would wait for the editor's evaluation, and our timeout would interrupt it.
    if not await connection.is_free(SOON):
        return _BUSY
    number = next(_NUMBERS)
    # This runs in a separate thread, so immediately; an evaluation that begins too late does nothing.
    await connection.tell(SOON, summary.asked, number, ANSWERING)
    text = await connection.users_literal(
        call(summary.summary, number, expression, worker.masks.known), frame, timeout=ANSWERING
    )
    return taken(text, _RULE, _LONGEST)


async def _masked(worker: Worker, expression: str, value: Message) -> Message:
    """Returns a value without secrets; all of it is masked if a name in the expression is secret."""
    # An error message is not secret because of a name in the expression.
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
    """Returns a value or a column with secrets masked in its name and types."""
    names = {name: document[name] for name in ("name", "type", "dtype", "device") if name in document}
    return {**document, **{name: worker.masks.text(text) for name, text in names.items()}}


def _name(worker: Worker, thread: int) -> str:
    return "MainThread" if thread == worker.main_thread else ""
