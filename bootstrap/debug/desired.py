"""What the editor wants debuggees to stop at, and what each of them made of it."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from bootstrap.debug.dap import Message

# What debugpy needs no tracing for; and always on, for it is what Ray's post-mortem stops by.
_UNCAUGHT = "uncaught"


@dataclass(frozen=True)
class Result:
    """One debuggee's answer for one breakpoint; `line` is where it stops."""

    verified: bool
    line: int
    message: str = ""


@dataclass(eq=False)
class Breakpoint:
    """A line breakpoint of the editor.

    Attributes:
        id: for the editor.
        path: of the file, as the editor names it.
        spec: DAP's SourceBreakpoint.
        results: by debuggee.
        told: what the editor was told last; None before it was.
    """

    id: int
    path: str
    spec: Message
    results: dict[Hashable, Result] = field(default_factory=dict)
    told: Message | None = None

    @property
    def line(self) -> int:
        line = self.spec.get("line")
        return line if isinstance(line, int) else 0

    def document(self) -> Message:
        """DAP's Breakpoint: verified where any debuggee has it."""
        document: Message = {"id": self.id, "line": self.line, "source": {"path": self.path}}
        verified = next((result for result in self.results.values() if result.verified), None)
        if verified:
            message = verified.message
            document |= {"verified": True, "line": verified.line}
        else:
            reasons = [result.message for result in self.results.values() if result.message]
            message = (
                reasons[0] if reasons else "It is set in each task that loads this file, once one is there."
            )
            document["verified"] = False
        return {**document, "message": message} if message else document


@dataclass
class Desired:
    """Everything an editor has asked for, for debuggees that are there and for those that come later.

    Attributes:
        files: the breakpoints of each file, by the editor's path.
        checksums: SHA-256 of the editor's file, in hex, where it gave that.
        functions: the arguments of `setFunctionBreakpoints`.
        exceptions: the arguments of `setExceptionBreakpoints`.
    """

    files: dict[str, list[Breakpoint]] = field(default_factory=dict)
    checksums: dict[str, str] = field(default_factory=dict)
    functions: Message = field(default_factory=lambda: {"breakpoints": []})
    exceptions: Message = field(default_factory=lambda: {"filters": [_UNCAUGHT]})
    _ids: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def replace(self, path: str, specs: Sequence[Message]) -> list[Breakpoint]:
        """Makes these the breakpoints of that file; those that were there keep their id."""
        before = {
            (breakpoint_.line, breakpoint_.spec.get("column")): breakpoint_ for breakpoint_ in self.of(path)
        }
        after = []
        for spec in specs:
            known = before.pop((spec.get("line"), spec.get("column")), None)  # type: ignore[arg-type]
            after.append(Breakpoint(known.id if known else next(self._ids), path, dict(spec)))
        if after:
            self.files[path] = after
        else:
            self.files.pop(path, None)
        return after

    def of(self, path: str) -> list[Breakpoint]:
        return self.files.get(path, [])

    def except_for(self, arguments: Message) -> None:
        """Takes the arguments of `setExceptionBreakpoints`."""
        filters = [name for name in arguments.get("filters") or [] if isinstance(name, str)]
        self.exceptions = {**arguments, "filters": [*dict.fromkeys([*filters, _UNCAUGHT])]}

    @property
    def needs_tracing(self) -> bool:
        """Whether a debuggee has to watch its own code run, which costs it time."""
        more = [name for name in self.exceptions["filters"] if name != _UNCAUGHT]
        options = self.exceptions.get("filterOptions") or self.exceptions.get("exceptionOptions")
        return bool(self.files or self.functions["breakpoints"] or more or options)

    def forget(self, debuggee: Hashable) -> None:
        for breakpoints in self.files.values():
            for breakpoint_ in breakpoints:
                breakpoint_.results.pop(debuggee, None)
