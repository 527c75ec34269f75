"""Members of groups of tasks: selector expressions, current members, and the state of each member."""

from __future__ import annotations

import ast
import asyncio
import re
import warnings
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType, SimpleNamespace
from weakref import WeakKeyDictionary

from rayside.dap.expressions import may_be_compiled, refusal_of
from rayside.dap.framing import Message
from rayside.dap.group_commands import ENDED, LATE, STOPPED
from rayside.errors import DebuggerGone, RaysideError, RequestFailed
from rayside.plain import line
from rayside.relay.connection import SOON
from rayside.relay.debuggee import Debuggee
from rayside.relay.fan_out import ANSWERING, BackgroundTasks, read_stacks, row, taken, together
from rayside.relay.messages import Frame, stacks_rule
from rayside.relay.schemas import LARGEST, Number, Refused, Rule, Text, record
from rayside.relay.worker import Worker, Workers
from rayside.worker.evaluated.scope import OF_PROCESS, of_process

# Attributes that the relay knows; it asks the processes for those in OF_PROCESS. `task_id` and `attempt`
# differ between threads and calls, so a group has neither.
OF_RELAY = ("task", "node", "job", "submission", "worker_id", "pid", "failed")
_NAMES = (*OF_RELAY, *OF_PROCESS)
_NUMBERS = frozenset({"rank", "pid"})
_ALONE = {"all": "True", "failed": "ray.failed", "ranks": "ray.rank is not None"}
_WITH_VALUE = re.compile(r"(actor|job|node|task)\s*:\s*(\S.*)")
_METHODS = frozenset({"startswith", "endswith"})
FORMS = "all, failed, ranks, actor:CLASS, node:IP, task:NAME, job:ID"
_HINT = f"a group is {FORMS}, or an expression such as `ray.rank in (0, 3)` or `ray.actor == 'Trainer'`"
# Syntax whose evaluation can neither take long nor produce large values.
_HARMLESS = (
    *(ast.Expression, ast.expr_context, ast.BoolOp, ast.boolop, ast.Not, ast.Compare, ast.cmpop),
    *(ast.Tuple, ast.List, ast.Set),
)


@dataclass(frozen=True)
class Selector:
    """Selector of a group's members, by attributes that the relay knows.

    It runs no user code, here or in a task, and also decides on a process that does not answer. So its
    expressions are restricted.

    Attributes:
        expression: the expression, also of a short form.
        asks: whether it needs an attribute that only the processes know.
    """

    expression: str
    asks: bool
    _code: CodeType

    @classmethod
    def of(cls, text: str) -> Selector:
        """Parses a selector. Raises Refused, with the problem and the valid forms."""
        expression = _expanded(text.strip())
        if problem := refusal_of(expression):
            raise Refused(f"{problem}: {_HINT}")
        if not may_be_compiled(expression):
            raise Refused(f"its brackets are nested too deeply: {_HINT}")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tree = ast.parse(expression, "<group>", mode="eval")
                asks = {_checked(node) for node in ast.walk(tree)} & {*OF_PROCESS}
                return cls(expression, bool(asks), compile(tree, "<group>", "eval"))
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise Refused(f"it can't be read as a group: {error}: {_HINT}") from None

    def takes(self, attributes: Mapping[str, object]) -> bool:
        """Returns whether a task with these attributes is a member.

        A comparison of wrong types is false: without a rank, `ray.rank < 4` is false.
        """
        names = {"__builtins__": {}, "ray": SimpleNamespace(**{**dict.fromkeys(_NAMES), **attributes})}
        try:
            return bool(eval(self._code, names))
        except (TypeError, AttributeError, ZeroDivisionError):
            return False


def _expanded(text: str) -> str:
    """Returns the expression of a short form; other texts are returned unchanged."""
    if text in _ALONE:
        return _ALONE[text]
    form = _WITH_VALUE.fullmatch(text)
    if form is None:
        return text
    name, value = form.groups()
    if name == "job":
        return f"{value!r} in (ray.job, ray.submission)"
    return f"ray.{name} == {value!r}"


def _checked(node: ast.AST) -> str:
    """Checks a node of an expression; returns its attribute of `ray`, if it is one. Raises Refused."""
    match node:
        case ast.Attribute(value=ast.Name(id="ray"), attr=name) if name in _NAMES:
            return name
        case ast.Attribute(value=ast.Name(id="ray"), attr=name):
            raise Refused(f"of `ray`, a group has {', '.join(_NAMES)}, and no {name!r}")
        case ast.Call(func=ast.Attribute(attr=method), keywords=[]) if method in _METHODS:
            return ""
        case ast.Attribute(attr=method) if method in _METHODS:
            return ""
        # `%` on a string could produce a string of any length.
        case ast.BinOp(left=ast.Attribute(attr=name), op=ast.Mod()) if name in _NUMBERS:
            return ""
        case ast.UnaryOp(op=ast.Not() | ast.USub()) | ast.Mod() | ast.USub():
            return ""
        case ast.Name(id="ray") | ast.Constant(value=str() | int() | float() | None):
            return ""
        case ast.Name(id=name):
            raise Refused(f"{name!r} is no group, and an expression has no name but `ray`: {_HINT}")
    if not isinstance(node, _HARMLESS):
        raise Refused(f"`{ast.unparse(node)[:100]}` is nothing that a group can be told by: {_HINT}")
    return ""


