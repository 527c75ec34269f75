"""Keeps what the editor wants debuggees to stop at."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from bootstrap.dap.framing import Message
from bootstrap.relay.exception_filters import ExceptionFilters
from bootstrap.relay.results import Results
from bootstrap.relay.stop_points import Breakpoint, FunctionBreakpoint, LineBreakpoint, text_of


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
