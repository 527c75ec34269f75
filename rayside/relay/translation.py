"""Translation between an editor and debuggees: ids, paths, and `ray` in the debug console.

Ids are found by the name of the field, at any depth, so that requests and events unknown here are translated
as well. Source: https://microsoft.github.io/debug-adapter-protocol/specification
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

# Kinds of ids that are valid only during a stop.
OF_A_STOP: tuple[Kind, ...] = ("frame", "variables", "target")


class UnknownId(KeyError):
    """Unknown id from an editor: it was never assigned, or its stop has ended."""


@dataclass(frozen=True)
class OfAStop:
    """Owner of the ids of a stop: a debuggee and its thread, None if unknown."""

    owner: Hashable
    thread: int | None


class Ids:
    """Maps `(owner, kind, inner)` to a unique `outer` id, from 1 on, and back.

    An owner is a debuggee, or OfAStop; `inner` is the debuggee's id, `outer` the editor's. DAP requires
    references below 2**31: https://microsoft.github.io/debug-adapter-protocol/specification#Types_Variable
    """

    def __init__(self) -> None:
        self._next = itertools.count(1)
        self._inner: dict[int, tuple[Hashable, Kind, int]] = {}
        self._outer: dict[tuple[Hashable, Kind], dict[int, int]] = {}

    def outer(self, owner: Hashable, kind: Kind, inner: int) -> int:
        """Returns the editor's id; assigns a new one the first time."""
        known = self._outer.setdefault((owner, kind), {})
        if inner not in known:
            known[inner] = next(self._next)
            self._inner[known[inner]] = (owner, kind, inner)
        return known[inner]

    def inner(self, outer: object, kind: Kind) -> tuple[Hashable, int]:
        """Returns the owner and its own id. Raises UnknownId."""
        entry = self._inner.get(outer) if isinstance(outer, int) else None
        if entry is None or entry[1] != kind:
            raise UnknownId(outer)
        return entry[0], entry[2]

    def forget(self, owner: Hashable, kinds: tuple[Kind, ...] = (*OF_A_STOP, "thread", "source")) -> None:
        """Forgets the ids of an owner that has ended, or has resumed (`OF_A_STOP`)."""
        for kind in kinds:
            for outer in self._outer.pop((owner, kind), {}).values():
                del self._inner[outer]

    def forget_stop(self, owner: Hashable, thread: int | None) -> None:
        """Forgets the ids of a stop after the owner's thread has resumed."""
        self.forget(OfAStop(owner, thread), OF_A_STOP)


# Fields of requests, responses and events with an id from a debuggee.
_FIELDS: dict[str, Kind] = {
    "threadId": "thread",
    "frameId": "frame",
    "variablesReference": "variables",
    "sourceReference": "source",
    "targetId": "target",
}
# Lists whose members have an `id` for later requests.
_LISTS: dict[str, Kind] = {"stackFrames": "frame", "targets": "target"}


def inward(
    arguments: Message, number: Callable[[object, Kind], tuple[Hashable, int]]
) -> tuple[set[Hashable], Message]:
    """Returns the owners of the ids in an editor's request, and the arguments with the owners' ids.

    Args:
        number: returns the owner of an editor's id, and the owner's own id. Its exceptions are not caught.
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
    """Translates the body of a debuggee's response or event for the editor, in place; returns it.

    Args:
        number: returns the editor's id. A reference of 0 means "none" and stays.
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
    """Returns the requested part of an answer to `variables`: pydevd always sends all of them."""
    first, count = arguments.get("start", 0), arguments.get("count", 0)
    if isinstance(rows := body.get("variables"), list) and (first or count):
        return {**body, "variables": rows[first : first + count if count else None]}
    return body


_ATTRIBUTE = re.compile(rf"\bray\.({'|'.join(NAMES)})\b")
_BEGUN = re.compile(r"(?<![\w.])ray\.(\w*)\Z")


def evaluated(connection: Connection, arguments: Message) -> Message:
    """Returns arguments of `evaluate` for a debuggee, with names such as `ray.task` replaced by our calls."""
    expression = arguments["expression"].strip()
    # An expression that can't be compiled here, or not within bounds, is not changed.
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
    """Restores `ray` in the `evaluateName` of variables, in place of our call."""
    for variable in variables:
        if "evaluateName" in variable:
            variable["evaluateName"] = variable["evaluateName"].replace(CALL, "ray")


async def completed(connection: Connection, arguments: Message, targets: list[Message]) -> list[Message]:
    """Returns the targets of `completions`, after attributes of `ray` if one of these is being typed.

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
    """Translates to the editor's ids and paths; `paths` returns the path mappings of the current editor."""

    def __init__(self, ids: Ids, paths: Callable[[], Paths]) -> None:
        self._ids, self._paths = ids, paths

    def outward(self, owner: Hashable, body: Message, thread: int | None = None) -> Message:
        """Translates a debuggee's response or event to the editor's ids and paths, in place; returns it."""

        def number(kind: Kind, inner: int) -> int:
            return self._ids.outer(OfAStop(owner, thread) if kind in OF_A_STOP else owner, kind, inner)

        def source(document: Message) -> None:
            path = document.get("path")
            local = self._paths().local(path) if path else None
            if local is not None:
                # The editor gets its own file, which it can edit, instead of the debuggee's text.
                document["path"] = local
                document["sourceReference"] = 0
            elif path and not document.get("sourceReference"):
                # Without a reference the editor would open its own file with this path.
                document["sourceReference"] = number("source", 0)

        return outward(body, number, source)
