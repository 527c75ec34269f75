"""Control flow graph of a code object: the transitions between instructions, and the starts of lines.

Python reports a line to a tracer by the rules of `maybe_call_line_trace` in CPython's ceval.c up to 3.11, and
of `_Py_call_instrumentation_line` in instrumentation.c from 3.12 on. This relies on PyPI's `bytecode`.
"""

from __future__ import annotations

import bisect
import dis
import inspect
import itertools
import sys
from collections.abc import Iterator
from types import CodeType
from typing import Any

try:
    import bytecode as _bytecode

    bytecode: Any = _bytecode  # It does not export everything that its documentation describes.
except ImportError:  # Then nothing here is called.
    bytecode = None

# A backward jump to its own line reports it again, except these jumps within one operation of the source.
_NEVER_TELL = frozenset(["JUMP_BACKWARD_NO_INTERRUPT", "YIELD_FROM"])
_JUMPS = {*dis.hasjrel, *dis.hasjabs}
_NEVER_RAISE = frozenset(
    [
        *("POP_TOP", "NOP", "LOAD_CONST", "COPY", "SWAP"),
        *("PUSH_NULL", "PUSH_EXC_INFO", "POP_EXCEPT", "STORE_FAST"),
    ]
)
_NO_FALL_THROUGH = frozenset(
    [
        *("RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE", "JUMP_FORWARD", "JUMP_ABSOLUTE"),
        *("JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", "JUMP", "JUMP_NO_INTERRUPT", "INTERPRETER_EXIT"),
    ]
)


def ahead(code: CodeType, at: int) -> tuple[set[int], list[CodeType]]:
    """Returns the lines that a frame may still reach, and code objects that it may still define.

    Args:
        at: the frame's `f_lasti`, in bytes; negative before it starts.
    """
    instructions = {each.offset: each for each in dis.get_instructions(code)}
    offsets = list(instructions)
    if at > 0:
        # During a call, on Python 3.11 and 3.12, this is the last inline cache of the instruction, which is
        # not listed.
        at = offsets[bisect.bisect_right(offsets, at) - 1]
    following = dict(itertools.pairwise(offsets))
    handlers: list[int] = []
    if sys.version_info >= (3, 11):
        parse: Any = getattr(dis, "_parse_exception_table")  # noqa: B009 (no type checker knows it)
        handlers = [each.target for each in parse(code)]
    else:  # The SETUP_ instruction of a `try` that the frame has entered is before `at`.
        handlers = [each.argval for each in instructions.values() if each.opname.startswith("SETUP_")]
    # The current instruction does not count, unless a loop leads back to it.
    todo = [*handlers, following.get(at, offsets[0] if at < 0 else offsets[-1])]
    if at in instructions and instructions[at].opcode in _JUMPS:
        todo.append(instructions[at].argval)
    reached = set()
    while todo:
        offset = todo.pop()
        if offset in reached or offset not in instructions:
            continue
        reached.add(offset)
        instruction = instructions[offset]
        if instruction.opcode in _JUMPS:
            todo.append(instruction.argval)
        if instruction.opname not in _NO_FALL_THROUGH and offset in following:
            todo.append(following[offset])
    lines = {
        line
        for start, end, line in code.co_lines()
        if line and any(offset in reached for offset in range(start, end, 2))
    }
    constants = (instructions[offset].argval for offset in sorted(reached))
    return lines, [constant for constant in constants if isinstance(constant, CodeType)]


