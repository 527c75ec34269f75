"""Reads DAP's hitCondition: how often a breakpoint has to be reached, in all of the cluster, to stop."""

from __future__ import annotations

import re
from dataclasses import dataclass

_FORM = re.compile(r"\s*(==|>=|<=|>|<|%)?\s*([0-9]{1,9})\s*")
_GATHER = re.compile(r"\s*gather\s+([0-9]{1,4})(?:\s+within\s+([0-9]{1,3})\s*s?)?\s*")
# So many seconds at most are waited for all who are gathered, if no number is given.
WITHIN = 60
FORMS = (
    "a number, or one after ==, >=, >, <=, < or %; `first`; or `gather N`, of 2 or more,"
    " which `within S` seconds may follow"
)


@dataclass(frozen=True)
class HitCondition:
    """Compares as debugpy does: `5` is the fifth hit, `>= 5` that and all that follow, `% 5` each fifth.

    `first` is the first hit alone.
    """

    operator: str
    number: int

    @classmethod
    def of(cls, text: str) -> HitCondition | None:
        """Reads a hitCondition; returns None where it is no count."""
        if text.strip() == "first":
            return cls("==", 1)
        form = _FORM.fullmatch(text)
        if form is None or (form[1] == "%" and not int(form[2])):
            return None
        return cls(form[1] or "==", int(form[2]))

    def holds(self, hits: int) -> bool:
        """Returns whether it stops with that hit, counted from 1."""
        return {
            "==": hits == self.number,
            ">=": hits >= self.number,
            "<=": hits <= self.number,
            ">": hits > self.number,
            "<": hits < self.number,
            "%": self.operator == "%" and hits % self.number == 0,
        }[self.operator]

    def is_settled(self, hits: int) -> bool:
        """Returns whether all later hits do what that one did, so that they need not be counted any more."""
        return self.operator != "%" and hits >= self.number and self.holds(hits) == self.holds(hits + 1)


@dataclass(frozen=True)
class Gather:
    """Has threads wait until so many have come, or so many seconds have passed; then all of them stop."""

    number: int
    seconds: int

    @classmethod
    def of(cls, text: str) -> Gather | None:
        """Reads a hitCondition; returns None where it gathers nobody."""
        form = _GATHER.fullmatch(text)
        if form is None or int(form[1]) < 2 or (form[2] is not None and not int(form[2])):
            return None
        return cls(int(form[1]), int(form[2] or WITHIN))
