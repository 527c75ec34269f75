"""Variables in a capsule, summarized and masked as in the debugger."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from types import FrameType, FunctionType, MethodType, ModuleType
from typing import Any

from .evaluated import secret_values, shown, summary
from .redaction import REDACTED, Redactor
from .secret_names import USUAL, SecretNames

# Limits: items of a value, and their depth; characters of all values, and of a name.
MOST_ITEMS, DEEPEST = 20, 2
_LONGEST_IN_ALL, LONGEST_NAME = 1_000_000, 200
# Seconds after which values are no longer measured.
_MEASURING = 5.0
# The values of these types are seldom secrets, whatever their name.
_PLAIN = (int, float, bool, complex, type(None))
NO_VARIABLES = (ModuleType, FunctionType, MethodType, type)


class Masks:
    """Summaries of values without secrets.

    Args:
        names, values: the settings `masked_names` and `masked_values`.
        frames: frames whose secret values are masked wherever they appear.
    """

    def __init__(self, names: str, values: str, frames: list[FrameType]) -> None:
        rule = f"{USUAL},{names}"
        self.is_on = names.strip().lower() != "none"
        self.secret = SecretNames(rule)
        self.known = json.loads(secret_values.values(rule, frames)) if self.is_on else []
        self.redactor = Redactor(self.known, is_secret=self.secret.include, quoted_only=True)
        self._pattern = re.compile(values) if values else None
        self._until, self._room = time.monotonic() + _MEASURING, _LONGEST_IN_ALL

    def text(self, text: str) -> str:
        if self.is_on:
            text = self.redactor.text(text)
            text = self._pattern.sub(REDACTED, text) if self._pattern else text
        self._room -= len(text)
        return text

    def name(self, name: str) -> str:
        return self.text(name[:LONGEST_NAME])

    def variables(self, values: Mapping[str, Any], most: int) -> list[dict[str, Any]]:
        some = list(values.items())[:most]
        left_out = {"name": "...", "value": f"{len(values) - most} more", "type": ""}
        return [*(self.variable(*each) for each in some), *([left_out] if len(values) > most else [])]

    def variable(self, name: str, value: Any, depth: int = 0) -> dict[str, Any]:
        """Returns `name`, `type`, `value` and, if applicable, `items`, `size`, `shape`, `nan` ..."""
        kind = shown.name_of(type(value))[:LONGEST_NAME]
        row: dict[str, Any] = {"name": self.name(str(name)), "type": kind}
        bare = str(name).strip("\"' ")
        is_plain = issubclass(type(value), _PLAIN) and not self.secret.are_added(bare)
        if self.is_on and self.secret.include(bare) and not is_plain:
            return {**row, "value": REDACTED}
        if self._room <= 0:
            return {**row, "value": "(left out: there is no more room)"}
        if time.monotonic() < self._until:
            about = summary.summed_up(value, self.redactor)
            more = {key: about[key] for key in about if key not in ("kind", "type", "shown", "digest")}
            text = about["shown"] or shown.described(value, shown.LONGEST, 0, self.redactor)
        else:
            more, text = {}, shown.shown(value, 0, self.redactor)
        row |= {"value": self.text(text), **more}
        if depth < DEEPEST and (items := list(_items(value))):
            row["items"] = [self.variable(inner, item, depth + 1) for inner, item in items[:MOST_ITEMS]]
        return row


def _items(value: Any) -> Iterator[tuple[str, Any]]:
    """Yields the items of a container or an object's attributes, without running the user's code."""
    if (container := shown.container_of(value)) is not None:
        if container[0] is dict:
            for place, (key, item) in enumerate(dict.items(value)):
                if place < MOST_ITEMS:
                    yield key if type(key) is str else shown.shown(key, 1), item
        elif container[0] in (list, tuple):
            yield from ((str(place), item) for place, item in enumerate(value[:MOST_ITEMS]))
    elif not issubclass(type(value), (*NO_VARIABLES, *_PLAIN, str, bytes)):
        with suppress(Exception):
            yield from list(object.__getattribute__(value, "__dict__").items())[:MOST_ITEMS]
