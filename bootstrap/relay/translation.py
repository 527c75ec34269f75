"""Translates the numbers and paths in DAP's messages.

It finds them by the name of the field, wherever that is, so that requests and events unknown here are
translated as well. Source: https://microsoft.github.io/debug-adapter-protocol/specification
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from bootstrap.dap.framing import Message
from bootstrap.relay.ids import Kind

# Arguments of requests that say which debuggee is meant.
_ARGUMENTS: dict[str, Kind] = {
    "threadId": "thread",
    "frameId": "frame",
    "variablesReference": "variables",
    "sourceReference": "source",
    "targetId": "target",
}
# Fields of responses and events.
_FIELDS: dict[str, Kind] = {
    "threadId": "thread",
    "frameId": "frame",
    "variablesReference": "variables",
    "sourceReference": "source",
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
        for name, kind in _ARGUMENTS.items():
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
    while todo:
        at = todo.pop()
        if isinstance(at, list):
            todo += at
            continue
        if not isinstance(at, dict):
            continue
        for name, value in at.items():
            if isinstance(value, dict | list):
                todo.append(value)
            elif (kind := _FIELDS.get(name)) and isinstance(value, int) and value > 0:
                at[name] = number(kind, value)
            if (kind := _LISTS.get(name)) and isinstance(value, list):
                for member in value:
                    if isinstance(member, dict) and isinstance(member.get("id"), int):
                        member["id"] = number(kind, member["id"])
    for document in _sources(body):
        source(document)
    return body


def _sources(body: Message) -> list[Message]:
    sources: list[Message] = []
    todo: list[Any] = [body]
    while todo:
        at = todo.pop()
        if isinstance(at, list):
            todo += at
        elif isinstance(at, dict):
            if isinstance(at.get("source"), dict):
                sources.append(at["source"])
            todo += at.values()
    return sources


def page(arguments: Message, body: Message) -> Message:
    """Returns the answer to `variables` with what was asked for: pydevd sends all, whatever was."""
    first, count = arguments.get("start", 0), arguments.get("count", 0)
    if isinstance(rows := body.get("variables"), list) and (first or count):
        return {**body, "variables": rows[first : first + count if count else None]}
    return body
