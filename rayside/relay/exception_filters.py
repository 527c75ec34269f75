"""Exception filters that an editor has set, and their conditions."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rayside.dap.framing import Message
from rayside.relay.breakpoints import Breakpoint, Result

# debugpy needs no tracing for this filter: Ray's post-mortem asks pydevd whether it stops at `uncaught`.
_UNCAUGHT = "uncaught"
# pydevd has these names for the filters among DAP's exceptionOptions.
_MODES = {"raised": "always", "userUnhandled": "userUnhandled", _UNCAUGHT: "unhandled"}
_ALL = "Python Exceptions"
_WITHOUT = "The debugpy of a task can give this filter no condition: there it stops at every exception."


class FilterCondition(Breakpoint):
    """Represents the condition of an exception filter."""

    def __init__(self, name: str, condition: str) -> None:
        super().__init__({"condition": condition})
        self.name = name

    @property
    def place(self) -> str:
        return f"the filter {self.name}"

    def document(self) -> Message:
        """Returns DAP's Breakpoint: not verified where a debuggee has said that it can't have a condition."""
        refusal = self.results.refusal
        return {"verified": False, "message": refusal.message} if refusal else {"verified": True}


@dataclass(frozen=True)
class ExceptionFilters:
    """One editor's exception filters.

    Attributes:
        names: the filters that are on, each once.
        conditions: the conditions of the filters that have one, by name.
        options: DAP's exceptionOptions.
        asked: for each filter that was asked for, its verdict, or the condition that has one.
    """

    names: tuple[str, ...]
    conditions: Mapping[str, FilterCondition] = field(default_factory=dict)
    options: tuple[Message, ...] = ()
    asked: tuple[Message | FilterCondition, ...] = ()

    @classmethod
    def of(cls, arguments: Message) -> ExceptionFilters:
        """Reads the arguments of `setExceptionBreakpoints`; the verdict says what is not understood."""
        names: dict[str, None] = {}
        conditions: dict[str, FilterCondition] = {}
        options: list[Message] = []
        verdicts: list[Message | FilterCondition] = []
        for name in _list(arguments, "filters"):
            if known := isinstance(name, str) and name in _MODES:
                names[name] = None
            verdicts.append(_verdict("" if known else _unknown(name)))
        for option in _list(arguments, "filterOptions"):
            name = option.get("filterId") if isinstance(option, dict) else None
            if not isinstance(name, str) or name not in _MODES:
                verdicts.append(_verdict(_unknown(name)))
                continue
            condition = option.get("condition")
            if isinstance(condition, str) and condition.strip() and name not in names:
                filter_ = FilterCondition(name, condition.strip())
                if filter_.problem:
                    verdicts.append(_verdict(filter_.problem))
                    continue
                conditions[name] = filter_
                verdicts.append(filter_)
            else:
                verdicts.append(_verdict(""))
            names[name] = None
        for option in _list(arguments, "exceptionOptions"):
            problem = _problem(option)
            if not problem:
                options.append({**option, "path": option.get("path") or [{"names": [_ALL]}]})
            verdicts.append(_verdict(problem))
        return cls(tuple(names), conditions, tuple(options), tuple(verdicts))

    @property
    def verdicts(self) -> list[Message]:
        """Returns DAP's Breakpoint for each filter that was asked for."""
        return [each.document() if isinstance(each, FilterCondition) else each for each in self.asked]

    def conditions_set(self, debuggee: Hashable, lacking: object) -> None:
        """Notes a debuggee's answer: `lacking` has the breakModes to which it could give no condition."""
        for name, condition in self.conditions.items():
            known = isinstance(lacking, list) and _MODES[name] not in lacking
            condition.results[debuggee] = Result(known, 0, "" if known else _WITHOUT)

    @property
    def needs_tracing(self) -> bool:
        more = any(option["breakMode"] not in ("never", "unhandled") for option in self.options)
        return more or any(name != _UNCAUGHT for name in self.names)

    @property
    def several(self) -> bool:
        """Returns whether an exception may be a reason to stop more than once."""
        return len({*(_MODES[name] for name in self.names), *(o["breakMode"] for o in self.options)}) > 1

    @property
    def arguments(self) -> Message:
        """Returns the arguments of `setExceptionBreakpoints` for debuggees: pydevd ignores filterOptions, and
        beside exceptionOptions the filters, too."""
        if not self.options and not self.conditions:
            return {"filters": list(self.names)}
        filters = [{"path": [{"names": [_ALL]}], "breakMode": _MODES[name]} for name in self.names]
        return {"filters": [], "exceptionOptions": [*self.options, *filters]}

    @property
    def inner_conditions(self) -> Message:
        """Returns what debuggees evaluate for each filter that has a condition, by DAP's breakMode."""
        return {
            _MODES[name]: condition.condition()["condition"] for name, condition in self.conditions.items()
        }


def _problem(option: Any) -> str:
    if not isinstance(option, dict) or option.get("breakMode") not in ("never", *_MODES.values()):
        return "An exception option has a breakMode: never, always, unhandled or userUnhandled."
    path = option.get("path") or [{"names": [_ALL]}]
    if not isinstance(path, list) or not all(_is_segment(segment) for segment in path):
        return "The path of an exception option is a list of objects with names."
    if _ALL not in path[0]["names"] or any(segment.get("negate") for segment in path):
        return f"The path of an exception option begins with {_ALL!r}, and names what is stopped at."
    return ""


def _is_segment(segment: Any) -> bool:
    names = segment.get("names") if isinstance(segment, dict) else None
    return isinstance(names, list) and bool(names) and all(isinstance(name, str) for name in names)


def _unknown(name: object) -> str:
    return f"There is no filter {str(name)[:80]!r}: the relay knows {', '.join(_MODES)}."


def _verdict(problem: str) -> Message:
    return {"verified": False, "message": problem} if problem else {"verified": True}


def _list(arguments: Message, name: str) -> list[Any]:
    value = arguments.get(name)
    return value if isinstance(value, list) else []
