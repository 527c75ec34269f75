"""Translation between an editor and debuggees: numbers, paths, and `ray` in the debug console.

Numbers are found by the name of the field, wherever that is, so that requests and events unknown here are
translated as well. Source: https://microsoft.github.io/debug-adapter-protocol/specification
"""

from __future__ import annotations

import ast
import itertools
import re
import warnings
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Literal

from rayside.dap.expressions import may_be_compiled
from rayside.dap.framing import Message
from rayside.relay.connection import Connection, call
from rayside.relay.source_files import Paths
from rayside.worker.evaluated.scope import CALL, NAMES, is_named, is_scope, with_scope

Kind = Literal["thread", "frame", "variables", "source", "target"]

# Numbers of these kinds mean something only while the debuggee is stopped.
OF_A_STOP: tuple[Kind, ...] = ("frame", "variables", "target")


class UnknownId(KeyError):
    """The editor named a number that it was never given, or that has ended with its stop."""


@dataclass(frozen=True)
class OfAStop:
    """Owns the numbers of a stop: a debuggee and its thread, None where no thread was named."""

    owner: Hashable
    thread: int | None


class Ids:
    """Maps `(owner, kind, inner)` to `outer`, a number from 1 on that is given once, and back.

    An owner is a debuggee, `inner` its own number; `outer` is what the editor sees. DAP wants
    references below 2**31: https://microsoft.github.io/debug-adapter-protocol/specification#Types_Variable
    """

    def __init__(self) -> None:
        self._next = itertools.count(1)
        self._inner: dict[int, tuple[Hashable, Kind, int]] = {}
        self._outer: dict[tuple[Hashable, Kind], dict[int, int]] = {}

    def outer(self, owner: Hashable, kind: Kind, inner: int) -> int:
        """Returns the editor's number, a new one the first time."""
        known = self._outer.setdefault((owner, kind), {})
        if inner not in known:
            known[inner] = next(self._next)
            self._inner[known[inner]] = (owner, kind, inner)
        return known[inner]

    def inner(self, outer: object, kind: Kind) -> tuple[Hashable, int]:
        """Returns the owner and its own number. Raises UnknownId."""
        entry = self._inner.get(outer) if isinstance(outer, int) else None
        if entry is None or entry[1] != kind:
            raise UnknownId(outer)
        return entry[0], entry[2]

    def forget(self, owner: Hashable, kinds: tuple[Kind, ...] = (*OF_A_STOP, "thread", "source")) -> None:
        """Forgets the numbers of an owner that has ended, or has resumed (`OF_A_STOP`)."""
        for kind in kinds:
            for outer in self._outer.pop((owner, kind), {}).values():
                del self._inner[outer]

    def forget_stop(self, owner: Hashable, thread: int | None) -> None:
        """Forgets the numbers of a stop once that thread of the owner has resumed."""
        self.forget(OfAStop(owner, thread), OF_A_STOP)


# Fields of requests, responses and events that have a number which a debuggee gave.
_FIELDS: dict[str, Kind] = {
    "threadId": "thread",
    "frameId": "frame",
    "variablesReference": "variables",
    "sourceReference": "source",
    "targetId": "target",
}
# Lists whose members have an `id` that requests then name.
_LISTS: dict[str, Kind] = {"stackFrames": "frame", "targets": "target"}


def inward(
    arguments: Message, number: Callable[[object, Kind], tuple[Hashable, int]]
) -> tuple[set[Hashable], Message]:
    """Returns the owners of what an editor's request names, and the arguments with the owners' numbers.

    Args:
        number: returns the owner of an editor's number, and its own number. What it raises passes.
    """
    inner, owners = dict(arguments), set()
    places = [inner]
    if isinstance(inner.get("source"), dict):
        inner["source"] = dict(inner["source"])
        places.append(inner["source"])
    for place in places:
        for name, kind in _FIELDS.items():
            if place.get(name):
                owner, place[name] = number(place[name], kind)
                owners.add(owner)
    return owners, inner


