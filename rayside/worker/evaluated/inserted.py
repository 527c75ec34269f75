"""Insertion of calls into code objects, each where Python would report its line to a tracer.

A compiled-in breakpoint only costs time at its own line: Python traces nothing. The inserted instructions
have the breakpoint's line number, so that any tracer still gets one event for the line. This relies on PyPI's
`bytecode`, which supports the instructions of each Python version and computes jumps and tables.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from types import CodeType
from typing import Any

from .flow import Flow, assigned

try:
    import bytecode as _bytecode

    bytecode: Any = _bytecode  # It does not export everything that its documentation describes.
except ImportError:  # Without it breakpoints are traced, as in debugpy.
    bytecode = None

# Python versions that this module was tested with.
# A job may have its own `bytecode`; older versions can't make code for some Python versions.
SUPPORTED = (3, 10) <= sys.version_info[:2] <= (3, 14) and bytecode is not None
SUPPORTED = SUPPORTED and bytecode.__version__.startswith("0.17.")
# Without the GIL, objects.py would hold references to objects that other threads use.
SUPPORTED = SUPPORTED and getattr(sys, "_is_gil_enabled", lambda: True)()


@dataclass(frozen=True)
class Call:
    """Call to insert at one line.

    Attributes:
        stop: function without arguments; its result is ignored.
        condition: if given, `stop` is called only if this returns true; it returns a bool.
        names: the local variables that are `condition`'s arguments, in order. If one may be unbound, or is a
            cell, `otherwise` is called in place of both.
        otherwise: as `stop`.
    """

    stop: Callable[[], object]
    condition: Callable[..., bool] | None = None
    names: tuple[str, ...] = ()
    otherwise: Callable[[], object] | None = None


def lines_of(code: CodeType) -> set[int]:
    """Returns the lines of a code object itself, without nested code objects."""
    return {line for _, _, line in code.co_lines() if line}


def inner(code: CodeType) -> Iterator[CodeType]:
    """Yields the code objects nested directly in a code object."""
    return (constant for constant in code.co_consts if isinstance(constant, CodeType))


def with_calls(
    code: CodeType,
    lines: Collection[int],
    call: Callable[[int, CodeType], Call],
    *,
    loops: bool = True,
    made: Callable[[CodeType, CodeType], None] = lambda new, code: None,
) -> CodeType:
    """Returns code with a call before each of these lines, also in nested code objects.

    Args:
        code: is not changed, and returned if it has none of the lines.
        call: returns the call for a line of a code object.
        loops: whether a jump back to its own line reports the line again: with sys.settrace, not with
            sys.monitoring.
        made: is called with each new code object, also nested ones, and its original. Their order in
            `co_consts` may differ: `bytecode` drops constants that no instruction uses.

    Raises the errors of `bytecode` for code that it can't read or write.
    """
    consts = tuple(
        with_calls(constant, lines, call, loops=loops, made=made)
        if isinstance(constant, CodeType)
        else constant
        for constant in code.co_consts
    )
    new = code
    if any(inner is not constant for inner, constant in zip(consts, code.co_consts, strict=True)):
        new = code.replace(co_consts=consts)
    calls = {line: call(line, code) for line in lines_of(code) if line in lines}
    if calls:
        new = _inserted(new, calls, loops)
    if new is not code:
        made(new, code)
    return new


def _inserted(code: CodeType, calls: Mapping[int, Call], loops: bool) -> CodeType:
    listing = bytecode.Bytecode.from_code(code, conserve_exception_block_stackdepth=True)
    flow = Flow(listing, loops)
    bound = assigned(listing, flow) if any(call.names for call in calls.values()) else {}
    retargeted: dict[tuple[int, int], Any] = {}  # by jump and label, the label of a call
    before: dict[int, list[Any]] = {}  # items to insert before the labels of an instruction
    between: dict[int, list[Any]] = {}  # items to insert between its labels and it
    for at, line in flow.lines.items():
        if line is None or line not in calls or at < flow.begins:
            continue
        jumps = [(jump, label) for jump, label in flow.jumps_to(at)]
        telling = [edge for edge in jumps if flow.jump_tells(edge[0], at)]
        falls, tells = flow.falls_into(at), flow.fall_tells(at)
        handles = flow.handler_tells(at)
        if not telling and not (falls and tells) and not handles:
            continue
        made = _instructions(calls[line], line, bound.get(at, frozenset()))
        is_told = [*([tells] if falls else []), *(edge in telling for edge in jumps)]
        if all(is_told) and (handles or not flow.is_handler(at)):
            between[at] = made
            continue
        over = bytecode.Label()
        labels = {label for _, label in telling}
        new = {label: bytecode.Label() for label in labels}
        retargeted.update({(jump, id(label)): new[label] for jump, label in telling})
        if handles:  # the handler's own label stays with the call
            for jump, label in jumps:
                if (jump, label) not in telling:
                    retargeted[jump, id(label)] = over
            between[at] = [*made, over]
            if falls and not tells:
                before[at] = [_jump(over, line)]
            continue
        # A fall-through that does not report the line jumps over the call; jumps that do lead to it.
        start = [] if not falls or tells else [_jump(over, line)]
        before[at] = [*start, *new.values(), *made, over]
    longest = max(len(call.names) for call in calls.values())
    return _assembled(listing, retargeted, before, between, code.co_stacksize + longest + 3)


def _assembled(
    listing: Any,
    retargeted: dict[Any, Any],
    before: dict[int, list[Any]],
    between: dict[int, list[Any]],
    stack_size: int,
) -> CodeType:
    """Returns the code of a listing with the insertions before and between its labels and instructions."""
    result: list[Any] = []
    labels: list[Any] = []  # labels, and starts and ends of `try`, before an instruction
    for at, item in enumerate(listing):
        if not isinstance(item, bytecode.Instr):
            labels.append(item)
            continue
        if (at, id(item.arg)) in retargeted:
            item.arg = retargeted[at, id(item.arg)]
        if at in before:
            # A `try` that ends before the instruction ends before the call, too.
            first = [each for each in labels if isinstance(each, bytecode.TryEnd)]
            rest = [each for each in labels if not isinstance(each, bytecode.TryEnd)]
            result += [*first, *before[at], *rest]
        else:
            result += labels
        labels = []
        result += [*between.get(at, []), item]
    listing[:] = [*result, *labels]
    # Stack size: the original one and a call. `bytecode` can't compute it for all code of 3.12.
    concrete = listing.to_concrete_bytecode(compute_exception_stack_depths=False)
    made: CodeType = concrete.to_code(stacksize=stack_size, compute_exception_stack_depths=False)
    return made if sys.version_info >= (3, 11) else made.replace(co_linetable=_line_table(concrete))


def _line_table(concrete: Any) -> bytes:
    """Returns Python 3.10's line table, described in Objects/lnotab_notes.txt.

    The table from `bytecode` loses lines after an instruction without a line.
    """
    table = bytearray()
    last = concrete.first_lineno
    for instruction in concrete:
        size, line = instruction.size, instruction.lineno
        if line is None:
            table += bytes([size, 128])
            continue
        delta, last = line - last, line
        while not -127 <= delta <= 127:
            step = 127 if delta > 0 else -127
            table += bytes([0, step & 255])
            delta -= step
        table += bytes([size, delta & 255])
    return bytes(table)


def _jump(label: Any, line: int) -> Any:
    return bytecode.Instr("JUMP_FORWARD", label, lineno=line)


def _instructions(call: Call, line: int | None, bound: frozenset[str]) -> list[Any]:
    condition, stop = call.condition, call.stop
    if condition is not None and not bound.issuperset(call.names):
        condition, stop = None, call.otherwise or stop
    made = [*_calling(stop, ()), ("POP_TOP",)]
    over = bytecode.Label()
    if condition is None:
        return [bytecode.Instr(*each, lineno=line) for each in made]
    jump = "POP_JUMP_FORWARD_IF_FALSE" if sys.version_info[:2] == (3, 11) else "POP_JUMP_IF_FALSE"
    made = [*_calling(condition, call.names), (jump, over), *made]
    return [*(bytecode.Instr(*each, lineno=line) for each in made), over]


def _calling(function: Callable[..., object], names: tuple[str, ...]) -> list[tuple[Any, ...]]:
    """Returns the instructions that call a function with local variables, and push its result."""
    load, count = ("LOAD_CONST", function), len(names)
    arguments = [("LOAD_FAST", name) for name in names]
    version = sys.version_info[:2]
    if version == (3, 10):
        return [load, *arguments, ("CALL_FUNCTION", count)]
    if version == (3, 11):
        return [("PUSH_NULL",), load, *arguments, ("PRECALL", count), ("CALL", count)]
    if version == (3, 12):
        return [("PUSH_NULL",), load, *arguments, ("CALL", count)]
    return [load, ("PUSH_NULL",), *arguments, ("CALL", count)]
