"""State of a breakpoint across debuggees: hit conditions, gathering threads, verification results."""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

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
    """Hit condition that gathers threads: all stop once `number` have come, or after `seconds`."""

    number: int
    seconds: int

    @classmethod
    def of(cls, text: str) -> Gather | None:
        """Reads a hitCondition; returns None where it gathers nobody."""
        form = _GATHER.fullmatch(text)
        if form is None or int(form[1]) < 2 or (form[2] is not None and not int(form[2])):
            return None
        return cls(int(form[1]), int(form[2] or WITHIN))


Debuggee = TypeVar("Debuggee", bound=Hashable)


class Rendezvous(Generic[Debuggee]):
    """Gathers threads of debuggees at one breakpoint: once all have come they stop, and it begins anew.

    Each waits in the breakpoint's condition, for the relay's answer (`ask` in evaluated/reached.py): it
    runs on with the first of an answer, the relay's end, and the end of its own patience.
    """

    def __init__(self) -> None:
        # By debuggee and number of its report.
        self._waiting: dict[tuple[Debuggee, int], asyncio.Future[bool]] = {}
        self._timer: asyncio.TimerHandle | None = None

    async def join(
        self, debuggee: Debuggee, number: int, gather: Gather, tell: Callable[[Sequence[Debuggee]], None]
    ) -> bool:
        """Waits for the others; returns whether the thread stops.

        `tell` is called once for all, with the debuggee of each thread that stops now.
        """
        if (debuggee, number) in self._waiting:  # no debuggee of ours says the same twice
            return False
        loop = asyncio.get_running_loop()
        stops: asyncio.Future[bool] = loop.create_future()
        self._waiting[debuggee, number] = stops
        if self._timer is None:
            self._timer = loop.call_later(gather.seconds, self._stop, tell)
        if len(self._waiting) >= gather.number:
            self._stop(tell)
        return await stops

    def leave(self, debuggee: Debuggee, number: int | None = None) -> None:
        """Lets one thread of a debuggee go, or all; they do not count any more."""
        for who in [who for who in self._waiting if who[0] is debuggee and number in (None, who[1])]:
            self._end(self._waiting.pop(who), stops=False)
        if not self._waiting:
            self._rest()

    def let_go(self) -> None:
        """Lets all go: nothing stops here any more."""
        self._end_all(stops=False)

    def _stop(self, tell: Callable[[Sequence[Debuggee]], None]) -> None:
        tell([debuggee for debuggee, _ in self._waiting])
        self._end_all(stops=True)

    def _end_all(self, *, stops: bool) -> None:
        waiting, self._waiting = self._waiting, {}
        self._rest()
        for each in waiting.values():
            self._end(each, stops=stops)

    def _rest(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @staticmethod
    def _end(waiting: asyncio.Future[bool], *, stops: bool) -> None:
        if not waiting.done():  # the relay ends, and has cancelled it
            waiting.set_result(stops)


@dataclass(frozen=True)
class Result:
    """One debuggee's answer for one breakpoint; `line` is where it stops, 0 for a function."""

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
