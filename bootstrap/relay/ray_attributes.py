"""Gives the debug console what conditions have of `ray`: its attributes, evaluated and completed.

In a debuggee, scope.py has them.
"""

from __future__ import annotations

import ast
import re
import warnings

from bootstrap.dap.expressions import may_be_compiled
from bootstrap.dap.framing import Message
from bootstrap.hook.evaluated.scope import CALL, NAMES, is_named, with_scope
from bootstrap.relay.connection import Connection
from bootstrap.relay.sent import REACHED, SCOPE

_ATTRIBUTE = re.compile(rf"\bray\.({'|'.join(NAMES)})\b")
_BEGUN = re.compile(r"(?<![\w.])ray\.(\w*)\Z")


async def evaluated(connection: Connection, arguments: Message) -> Message:
    """Returns the arguments of an `evaluate` for a debuggee: one of ours has it compute `ray.task`, say.

    Raises RequestFailed, DebuggerGone.
    """
    expression = str(arguments.get("expression")).strip()
    # What can't be compiled here, or not within bounds, is evaluated as it is.
    if not _ATTRIBUTE.search(expression) or not may_be_compiled(expression):
        return arguments
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(expression, mode="eval")
        if not is_named(tree):
            return arguments
        expression = ast.unparse(with_scope(tree))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return arguments
    await connection.send_once(REACHED, SCOPE)
    return {**arguments, "expression": expression}


def as_typed(variables: object) -> None:
    """Gives variables the names that users evaluate them by, in place: without the call of ours."""
    for variable in variables if isinstance(variables, list) else []:
        if "evaluateName" in variable:
            variable["evaluateName"] = variable["evaluateName"].replace(CALL, "ray")


async def completed(connection: Connection, arguments: Message, targets: list[Message]) -> list[Message]:
    """Returns the targets of `completions` with the attributes of `ray` before them, where those are begun.

    Raises RequestFailed, DebuggerGone.
    """
    lines = str(arguments.get("text", "")).split("\n")
    line = arguments.get("line", 1) - 1
    begun = lines[line][: arguments["column"] - 1] if 0 <= line < len(lines) else ""
    prefix = _BEGUN.search(begun)
    names = [name for name in NAMES if prefix is not None and name.startswith(prefix[1])]
    if prefix is None or not names:
        return targets
    is_scope = SCOPE.call("is_scope")
    if await connection.literal(is_scope, arguments.get("frameId"), modules=(REACHED, SCOPE)) is not True:
        return targets
    place = {"start": prefix.start(1), "length": len(prefix[1])}
    ours = [{"label": name, "type": "property", "detail": "of the task", **place} for name in names]
    return [*ours, *(target for target in targets if target.get("label") not in names)]