class Flow:
    """Control flow of a listing: the predecessors of each instruction; `lines` has their lines, by index."""

    def __init__(self, listing: Any, loops: bool) -> None:
        self.listing, self._loops = listing, loops
        self.lines: dict[int, int | None] = {}
        self._previous: dict[int, int | None] = {}
        self._jumps: dict[int, list[int]] = {}  # by id of the label
        self._labels: dict[int, list[Any]] = {}  # labels before an instruction, by its index
        self._handlers: set[int] = set()  # ids of labels
        self._covered: dict[int, list[int]] = {}  # the instructions of a `try`, by id of its handler's label
        trying: list[int] = []
        self.begins = 0  # the first instruction that is reported to a tracer
        labels: list[Any] = []
        last = None
        for at, item in enumerate(listing):
            if isinstance(item, bytecode.Label):
                labels.append(item)
            elif isinstance(item, bytecode.TryBegin):
                self._handlers.add(id(item.target))
                trying.append(id(item.target))
            elif isinstance(item, bytecode.TryEnd):
                trying.remove(id(item.entry.target))
            elif isinstance(item, bytecode.Instr):
                self.lines[at] = item.lineno
                self._previous[at], last = last, at
                self._labels[at], labels = labels, []
                for handler in trying:
                    self._covered.setdefault(handler, []).append(at)
                if isinstance(item.arg, bytecode.Label):
                    self._jumps.setdefault(id(item.arg), []).append(at)
                    if item.name.startswith("SETUP_"):
                        self._handlers.add(id(item.arg))
                if item.name == "RESUME" and not self.begins:
                    self.begins = at + 1
        self._following = {before: at for at, before in self._previous.items() if before is not None}
        self.at_label = {id(label): at for at, labels in self._labels.items() for label in labels}

    def line(self, at: int | None) -> int | None:
        """Returns an instruction's line for a comparison as in tracing: None before the code begins."""
        return None if at is None or at < self.begins else self.lines[at]

    def falls_into(self, at: int) -> bool:
        previous = self._previous[at]
        return previous is None or self.listing[previous].name not in _NO_FALL_THROUGH

    def fall_tells(self, at: int) -> bool:
        return self.line(self._previous[at]) != self.lines[at]

    def jumps_to(self, at: int) -> Iterator[tuple[int, Any]]:
        """Yields each jump to the instruction, and its label, without `SETUP_` instructions."""
        for label in self._labels[at]:
            for jump in self._jumps.get(id(label), []):
                if not self.listing[jump].name.startswith("SETUP_"):
                    yield jump, label

    def jump_tells(self, jump: int, at: int) -> bool:
        if self.line(jump) != self.lines[at]:
            return True
        backwards = jump >= at and self.listing[jump].name not in _NEVER_TELL
        return backwards and self._loops

    def is_handler(self, at: int) -> bool:
        return any(id(label) in self._handlers for label in self._labels[at])

    def handler_tells(self, at: int) -> bool:
        """Returns whether an exception that leads to this handler comes from another line.

        If it may come from this line, too, the line is reported, except for a re-raise that ends a handler.
        """
        if not self.is_handler(at) or self.listing[at].name == "END_ASYNC_FOR":
            return False
        raising = [each for label in self._labels[at] for each in self._covered.get(id(label), [])]
        lines = {self.lines[each] for each in raising if self.listing[each].name not in _NEVER_RAISE}
        ends = self.listing[at].name == "COPY" and any(
            self.listing[each].name == "RERAISE" and self.lines[each] == self.lines[at] for each in raising
        )
        return lines != {self.lines[at]} and not ends

    def next_of(self, at: int) -> Iterator[int]:
        """Yields the possible successors of an instruction, without exception handlers."""
        item = self.listing[at]
        if isinstance(item.arg, bytecode.Label) and not item.name.startswith("SETUP_"):
            yield self.at_label[id(item.arg)]
        if item.name not in _NO_FALL_THROUGH and (following := self._following.get(at)) is not None:
            yield following


def assigned(listing: Any, flow: Flow) -> dict[int, frozenset[str]]:
    """Returns, for each instruction, the plain local variables that are always bound there."""
    # The first of `argnames`: `bytecode` counts positional-only arguments twice (0.17).
    more = bool(listing.flags & inspect.CO_VARARGS) + bool(listing.flags & inspect.CO_VARKEYWORDS)
    code_locals = set(listing.argnames[: listing.argcount + listing.kwonlyargcount + more])
    deleted = {name for at in flow.lines for name in _unbound_by(listing[at])}
    # An inlined comprehension saves its variables and restores them, also unbound ones (3.12).
    put_away = {
        name for at in flow.lines if listing[at].name == "LOAD_FAST_AND_CLEAR" for name in _names(listing[at])
    }
    states: dict[int, frozenset[str]] = {}
    todo: list[tuple[int, frozenset[str]]] = [
        (min(flow.lines), frozenset(code_locals - set(listing.cellvars) - put_away))
    ]
    while todo:
        at, state = todo.pop()
        known = states.get(at)
        state = state if known is None else known & state
        if state == known:
            continue
        states[at] = state
        item = listing[at]
        # A handler may follow any part of its `try`: it has variables that were bound before, never unbound.
        todo += [(handler, state - deleted) for handler in _handlers_at(listing, flow, at)]
        after = ((state - _unbound_by(item)) | _bound_by(item)) - put_away
        todo += [(following, after) for following in flow.next_of(at)]
    return states


def _handlers_at(listing: Any, flow: Flow, at: int) -> Iterator[int]:
    """Yields the handlers of each `try` that begins right before an instruction, or with it."""
    item = listing[at]
    if item.name.startswith("SETUP_") and isinstance(item.arg, bytecode.Label):
        yield flow.at_label[id(item.arg)]
    before = at - 1
    while before >= 0 and not isinstance(listing[before], bytecode.Instr):
        if isinstance(listing[before], bytecode.TryBegin):
            yield flow.at_label[id(listing[before].target)]
        before -= 1


def _names(item: Any) -> list[str]:
    return [
        name for name in (item.arg if isinstance(item.arg, tuple) else [item.arg]) if isinstance(name, str)
    ]


def _bound_by(item: Any) -> frozenset[str]:
    if item.name in ("STORE_FAST", "STORE_FAST_STORE_FAST"):
        return frozenset(_names(item))
    if item.name == "STORE_FAST_LOAD_FAST":
        return frozenset(_names(item)[:1])
    return frozenset()


def _unbound_by(item: Any) -> frozenset[str]:
    return frozenset(_names(item)) if item.name == "DELETE_FAST" else frozenset()
