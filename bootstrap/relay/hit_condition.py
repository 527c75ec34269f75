"""Reads DAP's hitCondition: how often a breakpoint has to be reached, in all of the cluster, to stop."""

from __future__ import annotations

import re
from dataclasses import dataclass

_FORM = re.compile(r"\s*(==|>=|<=|>|<|%)?\s*([0-9]{1,9})\s*")
FORMS = "a number, or one after ==, >=, >, <=, < or %"


@dataclass(frozen=True)
class HitCondition:
    """Compares as debugpy does: `5` is the fifth hit, `>= 5` that and all that follow, `% 5` each fifth."""

    operator: str
    number: int

    @classmethod
    def of(cls, text: str) -> HitCondition | None:
        """Reads a hitCondition; returns None where it is of another form than FORMS."""
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
