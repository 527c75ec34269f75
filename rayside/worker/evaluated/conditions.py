"""Conditions of breakpoints as functions, called with the local variables that they name.

Evaluated on `f_locals`, a condition costs a loop five to ten times its speed; as a function of the few
variables that it names, half of it. The value is the same but for names in nested scopes of a condition (a
lambda, a generator), which an evaluated condition would look up among the globals alone.
"""

from __future__ import annotations

import ast
import types
from collections.abc import Callable
from typing import Any

# What looks at the frame that it is called in sees the condition's function here, and so is evaluated.
_LOOK_AT_FRAMES = frozenset(["locals", "vars", "dir", "eval", "exec", "globals", "sys", "inspect", "super"])
# What the relay's conditions mean by it is found out with the frame (scope.py).
_SCOPED = frozenset(["ray"])
_TEMPLATE = """\
def make(__rayside_raised):
    def condition({names}):
        try:
            return True if {value} else False
        except Exception as __rayside_error:
            return __rayside_raised(__rayside_error)
    return condition
"""


def names_of(condition: str, code: types.CodeType) -> tuple[str, ...] | None:
    """Returns the variables of `code` that a condition names, in order.

    None where it has to be evaluated in the frame: it names a cell of the code or what looks at frames, it
    binds a name, or the code keeps its variables by name, as that of a module and of a class does.
    """
    try:
        tree = ast.parse(condition.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    if not code.co_flags & 0x1:  # CO_OPTIMIZED, in CPython's Include/cpython/code.h
        return None
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom)):
            return None
        if isinstance(node, ast.Name):
            names.add(node.id)
    cells = {*code.co_cellvars, *code.co_freevars}
    if names & (cells | _LOOK_AT_FRAMES | _SCOPED) or any(name.startswith("__rayside") for name in names):
        return None
    return tuple(sorted(names & {*code.co_varnames}))


def function_of(
    condition: str,
    names: tuple[str, ...],
    namespace: dict[str, Any],
    raised: Callable[[Exception], bool],
) -> Callable[..., bool]:
    """Returns a function of the variables `names` that returns whether the condition holds.

    Args:
        condition: a Python expression that compiles.
        namespace: the globals in which it is evaluated.
        raised: is called with what the condition raises, and says whether it holds then.
    """
    value = ast.parse(condition.strip(), mode="eval").body
    text = _TEMPLATE.format(names=", ".join(names), value="None")
    tree = ast.parse(text, "<condition>")
    test = next(node for node in ast.walk(tree) if isinstance(node, ast.IfExp))
    test.test = value
    made: dict[str, Any] = {}
    exec(compile(ast.fix_missing_locations(tree), "<condition>", "exec"), made)
    function = made["make"](raised)
    # It is a new function, for one's globals can't be replaced.
    condition_function: Callable[..., bool] = types.FunctionType(
        function.__code__, namespace, "condition", None, function.__closure__
    )
    return condition_function
