"""Desired state: the breakpoints and exception filters that an editor has set."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from rayside.dap.framing import Message
from rayside.relay.breakpoint_state import Result, Results
from rayside.relay.stop_points import Breakpoint, FilterCondition, FunctionBreakpoint, LineBreakpoint, text_of

# debugpy needs no tracing for this filter: Ray's post-mortem asks pydevd whether it stops at `uncaught`.
_UNCAUGHT = "uncaught"
# pydevd has these names for the filters among DAP's exceptionOptions.
_MODES = {"raised": "always", "userUnhandled": "userUnhandled", _UNCAUGHT: "unhandled"}
_ALL = "Python Exceptions"
_WITHOUT = "The debugpy of a task can give this filter no condition: there it stops at every exception."


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
        return [each.verdict if isinstance(each, FilterCondition) else each for each in self.asked]

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


@dataclass
class Desired:
    """Keeps all that an editor has asked for, for current debuggees and for those that come later.

    Attributes:
        files: the breakpoints of each file, by the editor's path.
        checksums: the SHA-256 of the editor's file, in hex, where it sent that.
        functions: the function breakpoints.
        exceptions: the exception filters.
        prints: whether the editor is told what debuggees print.
    """

    files: dict[str, list[LineBreakpoint]] = field(default_factory=dict)
    checksums: dict[str, str] = field(default_factory=dict)
    functions: list[FunctionBreakpoint] = field(default_factory=list)
    exceptions: ExceptionFilters = field(
        default_factory=lambda: ExceptionFilters.of({"filters": ["uncaught"]})
    )
    prints: bool = False
    _ids: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    _by_id: dict[int, LineBreakpoint | FunctionBreakpoint] = field(default_factory=dict)
    # An ordered set of the breakpoints of which another result decides now.
    _changed: dict[LineBreakpoint | FunctionBreakpoint, None] = field(default_factory=dict)

    def replace(self, path: str, specs: Sequence[Message]) -> list[LineBreakpoint]:
        """Makes these the breakpoints of that file; those that it had keep their id, and their hits."""
        before = {
            (breakpoint_.line, breakpoint_.spec.get("column")): breakpoint_ for breakpoint_ in self.of(path)
        }
        after = []
        for spec in specs:
            known = before.pop((spec.get("line"), spec.get("column")), None)  # type: ignore[arg-type]
            number = known.id if known else next(self._ids)
            after.append(LineBreakpoint(number, path, dict(spec), **_kept(known, spec)))
        self._exchange(self.of(path), after)
        if after:
            self.files[path] = after
        else:
            self.files.pop(path, None)
        return after

    def replace_functions(self, specs: Sequence[Message]) -> list[FunctionBreakpoint]:
        """Makes these the function breakpoints; as `replace` does with a file's."""
        before = {breakpoint_.name: breakpoint_ for breakpoint_ in self.functions}
        after = []
        for spec in specs:
            known = before.pop(text_of(spec, "name"), None)
            number = known.id if known else next(self._ids)
            after.append(FunctionBreakpoint(number, dict(spec), **_kept(known, spec)))
        self._exchange(self.functions, after)
        self.functions = after
        return after

    def _exchange(
        self,
        before: Sequence[LineBreakpoint | FunctionBreakpoint],
        after: Sequence[LineBreakpoint | FunctionBreakpoint],
    ) -> None:
        kept = {breakpoint_.key for breakpoint_ in after}
        for breakpoint_ in before:
            del self._by_id[breakpoint_.id]
            if breakpoint_.key not in kept:
                breakpoint_.rendezvous.let_go()
        for breakpoint_ in after:
            self._by_id[breakpoint_.id] = breakpoint_
            breakpoint_.results = Results(partial(self._changed.__setitem__, breakpoint_, None))

    def of(self, path: str) -> list[LineBreakpoint]:
        return self.files.get(path, [])

    def now(self, breakpoint_: LineBreakpoint | FunctionBreakpoint) -> LineBreakpoint | FunctionBreakpoint:
        """Returns the breakpoint that has taken its place meanwhile; itself where none has."""
        return self._by_id.get(breakpoint_.id, breakpoint_)

    def take_changed(self) -> list[LineBreakpoint | FunctionBreakpoint]:
        """Returns the breakpoints of which another result decides than when this was called last."""
        changed = [
            breakpoint_ for breakpoint_ in self._changed if self._by_id.get(breakpoint_.id) is breakpoint_
        ]
        self._changed.clear()
        return changed

    @property
    def breakpoints(self) -> list[LineBreakpoint | FunctionBreakpoint]:
        """Returns all breakpoints of lines and functions."""
        lines = [breakpoint_ for breakpoints in self.files.values() for breakpoint_ in breakpoints]
        return [*lines, *self.functions]

    def by_key(self, key: object) -> Breakpoint | None:
        """Returns the breakpoint, or the condition of a filter, that debuggees know by that key."""
        return next((breakpoint_ for breakpoint_ in self._decided_inside if breakpoint_.key == key), None)

    @property
    def _decided_inside(self) -> list[Breakpoint]:
        """Returns all breakpoints and filters of which debuggees may have a condition."""
        return [*self.breakpoints, *self.exceptions.conditions.values()]

    @property
    def needs_tracing(self) -> bool:
        """Returns whether a debuggee has to trace its code, which costs it time."""
        return bool(self.files or self.functions or self.exceptions.needs_tracing)

    def let_go(self, debuggee: Hashable = None) -> None:
        """Lets threads go that wait for others at a breakpoint: a debuggee's, or all."""
        for breakpoint_ in self.breakpoints:
            if debuggee is None:
                breakpoint_.rendezvous.let_go()
            else:
                breakpoint_.rendezvous.leave(debuggee)

    def forget(self, debuggee: Hashable) -> None:
        for breakpoint_ in self._decided_inside:
            breakpoint_.results.forget(debuggee)


def _kept(known: Breakpoint | None, spec: Message) -> dict[str, Any]:
    """Returns what a breakpoint keeps when its file's breakpoints are set once more."""
    if known is None or known.spec != spec:
        return {}
    return {
        "key": known.key,
        "hits": known.hits,
        "raised": known.raised,
        "rendezvous": known.rendezvous,
    }
