"""Defines what a diagnosis finds: what, where, why and the one next thing to do, in words."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum

from rayside import plain

# A sentence of a finding may have so many characters: exceptions quote whole data sets.
_LONGEST = 700


class Weight(IntEnum):
    """Orders findings: what makes others fail comes first."""

    CLUSTER = 0  # Ray, or a node of it, is not there.
    POD = 1
    FAILED = 2  # A job has failed.
    STUCK = 3  # A job can't go on by itself.
    PART_FAILED = 4  # A task or an actor of a job that goes on, or ended well.
    WAITING = 5  # It goes on by itself, or when somebody lets it.
    PAST = 6
    QUIET = 9


@dataclass(frozen=True)
class Finding:
    """One thing that ended or is stuck.

    Attributes:
        id: a stable name for programs, as in `task-out-of-memory`.
        what, where, why: a sentence each, in one line; `where` and `why` may be empty.
        hint: the one next thing to do, a command where there is one.
        weight: how much it matters; among equals the latest, by `at` in seconds since 1970, comes first.
        job: the submission id, or Ray's own id, of the job that it is about; empty where it is about none.
        pod: the name of the pod that it is about.
    """

    id: str
    what: str
    where: str
    why: str
    hint: str
    weight: Weight
    at: float = 0.0
    job: str = ""
    pod: str = ""

    def __post_init__(self) -> None:
        # Names of jobs and pods stand in each of them, and what has lines of its own would look like ours.
        for name in ("what", "where", "why", "hint"):
            object.__setattr__(self, name, plain.line(getattr(self, name), 2 * _LONGEST))

    def document(self) -> dict[str, str]:
        """Returns it as `diagnose --json` shows it."""
        return {"id": self.id, "what": self.what, "where": self.where, "why": self.why, "hint": self.hint}


def sentence(text: str) -> str:
    """Returns a stranger's text as part of a sentence: one line, bounded, nothing in it that commands."""
    return plain.line(re.sub(r"\s+", " ", text).strip(), _LONGEST)
