"""Keeps what each debuggee made of one breakpoint, and which of these results the editor is told."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass


@dataclass(frozen=True)
class Result:
    """Holds one debuggee's answer for one breakpoint; `line` is where it stops, 0 for a function."""

    verified: bool
    line: int
    message: str = ""


class Results:
    """Keeps results by debuggee. Nothing here looks through all of them: a thousand may answer at once.

    `on_change` is called whenever another result decides.
    """

    def __init__(self, on_change: Callable[[], None] | None = None) -> None:
        self._on_change = on_change
        self._all: dict[Hashable, Result] = {}
        # These are no plain dicts, whose first key is slow to find once many before it were removed.
        self._verified: OrderedDict[Hashable, Result] = OrderedDict()
        self._refusals: OrderedDict[Hashable, Result] = OrderedDict()  # those that say why

    @property
    def deciding(self) -> Result | None:
        """Returns the first result that is verified, else the first refusal; None where there is neither."""
        return _first(self._verified) or self.refusal

    @property
    def refusal(self) -> Result | None:
        """Returns the first result that says why it is not verified, whatever other debuggees say."""
        return _first(self._refusals)

    def __setitem__(self, debuggee: Hashable, result: Result) -> None:
        if self._all.get(debuggee) == result:
            return
        before = self.deciding
        self._all[debuggee] = result
        if result.verified:
            self._refusals.pop(debuggee, None)
            self._verified[debuggee] = result
        else:
            self._verified.pop(debuggee, None)
            if result.message:
                self._refusals[debuggee] = result
            else:
                self._refusals.pop(debuggee, None)
        self._compare(before)

    def get(self, debuggee: Hashable) -> Result | None:
        return self._all.get(debuggee)

    def forget(self, debuggee: Hashable) -> None:
        before = self.deciding
        for results in (self._all, self._verified, self._refusals):
            results.pop(debuggee, None)
        self._compare(before)

    def _compare(self, before: Result | None) -> None:
        if self._on_change is not None and self.deciding != before:
            self._on_change()


def _first(results: OrderedDict[Hashable, Result]) -> Result | None:
    return next(iter(results.values())) if results else None
