"""Checks what is in one place of a DAP message, and builds it anew with a bound.

Texts of debuggees are made safe to show (`bootstrap.plain`), and cut at their bound.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from bootstrap import plain
from bootstrap.dap.framing import Message

# The largest number that DAP lets an editor see.
LARGEST = 2**31 - 1


class NotDap(ValueError):
    """Says that DAP does not have such a value in this place: where, and what it has to be."""


class Rule(Protocol):
    """Says what may be in one place."""

    def take(self, value: object, place: str) -> Any:
        """Returns the value, built anew. Raises NotDap."""


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
    """Takes a finite number: JSON that editors read has no others."""

    def take(self, value: object, place: str) -> float:
        if isinstance(value, int | float) and not isinstance(value, bool):
            with suppress(OverflowError):
                number = value if isinstance(value, int) and abs(value) < 2**53 else float(value)
                if math.isfinite(number):
                    return number
        raise NotDap(f"`{place}` has to be a finite number")


@dataclass(frozen=True)
class Choice:
    """Takes one of DAP's own words."""

    words: frozenset[str]

    def take(self, value: object, place: str) -> str:
        if not isinstance(value, str) or value not in self.words:
            raise NotDap(f"`{place}` has to be one of {', '.join(sorted(self.words))}")
        return value


@dataclass(frozen=True)
class Text:
    """Makes a text for people: safe to show, cut at `most` characters, in one line but with `lines`.

    Attributes:
        until: a mark; from there on the text is left out.
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
    """Takes what a program printed: without any escape sequence."""

    most: int

    def take(self, value: object, place: str) -> str:
        value = _string(value, place)
        return plain.printed(value if len(value) <= self.most else f"{value[: self.most]}...\n")


@dataclass(frozen=True)
class Exact:
    """Takes a text for programs as it is: within its bound and, where a debuggee sent it, safe to show."""

    most: int
    trusted: bool = False

    def take(self, value: object, place: str) -> str:
        value = _string(value, place)
        if len(value) > self.most or not (self.trusted or plain.plain(value) == value):
            raise NotDap(f"`{place}` has to be a text of at most {self.most} characters")
        return value


@dataclass(frozen=True)
class Many:
    """Takes a list, cut at `most`; a wrong member is left out, or becomes `gap` where the place counts."""

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
    """Takes an editor's list: one that is too long, or has something wrong in it, is refused."""

    def take(self, value: object, place: str) -> list[Any]:
        if not isinstance(value, list) or len(value) > self.most:
            raise NotDap(f"`{place}` has to be a list of at most {self.most}")
        return [self.rule.take(member, f"{place}[{n}]") for n, member in enumerate(value)]


@dataclass(frozen=True)
class Record:
    """Takes an object, which has to have the fields of `needs`.

    Attributes:
        strict: whether one wrong field refuses the object, instead of being left out.
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
    """Takes one of these words, which spaces part."""
    return Choice(frozenset(words.split()))


def record(*needs: str, **fields: Rule) -> Record:
    """Takes these fields, of which it needs some."""
    return Record(fields, frozenset(needs))
