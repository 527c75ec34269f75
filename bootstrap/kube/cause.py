"""Defines how a cause is recognised by the words of Kubernetes or of a program: by a table of patterns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar


@dataclass(frozen=True)
class Cause:
    """Why something failed, as the end of a sentence, and the one thing to do.

    `why` is empty where the words themselves say it best.
    """

    name: str
    why: str
    hint: str


Table = Sequence[tuple[str, Cause]]
Otherwise = TypeVar("Otherwise", Cause, None)


def first(table: Table, words: str, otherwise: Otherwise) -> Cause | Otherwise:
    """Returns the first cause whose pattern is in the words, in whatever case, or `otherwise`."""
    found = (cause for pattern, cause in table if re.search(pattern, words, re.IGNORECASE))
    return next(found, otherwise)
