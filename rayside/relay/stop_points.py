"""Describes what debuggees stop or log at: what the editor asked for, and what each debuggee made of it."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from rayside.dap.expressions import problem_of, problem_of_message
from rayside.dap.framing import Message
from rayside.relay.breakpoint_state import FORMS, Gather, HitCondition, Rendezvous, Results
from rayside.worker.evaluated.reached import NAME as REACHED
from rayside.worker.evaluated.reached import PATIENCE

# Debuggees know a breakpoint by its key: no two have the same, whichever editor set them.
_keys = itertools.count(1)


@dataclass(eq=False)
class Breakpoint(ABC):
    """Base class of line breakpoints, function breakpoints and conditions of exception filters.

    Attributes:
        id: the editor's id of it.
        spec: DAP's SourceBreakpoint or FunctionBreakpoint.
        key: debuggees' id of it; another one as soon as the spec is another.
        hits: how often it was reached with its condition met, in all debuggees.
        raised: whether the editor was told that its condition raised.
        rendezvous: the threads that wait for each other here.
        results: the debuggees' results.
        reported: DAP's Breakpoint as the editor was told last; None before it was.
    """

    id: int
    spec: Message
    key: int = field(default_factory=lambda: next(_keys))
    hits: int = 0
    raised: bool = False
    rendezvous: Rendezvous[Any] = field(default_factory=Rendezvous)
    results: Results = field(default_factory=Results)
    reported: Message | None = None

    @property
    @abstractmethod
    def place(self) -> str:
        """Returns what users call it."""

    @cached_property
    def hit_condition(self) -> HitCondition | None:
        return HitCondition.of(text_of(self.spec, "hitCondition"))

    @cached_property
    def gather(self) -> Gather | None:
        return Gather.of(text_of(self.spec, "hitCondition"))

    @cached_property
    def problem(self) -> str:
        """Returns why it can't be set at all; empty where it can."""
        hit_condition, condition = text_of(self.spec, "hitCondition"), text_of(self.spec, "condition")
        message = text_of(self.spec, "logMessage")
        if hit_condition and self.hit_condition is None and self.gather is None:
            return f"The hit condition {hit_condition[:80]!r} is not understood: it is {FORMS}."
        if message and self.gather is not None:
            return f"A logpoint stops nobody, so it can't have the hit condition {hit_condition!r}."
        if why := problem_of(condition):
            return f"The condition {condition[:80]!r} is no Python expression: {why}."
        if why := problem_of_message(message):
            return f"The message can't be made: {why}."
        return ""

    @property
    def verdict(self) -> Message:
        """Returns DAP's Breakpoint, without what is of a line: verified where any debuggee has it."""
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
        """Returns the name of the function, where it is a function's."""
        return ""

    @property
    def point(self) -> tuple[str, str, bool, str, float] | None:
        """Returns what debuggees have to know of it, as `set_points` in evaluated/reached.py takes it; None
        where there is nothing to decide, and it stops with each hit."""
        condition, message = text_of(self.spec, "condition"), text_of(self.spec, "logMessage")
        counted = self.hit_condition is not None or self.gather is not None
        if not (condition or message or counted or self.function):
            return None
        # The relay answers in time to a thread that it has wait; where it is gone, nobody waits much longer.
        patience = PATIENCE + (self.gather.seconds if self.gather is not None else 0)
        return condition, message, counted, self.function, patience

    def condition(self, *, decides: bool = True) -> Message:
        """Returns what debuggees get as its condition, once they know its `point`.

        Args:
            decides: whether our package decides there; else pydevd itself does.
        """
        if not decides:
            names = ("condition", "hitCondition", "logMessage")
            return {name: text for name in names if (text := text_of(self.spec, name))}
        return {} if self.point is None else {"condition": f"{REACHED}({self.key})"}


class LineBreakpoint(Breakpoint):
    """Represents a breakpoint at a line of the editor's file `path`."""

    unknown = "It is set in each task that loads this file, once one is there."

    def __init__(self, id: int, path: str, spec: Message, **kept: Any) -> None:
        super().__init__(id, spec, **kept)
        self.path = path

    @property
    def line(self) -> int:
        line = self.spec.get("line")
        return line if isinstance(line, int) else 0

    @property
    def place(self) -> str:
        return f"{self.path}:{self.line}"

    def document(self) -> Message:
        """Returns DAP's Breakpoint."""
        return {"line": self.line, "source": {"path": self.path}, **self.verdict}

    def inner(self, line: int, *, decides: bool = True) -> Message:
        """Returns DAP's SourceBreakpoint for debuggees; `decides` is as in `condition`."""
        column = {"column": self.spec["column"]} if isinstance(self.spec.get("column"), int) else {}
        return {"line": line, **column, **self.condition(decides=decides)}


class FunctionBreakpoint(Breakpoint):
    """Represents a breakpoint in all functions of a name: `work`, `Actor.work` or `module.work`."""

    unknown = "It is set in each task that loads a function of this name."

    @property
    def name(self) -> str:
        return text_of(self.spec, "name")

    @property
    def function(self) -> str:
        return self.name

    @property
    def place(self) -> str:
        return f"the function {self.name}"

    def document(self) -> Message:
        """Returns DAP's Breakpoint."""
        return self.verdict

    def inner(self, *, decides: bool = True) -> Message:
        """Returns DAP's FunctionBreakpoint for debuggees: pydevd knows no qualified names."""
        return {"name": self.name.rpartition(".")[2], **self.condition(decides=decides)}


class FilterCondition(Breakpoint):
    """Represents the condition of an exception filter."""

    def __init__(self, name: str, condition: str) -> None:
        super().__init__(0, {"condition": condition})
        self.name = name

    @property
    def place(self) -> str:
        return f"the filter {self.name}"

    @property
    def verdict(self) -> Message:
        """Returns DAP's Breakpoint: not verified where a debuggee has said that it can't have a condition."""
        refusal = self.results.refusal
        return {"verified": False, "message": refusal.message} if refusal else {"verified": True}


def text_of(spec: Message, name: str) -> str:
    """Returns a field of a spec; empty where it is no string, or blank."""
    text = spec.get(name)
    return text.strip() if isinstance(text, str) else ""