# Limits in characters: an attribute, and a debuggee's answer.
_LONGEST_ATTRIBUTE, _LONGEST_ANSWER = 500, 10_000
_RULE = record(
    *("actor", "actor_id", "actor_name", "node_id"),
    **dict.fromkeys(OF_PROCESS, Text(_LONGEST_ATTRIBUTE)) | {"rank": Number(-LARGEST)},
)


@dataclass(frozen=True)
class Member:
    """Member of a group: a thread that is stopped or about to stop, or a process without one (thread None).

    Attributes:
        row: the task and process, as `fan_out.row` returns them, and their `rank`.
    """

    worker: Worker
    thread: int | None
    row: Message


class Members:
    """Members of groups in one debug session with the debuggees `workers`."""

    def __init__(self, workers: Workers, work: BackgroundTasks) -> None:
        self._workers, self._work = workers, work
        # The last answer of each process, for use when it does not answer.
        self._known: WeakKeyDictionary[Worker, Message] = WeakKeyDictionary()

    async def learn(self, selectors: Iterable[Selector]) -> None:
        """Asks all processes for their attributes, if a selector needs them."""
        workers = self._workers.attached
        if workers and any(selector.asks for selector in selectors):
            await asyncio.wait([self._work.start(self._ask(worker)) for worker in workers], timeout=SOON)

    def of(self, selector: Selector) -> tuple[list[Member], list[Member]]:
        """Returns the members, and possible members: those of processes that have never answered."""
        workers = self._workers.attached
        members, unknown = [], []
        for worker in workers:
            known = self._known.get(worker)
            threads: list[int | None] = [*sorted(worker.stops)] or [None]
            for thread in threads:
                member = self.member(worker, thread)
                if selector.asks and known is None:
                    unknown.append(member)
                elif selector.takes({**(known or {}), **_of_relay(worker, thread)}):
                    members.append(member)
        return members, unknown

    def member(self, worker: Worker, thread: int | None) -> Member:
        """Returns the Member for a thread of a debuggee, or for the process (None)."""
        name = "MainThread" if thread == worker.main_thread else ""
        rank = self._known.get(worker, {}).get("rank")
        return Member(worker, thread, {**row(_at(worker, thread), name), "rank": rank})

    async def _ask(self, worker: Worker) -> None:
        connection = worker.connection
        try:
            answer = taken(await connection.ask(SOON, of_process), _RULE, _LONGEST_ANSWER)
        except DebuggerGone:
            return
        if not isinstance(answer, str):
            self._known[worker] = answer


def _at(worker: Worker, thread: int | None) -> Debuggee:
    return worker.debuggee if thread is None or thread not in worker.stops else worker.described_at(thread)


def _of_relay(worker: Worker, thread: int | None) -> Mapping[str, object]:
    debuggee = _at(worker, thread)
    attributes = (
        *(debuggee.task, debuggee.node_ip, debuggee.job_id, debuggee.submission_id),
        *(debuggee.shown_id, debuggee.pid, thread is not None and worker.has_failed(thread)),
    )
    return dict(zip(OF_RELAY, attributes, strict=True))


@dataclass(frozen=True)
class Outcome:
    """State of a member after an action, and the reason, if any."""

    member: Member
    state: str
    why: str = ""


# Limits: members for which Ray is asked why they have ended, and characters of a reason.
_MOST_ASKED, _LONGEST_REASON = 20, 600

WhyEnded = Callable[[Debuggee], Awaitable[str]]


class MemberStates:
    """Reader of the states of a debug session's members."""

    def __init__(self, why_ended: WhyEnded, work: BackgroundTasks) -> None:
        self._why_ended, self._work = why_ended, work

    async def of(self, outcomes: Sequence[Outcome], local: Callable[[str], str | None]) -> list[Message]:
        """Returns a row for each, read in parallel and within a bounded time.

        Args:
            local: returns the editor's path for a debuggee's, if it has one.

        Returns:
            `[{...the member's row, "state", "why", "place": {"file", "line", "function"} or None, "own": the
            same for the innermost user frame, if that is another, or None}]`.
        """
        rule = stacks_rule(local)
        ended = [outcome for outcome in outcomes if outcome.state == ENDED][:_MOST_ASKED]
        asked = {
            self._work.start(self._read(outcome, rule, local, asks=outcome in ended)): outcome
            for outcome in outcomes
        }
        return [
            {**_row_of(outcome), **(answer if not isinstance(answer, str) else {"why": answer})}
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
        except RequestFailed:  # it has resumed
            return {}
        except DebuggerGone:
            return {"state": ENDED}
        return {"why": await self._why(worker.debuggee)} if asks else {}

    async def _why(self, debuggee: Debuggee) -> str:
        try:
            why = await asyncio.wait_for(self._why_ended(debuggee), ANSWERING)
        except (RaysideError, asyncio.TimeoutError):
            why = ""
        return line(why or "Ray does not say why", _LONGEST_REASON)


def _row_of(outcome: Outcome) -> Message:
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
    """Returns the place of a running thread; if its process does not list it, of a thread with user code."""
    answer = await read_stacks(worker, rule, ANSWERING)
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
    """Returns the name of a thread in its program."""
    if thread is None or thread == worker.main_thread:
        return "MainThread"
    body = await worker.connection.client.request("threads", timeout=ANSWERING)
    return next((row.get("name", "") for row in body.get("threads", []) if row["id"] == thread), "")


def _place(frame: Frame) -> Message:
    return {"file": frame.file, "line": frame.line, "function": frame.function}
