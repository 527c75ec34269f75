"""Sanitizer of all text from a cluster: it limits sizes, and removes secrets and terminal escape sequences.

Names, messages and logs are untrusted: they may be huge, deeply nested, or contain commands for a terminal.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import islice
from typing import Any

from rayside import plain
from rayside.worker.redaction import Redactor
from rayside.worker.secret_names import may_be_secret_name

# Characters that are kept at the beginning and the end of a text, and at either end of a log's line.
_HEAD, _TAIL, _OF_LINE = 4_000, 12_000, 4_000
# Characters that are kept at the end of a log: 400 lines of 150.
LOG_TAIL = 60_000
# Limits: rows of a table or fields of an object, nested levels, and characters of a document.
MOST_ROWS, _DEEPEST, _MOST = 2_000, 24, 20_000_000
# Limits of the search for secrets before a text is cut: characters of a text, and of a whole document.
_LOOKED_AT, _MOST_LOOKED_AT = 200_000, 2_000_000
_CUT = "\n[...]\n"
_LONG_LINE = re.compile(rf"[^\n]{{{2 * _OF_LINE + len(_CUT) + 1},}}")


class Log(str):
    """The end of a log, cleaned and bounded by `log`."""


class Cleaning:
    """Sanitizer of one document; `left`: characters that it may still have, 0 or less once some are cut."""

    def __init__(self) -> None:
        self.left, self._looked_at = _MOST, 0

    def document(self, value: Any, depth: int = 0) -> Any:
        if isinstance(value, str):
            self.left -= min(len(value), _HEAD + _TAIL)
            if self.left <= 0 or isinstance(value, Log):
                return value if isinstance(value, Log) else "[...]"
            return self._text(value)
        if isinstance(value, Mapping | list) and (depth == _DEEPEST or self.left <= 0):
            return "[...]"
        if isinstance(value, Mapping):
            items = islice(value.items(), MOST_ROWS)
            return {self.document(str(key)): self.document(item, depth + 1) for key, item in items}
        if isinstance(value, list):
            return [self.document(item, depth + 1) for item in value[:MOST_ROWS]]
        return value

    def _text(self, value: str) -> str:
        if len(value) > _HEAD + _TAIL + len(_CUT):
            self._looked_at += min(len(value), _LOOKED_AT)
            # The end that is kept may begin within a secret whose name is cut off.
            value = _cut(value, _HEAD, _TAIL if self._looked_at <= _MOST_LOOKED_AT else 0)
        return plain.printed(value)


def document(value: Any) -> Any:
    return Cleaning().document(value)


def log(value: str) -> Log:
    """Returns the end of a log, whole lines of it, without escape sequences and control characters."""
    if len(value) > LOG_TAIL:
        value = _LONG_LINE.sub(lambda line: _cut(line[0], _OF_LINE, _OF_LINE).replace("\n", " "), value)
    if len(value) > LOG_TAIL:
        value = value[-LOG_TAIL:].partition("\n")[2]
    return Log(plain.printed(value))


def _cut(value: str, head: int, tail: int) -> str:
    """Returns a long text without its middle, and without secrets, whose names may be in the middle."""
    if tail:
        value = value[: _LOOKED_AT // 2] + value[-_LOOKED_AT // 2 :] if len(value) > _LOOKED_AT else value
        value = Redactor([], is_secret=may_be_secret_name).document(value)
    if len(value) <= head + tail:
        return value
    return value[:head] + _CUT + (value[-tail:] if tail else "")
