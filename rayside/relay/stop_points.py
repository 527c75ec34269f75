"""Line and function breakpoints across debuggees: hit conditions, gathering of threads, results."""

from __future__ import annotations

import asyncio
import itertools
import operator
import re
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, TypeVar

from rayside.dap.expressions import problem_of, problem_of_message
from rayside.dap.framing import Message
from rayside.worker.evaluated.reached import NAME as REACHED
from rayside.worker.evaluated.reached import PATIENCE

_FORM = re.compile(r"\s*(==|>=|<=|>|<|%)?\s*([0-9]{1,9})\s*")
_GATHER = re.compile(r"\s*gather\s+([0-9]{1,4})(?:\s+within\s+([0-9]{1,3})\s*s?)?\s*")
# Default timeout in seconds of `gather`.
WITHIN = 60
_HOLDS: dict[str, Callable[[int, int], bool]] = {
    **{"==": operator.eq, ">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt},
    "%": lambda hits, number: hits % number == 0,
}
FORMS = (
    "a number, or one after ==, >=, >, <=, < or %; `first`; or `gather N`, of 2 or more,"
    " which `within S` seconds may follow"
)


@dataclass(frozen=True)
class HitCondition:
    """Hit condition as in debugpy: `5`: the fifth hit, `>= 5`: the fifth and later ones, `% 5`: each fifth.

    `first` is only the first hit.
    """

    operator: str
    number: int

    @classmethod
    def of(cls, text: str) -> HitCondition | None:
        """Parses a hitCondition; returns None if it is no count."""
        if text.strip() == "first":
            return cls("==", 1)
        form = _FORM.fullmatch(text)
        if form is None or (form[1] == "%" and not int(form[2])):
            return None
        return cls(form[1] or "==", int(form[2]))

    def holds(self, hits: int) -> bool:
        """Returns whether the hit with this number, from 1, stops."""
        return _HOLDS[self.operator](hits, self.number)

    def is_settled(self, hits: int) -> bool:
        """Returns whether all later hits act as this one, so that counting can end."""
        return self.operator != "%" and hits >= self.number and self.holds(hits) == self.holds(hits + 1)


@dataclass(frozen=True)
class Gather:
    """Hit condition that gathers threads: all stop once `number` have come, or after `seconds`."""

    number: int
    seconds: int

    @classmethod
    def of(cls, text: str) -> Gather | None:
        """Parses a hitCondition; returns None if it has no `gather`."""
        form = _GATHER.fullmatch(text)
        if form is None or int(form[1]) < 2 or (form[2] is not None and not int(form[2])):
            return None
        return cls(int(form[1]), int(form[2] or WITHIN))


Debuggee = TypeVar("Debuggee", bound=Hashable)


class Rendezvous(Generic[Debuggee]):
    """Barrier for threads of debuggees at one breakpoint: when all have come they stop, and it starts again.

    Each thread waits for the relay's answer in the breakpoint's condition (`ask` in evaluated/telling.py),
    until the answer, the end of the relay, or its own timeout.
    """

    def __init__(self) -> None:
        # Waiting threads, by debuggee and number of its report.
        self._waiting: dict[tuple[Debuggee, int], asyncio.Future[bool]] = {}
        self._timer: asyncio.TimerHandle | None = None

    async def join(
        self, debuggee: Debuggee, number: int, gather: Gather, tell: Callable[[Sequence[Debuggee]], None]
    ) -> bool:
        """Waits for the others; returns whether the thread stops. `tell` gets the debuggees that stop now."""
        if (debuggee, number) in self._waiting:  # our code in debuggees never sends a number twice
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
        """Resumes one thread of a debuggee, or all of them; they do not count any more."""
        for who in [who for who in self._waiting if who[0] is debuggee and number in (None, who[1])]:
            _answer(self._waiting.pop(who), stops=False)
        if not self._waiting:
            self._rest()

    def let_go(self, *, stops: bool = False) -> None:
        """Ends the wait of all threads: they resume, or stop (`stops`)."""
        waiting, self._waiting = self._waiting, {}
        self._rest()
        for each in waiting.values():
            _answer(each, stops=stops)

    def _stop(self, tell: Callable[[Sequence[Debuggee]], None]) -> None:
        tell([debuggee for debuggee, _ in self._waiting])
        self.let_go(stops=True)

    def _rest(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _answer(waiting: asyncio.Future[bool], *, stops: bool) -> None:
    if not waiting.done():  # otherwise the relay is ending, and has canceled it
        waiting.set_result(stops)


@dataclass(frozen=True)
class Result:
    """Answer of one debuggee for one breakpoint; `line` is where it stops, 0 for a function."""

    verified: bool
    line: int
    message: str = ""


class Results:
    """Results by debuggee, without iteration over all: a thousand may answer at the same time.

    `on_change` is called when the deciding result changes.
    """

    def __init__(self, on_change: Callable[[], None] | None = None) -> None:
        self._on_change = on_change
        self._all: dict[Hashable, Result] = {}
        # Not plain dicts, whose first key is slow to find after many earlier ones were removed.
        self._verified: OrderedDict[Hashable, Result] = OrderedDict()
        self._refusals: OrderedDict[Hashable, Result] = OrderedDict()  # unverified results with a message

    @property
    def deciding(self) -> Result | None:
        """Returns the first verified result, else the first refusal, else None."""
        return next(iter(self._verified.values()), None) or self.refusal

    @property
    def refusal(self) -> Result | None:
        """Returns the first unverified result with a message, whatever the others are."""
        return next(iter(self._refusals.values()), None)

    def __setitem__(self, debuggee: Hashable, result: Result) -> None:
        if self._all.get(debuggee) == result:
            return
        before = self.deciding
        self._all[debuggee] = result
        for results, has_it in (
            (self._verified, result.verified),
            (self._refusals, not result.verified and bool(result.message)),
        ):
            if has_it:
                results[debuggee] = result
            else:
                results.pop(debuggee, None)
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


# Keys of breakpoints in debuggees, unique across editors.
_keys = itertools.count(1)


@dataclass(eq=False)
class Breakpoint(ABC):
    """Base class of line breakpoints, function breakpoints and conditions of exception filters.

    Attributes:
        spec: DAP's SourceBreakpoint or FunctionBreakpoint.
        id: the editor's id; 0 for none.
        key: the debuggees' id; a changed spec gets a new one.
        hits: number of hits with the condition met, in all debuggees.
        raised: whether an error of its condition was reported to the editor.
        rendezvous: the threads that wait for each other here.
        results: the debuggees' results.
        reported: DAP's Breakpoint as last reported to the editor; None before that.
    """

    spec: Message
    id: int = 0
    key: int = field(default_factory=lambda: next(_keys))
    hits: int = 0
    raised: bool = False
    rendezvous: Rendezvous[Any] = field(default_factory=Rendezvous)
    results: Results = field(default_factory=Results)
    reported: Message | None = None

    @property
    @abstractmethod
    def place(self) -> str:
        """Returns the breakpoint's place, for messages to users."""

    def replaces(self, earlier: Breakpoint) -> None:
        """Takes over the id of an earlier breakpoint and, if the spec is the same, its state."""
        self.id = earlier.id
        if self.spec == earlier.spec:
            self.key, self.hits, self.raised = earlier.key, earlier.hits, earlier.raised
            self.rendezvous = earlier.rendezvous

    @cached_property
    def hit_condition(self) -> HitCondition | None:
        return HitCondition.of(text_of(self.spec, "hitCondition"))

    @cached_property
    def gather(self) -> Gather | None:
        return Gather.of(text_of(self.spec, "hitCondition"))

    @cached_property
    def problem(self) -> str:
        """Returns why the breakpoint is invalid; empty if it is valid."""
        hit_condition, condition = text_of(self.spec, "hitCondition"), text_of(self.spec, "condition")
        message = text_of(self.spec, "logMessage")
        if hit_condition and self.hit_condition is None and self.gather is None:
            return f"The hit condition {hit_condition[:80]!r} is not understood: it is {FORMS}."
        if message and self.gather is not None:
            return f"A logpoint stops nobody, so it can't have the hit condition {hit_condition!r}."
        if condition and (why := problem_of(condition)):
            return f"The condition {condition[:80]!r} is no Python expression: {why}."
        if message and (why := problem_of_message(message)):
            return f"The message can't be made: {why}."
        return ""

    def document(self) -> Message:
        """Returns DAP's Breakpoint, verified if any debuggee has verified it."""
        document: Message = {"id": self.id, "verified": False}
        if self.problem:
            return {**document, "message": self.problem}
        result = self.results.deciding
        if result is None or not result.verified:
            return {**document, "message": result.message if result else self.unknown}
        document |= {"verified": True, **({"line": result.line} if result.line else {})}
        return {**document, "message": result.message} if result.message else document

    unknown = ""  # the message while no debuggee has answered

    @property
    def function(self) -> str:
        return ""  # function breakpoints return its name

    @property
    def point(self) -> tuple[str, str, bool, str, float] | None:
        """Returns the value for `set_points` of evaluated/reached.py; None if each hit stops."""
        condition, message = text_of(self.spec, "condition"), text_of(self.spec, "logMessage")
        counted = self.hit_condition is not None or self.gather is not None
        if not (condition or message or counted or self.function):
            return None
        # The relay answers a waiting thread in time; without the relay, a thread does not wait much longer.
        patience = PATIENCE + (self.gather.seconds if self.gather is not None else 0)
        return condition, message, counted, self.function, patience

    def condition(self, *, decides: bool = True) -> Message:
        """Returns the condition for debuggees; `decides`: whether our package evaluates it, or pydevd."""
        if not decides:
            names = ("condition", "hitCondition", "logMessage")
            return {name: text for name in names if (text := text_of(self.spec, name))}
        return {} if self.point is None else {"condition": f"{REACHED}({self.key})"}


class LineBreakpoint(Breakpoint):
    """Breakpoint at a line of the editor's file `path`."""

    unknown = "It is set in each task that loads this file, once one is there."

    def __init__(self, path: str, spec: Message) -> None:
        super().__init__(spec)
        self.path = path

    @property
    def line(self) -> int:
        line = self.spec.get("line")
        return line if isinstance(line, int) else 0

    @property
    def place(self) -> str:
        return f"{self.path}:{self.line}"

    def document(self) -> Message:
        return {"line": self.line, "source": {"path": self.path}, **super().document()}

    def inner(self, line: int, *, decides: bool = True) -> Message:
        """Returns DAP's SourceBreakpoint for debuggees; `decides` is as in `condition`."""
        column = {"column": self.spec["column"]} if isinstance(self.spec.get("column"), int) else {}
        return {"line": line, **column, **self.condition(decides=decides)}


class FunctionBreakpoint(Breakpoint):
    """Breakpoint in all functions of a name: `work`, `Actor.work` or `module.work`."""

    unknown = "It is set in each task that loads a function of this name."

    @property
    def function(self) -> str:
        return text_of(self.spec, "name")

    @property
    def place(self) -> str:
        return f"the function {self.function}"

    def inner(self, *, decides: bool = True) -> Message:
        """Returns DAP's FunctionBreakpoint for debuggees; pydevd does not support qualified names."""
        return {"name": self.function.rpartition(".")[2], **self.condition(decides=decides)}


def text_of(spec: Message, name: str) -> str:
    """Returns a field of a spec, stripped; empty if it is no string."""
    text = spec.get(name)
    return text.strip() if isinstance(text, str) else ""