def outward(body: Message, number: Callable[[Kind, int], int], source: Callable[[Message], None]) -> Message:
    """Makes a debuggee's response or event body the editor's, in place; returns it.

    Args:
        number: returns the editor's number. A reference of 0 means "none" and stays.
        source: changes a DAP Source in place, after its reference was translated.
    """
    todo: list[Any] = [body]
    sources: list[Message] = []
    while todo:
        at = todo.pop()
        if isinstance(at, list):
            todo += at
            continue
        if not isinstance(at, dict):
            continue
        if isinstance(at.get("source"), dict):
            sources.append(at["source"])
        for name, value in at.items():
            if isinstance(value, dict | list):
                todo.append(value)
            elif (kind := _FIELDS.get(name)) and isinstance(value, int) and value > 0:
                at[name] = number(kind, value)
            if (kind := _LISTS.get(name)) and isinstance(value, list):
                for member in value:
                    if isinstance(member, dict) and isinstance(member.get("id"), int):
                        member["id"] = number(kind, member["id"])
    for document in sources:
        source(document)
    return body


def page(arguments: Message, body: Message) -> Message:
    """Returns the answer to `variables` with what was asked for: pydevd sends all, whatever was."""
    first, count = arguments.get("start", 0), arguments.get("count", 0)
    if isinstance(rows := body.get("variables"), list) and (first or count):
        return {**body, "variables": rows[first : first + count if count else None]}
    return body


_ATTRIBUTE = re.compile(rf"\bray\.({'|'.join(NAMES)})\b")
_BEGUN = re.compile(r"(?<![\w.])ray\.(\w*)\Z")


def evaluated(connection: Connection, arguments: Message) -> Message:
    """Returns the arguments of an `evaluate` for a debuggee: one of ours has it compute `ray.task`, say."""
    expression = arguments["expression"].strip()
    # What can't be compiled here, or not within bounds, is evaluated as it is.
    if not _ATTRIBUTE.search(expression) or not may_be_compiled(expression) or not connection.has_package:
        return arguments
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(expression, mode="eval")
        if not is_named(tree):
            return arguments
        expression = ast.unparse(with_scope(tree))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return arguments
    return {**arguments, "expression": expression}


def as_typed(variables: list[Message]) -> None:
    """Gives variables the names that users evaluate them by, in place: without the call of ours."""
    for variable in variables:
        if "evaluateName" in variable:
            variable["evaluateName"] = variable["evaluateName"].replace(CALL, "ray")


async def completed(connection: Connection, arguments: Message, targets: list[Message]) -> list[Message]:
    """Returns the targets of `completions` with the attributes of `ray` before them, where those are begun.

    Raises RequestFailed, DebuggerGone.
    """
    lines = arguments["text"].split("\n")
    line = arguments.get("line", 1) - 1
    begun = lines[line][: arguments["column"] - 1] if 0 <= line < len(lines) else ""
    prefix = _BEGUN.search(begun)
    names = [name for name in NAMES if prefix is not None and name.startswith(prefix[1])]
    if prefix is None or not names or not connection.has_package:
        return targets
    if await connection.literal(call(is_scope), arguments.get("frameId")) is not True:
        return targets
    place = {"start": prefix.start(1), "length": len(prefix[1])}
    ours = [{"label": name, "type": "property", "detail": "of the task", **place} for name in names]
    return [*ours, *(target for target in targets if target.get("label") not in names)]


class Translator:
    """Translates to the editor's numbers and paths; `paths` returns the paths of the current editor."""

    def __init__(self, ids: Ids, paths: Callable[[], Paths]) -> None:
        self._ids, self._paths = ids, paths

    def outward(self, owner: Hashable, body: Message, thread: int | None = None) -> Message:
        """Gives a debuggee's response or event the editor's numbers and paths, in place; returns it."""

        def number(kind: Kind, inner: int) -> int:
            return self._ids.outer(OfAStop(owner, thread) if kind in OF_A_STOP else owner, kind, inner)

        def source(document: Message) -> None:
            path = document.get("path")
            local = self._paths().local(path) if path else None
            if local is not None:
                # The editor gets its own file, which it can edit, rather than the text that the debuggee has.
                document["path"] = local
                document["sourceReference"] = 0
            elif path and not document.get("sourceReference"):
                # Without a number the editor would open a file of its own that has this path.
                document["sourceReference"] = number("source", 0)

        return outward(body, number, source)
