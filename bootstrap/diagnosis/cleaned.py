"""Cleans and bounds, as the one place for it, all that a cluster says before anybody reads it.

Names, messages and logs come from whoever runs code there: they may be huge, deeply nested, or made to
command a terminal.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bootstrap import plain

# A text keeps so many characters of its beginning and of its end.
_HEAD, _TAIL = 4_000, 12_000
# A log keeps so many characters of its end: 400 lines of 150.
LOG_TAIL = 60_000
# A table keeps so many rows, and an object so many levels.
MOST_ROWS, _DEEPEST = 2_000, 24
_CUT = "\n[...]\n"


class Log(str):
    """The end of a log, cleaned and bounded by `log`."""


def document(value: Any, depth: int = 0) -> Any:
    """Returns a JSON value with each text in it cleaned and bounded, names of fields too."""
    if isinstance(value, str):
        return value if isinstance(value, Log) else text(value)
    if isinstance(value, Mapping | list) and depth == _DEEPEST:
        return "[...]"
    if isinstance(value, Mapping):
        return {text(str(key)): document(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list):
        return [document(item, depth + 1) for item in value[:MOST_ROWS]]
    return value


def text(value: str) -> str:
    """Returns the text without escape sequences and control characters, its middle left out if it is long."""
    if len(value) > _HEAD + _TAIL + len(_CUT):
        value = value[:_HEAD] + _CUT + value[-_TAIL:]
    return plain.printed(value)


def log(value: str) -> Log:
    """Returns the end of a log, whole lines of it, without escape sequences and control characters."""
    if len(value) > LOG_TAIL:
        value = value[-LOG_TAIL:].partition("\n")[2]
    return Log(plain.printed(value))
