"""Schemas of DAP messages: field types with bounds, and the arguments that editors' requests may have.

Texts from debuggees are made safe to show (`rayside.plain`), and cut at their bound.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from rayside import plain
from rayside.dap.expressions import LONGEST
from rayside.dap.framing import Message
from rayside.dap.group_commands import ACTIONS, MEMBERS, MOST_RETRYING, MOST_WITHIN

# DAP's largest number for an editor.
LARGEST = 2**31 - 1


class NotDap(ValueError):
    """Invalid value in a DAP message; the text names its place and the expected type."""


class Refused(Exception):
    """Error response to a request, with its reason, and `ray` as data for programs."""

    def __init__(self, reason: str, ray: Message | None = None) -> None:
        super().__init__(reason)
        self.ray = ray


class Rule(Protocol):
    """Schema of one place in a message."""

    def take(self, value: object, place: str) -> Any:
        """Returns the value, rebuilt. Raises NotDap."""


@dataclass(frozen=True)
class Flag:
    def take(self, value: object, place: str) -> bool:
        if not isinstance(value, bool):
            raise NotDap(f"`{place}` has to be true or false")
        return value


@dataclass(frozen=True)
class Number:
    least: int = 0
    most: int = LARGEST

    def take(self, value: object, place: str) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not self.least <= value <= self.most:
            raise NotDap(f"`{place}` has to be a number from {self.least} to {self.most}")
        return value


@dataclass(frozen=True)
class Real:
    """Finite number: JSON has no others."""

    def take(self, value: object, place: str) -> float:
        if isinstance(value, int | float) and not isinstance(value, bool):
            with suppress(OverflowError):
                number = value if isinstance(value, int) and abs(value) < 2**53 else float(value)
                if math.isfinite(number):
                    return number
        raise NotDap(f"`{place}` has to be a finite number")


@dataclass(frozen=True)
class Choice:
    """One of DAP's keywords."""

    words: frozenset[str]

    def take(self, value: object, place: str) -> str:
        if not isinstance(value, str) or value not in self.words:
            raise NotDap(f"`{place}` has to be one of {', '.join(sorted(self.words))}")
        return value


@dataclass(frozen=True)
class Text:
    """Text for people: made safe to show, cut at `most` characters, in one line unless `lines`.

    Attributes:
        until: a marker; the text is cut there.
    """

    most: int
    lines: bool = False
    until: str = ""

    def take(self, value: object, place: str) -> str:
        value = _string(value, place)
        if self.until:
            value = value.partition(self.until)[0]
        if not self.lines:
            return plain.line(value, self.most)
        return plain.plain(value if len(value) <= self.most else f"{value[: self.most]}...")


@dataclass(frozen=True)
class Printed:
    """Output of a program: escape sequences are removed."""

    most: int

    def take(self, value: object, place: str) -> str:
        value = _string(value, place)
        return plain.printed(value if len(value) <= self.most else f"{value[: self.most]}...\n")


@dataclass(frozen=True)
class Exact:
    """Text for programs, unchanged: within its bound and, unless `trusted`, safe to show."""

    most: int
    trusted: bool = False

    def take(self, value: object, place: str) -> str:
        value = _string(value, place)
        if len(value) > self.most or not (self.trusted or plain.plain(value) == value):
            raise NotDap(f"`{place}` has to be a text of at most {self.most} characters")
        return value


@dataclass(frozen=True)
class Many:
    """List, cut at `most`; an invalid member is left out, or replaced by `gap` if positions matter."""

    rule: Rule
    most: int
    gap: object = None

    def take(self, value: object, place: str) -> list[Any]:
        if not isinstance(value, list):
            raise NotDap(f"`{place}` has to be a list")
        taken = []
        for member in value[: self.most]:
            try:
                taken.append(self.rule.take(member, f"{place}[]"))
            except NotDap:
                if self.gap is not None:
                    taken.append(self.gap)
        return taken


@dataclass(frozen=True)
class All(Many):
    """List from an editor: refused if it is too long, or has an invalid member."""

    def take(self, value: object, place: str) -> list[Any]:
        if not isinstance(value, list) or len(value) > self.most:
            raise NotDap(f"`{place}` has to be a list of at most {self.most}")
        return [self.rule.take(member, f"{place}[{n}]") for n, member in enumerate(value)]


@dataclass(frozen=True)
class Record:
    """Object with the required fields `needs`.

    Attributes:
        strict: whether an invalid field refuses the object, instead of being left out.
    """

    fields: Mapping[str, Rule] = field(default_factory=dict)
    needs: frozenset[str] = frozenset()
    strict: bool = False

    def take(self, value: object, place: str) -> Message:
        if not isinstance(value, dict):
            raise NotDap(f"`{place}` has to be an object")
        taken: Message = {}
        for name, rule in self.fields.items():
            if value.get(name) is None:
                continue
            try:
                taken[name] = rule.take(value[name], f"{place}.{name}" if place else name)
            except NotDap:
                if self.strict or name in self.needs:
                    raise
        if missing := sorted(self.needs - set(taken)):
            raise NotDap(f"`{place}.{missing[0]}` is missing" if place else f"`{missing[0]}` is missing")
        return taken


def _string(value: object, place: str) -> str:
    if not isinstance(value, str):
        raise NotDap(f"`{place}` has to be a text")
    return value


def choice(words: str) -> Choice:
    """Returns the schema for one of these words, separated by spaces."""
    return Choice(frozenset(words.split()))


def record(*needs: str, **fields: Rule) -> Record:
    """Returns the schema of an object with these fields; those in `needs` are required."""
    return Record(fields, frozenset(needs))


