"""Exception filters that an editor has set, and their conditions."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from rayside.dap.framing import Message
from rayside.relay.breakpoints import Breakpoint, Result, text_of

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
        """Reads the arguments of `setExceptionBreakpoints`, as `REQUESTS` has them.

        The verdict says what is not understood.
        """
        names: dict[str, None] = {}
        conditions: dict[str, FilterCondition] = {}
        options: list[Message] = []
        verdicts: list[Message | FilterCondition] = []
        for name in arguments.get("filters", []):
            if name in _MODES:
                names[name] = None
            verdicts.append(_verdict("" if name in _MODES else _unknown(name)))
        for option in arguments.get("filterOptions", []):
            name, condition = option.get("filterId"), text_of(option, "condition")
            if name not in _MODES:
                verdicts.append(_verdict(_unknown(name)))
                continue
            if condition and name not in names:
                filter_ = FilterCondition(name, condition)
                if filter_.problem:
                    verdicts.append(_verdict(filter_.problem))
                    continue
                conditions[name] = filter_
                verdicts.append(filter_)
            else:
                verdicts.append(_verdict(""))
            names[name] = None
        for option in arguments.get("exceptionOptions", []):
            path = option.get("path") or [{"names": [_ALL]}]
            problem = _problem(option, path)
            if not problem:
                options.append({**option, "path": path})
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


def _problem(option: Message, path: Sequence[Message]) -> str:
    if "breakMode" not in option:
        return "An exception option has a breakMode: never, always, unhandled or userUnhandled."
    if not all(segment.get("names") for segment in path):
        return "The path of an exception option is a list of objects with names."
    if _ALL not in path[0]["names"] or any(segment.get("negate") for segment in path):
        return f"The path of an exception option begins with {_ALL!r}, and names what is stopped at."
    return ""


def _unknown(name: object) -> str:
    return f"There is no filter {str(name)[:80]!r}: the relay knows {', '.join(_MODES)}."


def _verdict(problem: str) -> Message:
    return {"verified": False, "message": problem} if problem else {"verified": True}
