"""Describes a failure that a test produces on purpose, with what `diagnose` has to say of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Failure:
    """One failure.

    Attributes:
        name: the submission id of its job, or the name of its pod.
        produced: how it is produced, for the table.
        id: what `diagnose` has to call it.
        what: all of what it has to say, where it tells of that.
        where, why: parts of what it has to say else.
    """

    name: str
    produced: str
    id: str
    what: str
    where: str = ""
    why: str = ""

    def told(self, finding: dict[str, str]) -> bool:
        """Returns whether a finding of `diagnose --json` says this."""
        return (
            finding["id"] == self.id
            and _general(finding["what"]) == _general(self.what)
            and self.where in finding["where"]
            and self.why in finding["why"]
            and bool(finding["hint"])
        )

    def row(self) -> str:
        """Returns its row of the table in docs/internals/diagnose.md."""
        return f"| {self.produced} | `{self.id}` |"


def missed(failures: Iterable[Failure], findings: Sequence[dict[str, Any]]) -> str:
    """Returns which failures no finding tells, with the findings that nothing was expected of."""
    left = [finding for finding in findings if not any(failure.told(finding) for failure in failures)]
    untold = [failure.name for failure in failures if not any(map(failure.told, findings))]
    return json.dumps({"untold": untold, "left": left}, indent=1) if untold else ""


def _general(what: str) -> str:
    """Returns a sentence without how often it happened, which is not the same at any two moments."""
    return re.sub(r"\d+ times", "so many times", what)