_FLAG, _NUMBER = Flag(), Number()


def _arguments(*needs: str, **fields: Rule) -> Record:
    return Record(fields, frozenset(needs), strict=True)


_TEXT, _CODE = Exact(4_096, trusted=True), Exact(1_000_000, trusted=True)
_FORMAT = _arguments(
    hex=_FLAG,
    **dict.fromkeys(
        ("parameters", "parameterTypes", "parameterNames", "parameterValues", "line", "module", "includeAll"),
        _FLAG,
    ),
)
_OF_EDITOR = _arguments(
    name=_TEXT,
    path=_TEXT,
    sourceReference=_NUMBER,
    checksums=All(_arguments(algorithm=_TEXT, checksum=_TEXT), 10),
)
_THREAD: dict[str, Rule] = {"threadId": _NUMBER, "singleThread": _FLAG}
_STEP: dict[str, Rule] = {**_THREAD, "granularity": choice("statement line instruction")}
# Edited files: each is bounded here, and their sum by the limit of a request.
_FILES = All(_arguments("path", "text", path=_TEXT, text=_CODE), 1_000)
_CONDITIONS: dict[str, Rule] = {"condition": _CODE, "hitCondition": _TEXT}

# Schemas of requests' arguments, by command. Other requests are never forwarded to a debuggee.
REQUESTS: dict[str, Record] = {
    "breakpointLocations": _arguments(
        "source",
        "line",
        source=_OF_EDITOR,
        **dict.fromkeys(("line", "column", "endLine", "endColumn"), _NUMBER),
    ),
    "cancel": _arguments(requestId=_NUMBER),
    "completions": _arguments("text", "column", frameId=_NUMBER, text=_CODE, column=_NUMBER, line=_NUMBER),
    "continue": _arguments("threadId", **_THREAD),
    "evaluate": _arguments("expression", expression=_CODE, frameId=_NUMBER, context=_TEXT, format=_FORMAT),
    "exceptionInfo": _arguments("threadId", threadId=_NUMBER),
    "goto": _arguments("threadId", "targetId", threadId=_NUMBER, targetId=_NUMBER),
    "gotoTargets": _arguments("source", "line", source=_OF_EDITOR, line=_NUMBER, column=_NUMBER),
    "next": _arguments("threadId", **_STEP),
    "pause": _arguments("threadId", threadId=_NUMBER),
    "scopes": _arguments("frameId", frameId=_NUMBER),
    "setExpression": _arguments(
        "expression", "value", expression=_CODE, value=_CODE, frameId=_NUMBER, format=_FORMAT
    ),
    "setVariable": _arguments(
        "variablesReference",
        "name",
        "value",
        variablesReference=_NUMBER,
        name=_CODE,
        value=_CODE,
        format=_FORMAT,
    ),
    "source": _arguments(source=_OF_EDITOR, sourceReference=_NUMBER),
    "stackTrace": _arguments(
        "threadId", threadId=_NUMBER, startFrame=_NUMBER, levels=_NUMBER, format=_FORMAT
    ),
    "stepIn": _arguments("threadId", targetId=_NUMBER, **_STEP),
    "stepInTargets": _arguments("frameId", frameId=_NUMBER),
    "stepOut": _arguments("threadId", **_STEP),
    "variables": _arguments(
        "variablesReference",
        variablesReference=_NUMBER,
        filter=choice("indexed named"),
        start=_NUMBER,
        count=_NUMBER,
        format=_FORMAT,
    ),
    # Requests of the relay's own.
    "edits": _arguments(files=_FILES),
    "restartFrame": _arguments("frameId", frameId=_NUMBER),
    "retry": _arguments(
        group=Exact(LONGEST, trusted=True),
        task=_TEXT,
        files=_FILES,
        threadId=_NUMBER,
        within=Number(1, MOST_RETRYING),
        **dict.fromkeys(("hereOnly", "fromStart", "asTheyAre"), _FLAG),
    ),
    "sources": _arguments(),
    "group": _arguments(
        *("group", "action"),
        group=Exact(LONGEST, trusted=True),
        action=choice(" ".join([*ACTIONS.values(), MEMBERS])),
        within=Number(1, MOST_WITHIN),
    ),
    # Breakpoints and filters: the relay keeps them, and sets them in each debuggee.
    "setBreakpoints": _arguments(
        "source",
        source=_OF_EDITOR,
        breakpoints=All(
            _arguments("line", line=_NUMBER, column=_NUMBER, logMessage=_CODE, **_CONDITIONS), 10_000
        ),
        lines=All(_NUMBER, 10_000),
        sourceModified=_FLAG,
    ),
    "setExceptionBreakpoints": _arguments(
        filters=All(_TEXT, 100),
        filterOptions=All(_arguments("filterId", filterId=_TEXT, condition=_CODE), 100),
        exceptionOptions=All(
            _arguments(
                path=All(_arguments(negate=_FLAG, names=All(_TEXT, 1_000)), 100),
                breakMode=choice("never always unhandled userUnhandled"),
            ),
            100,
        ),
    ),
    "setFunctionBreakpoints": _arguments(
        breakpoints=All(_arguments("name", name=_TEXT, **_CONDITIONS), 10_000)
    ),
}


def arguments_of(command: str, arguments: Message) -> Message | None:
    """Rebuilds an editor's arguments; None if the request is not in REQUESTS.

    Raises:
        NotDap: an argument has an invalid value.
    """
    rule = REQUESTS.get(command)
    return rule.take(arguments, "") if rule is not None else None
