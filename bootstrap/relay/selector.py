"""Reads what says who belongs to a group: an expression over attributes of `ray`, or a short form of one.

The relay itself decides, by attributes that it knows: no code of a user's runs for it, here or in a task, and
a process that does not answer is still known to belong. So it takes only what can be decided so.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from types import CodeType, SimpleNamespace

from bootstrap.dap.expressions import may_be_compiled, refusal_of
from bootstrap.hook.evaluated.scope import OF_PROCESS
from bootstrap.relay.editor import Refused

# The relay knows these by itself; OF_PROCESS it asks the processes for. `task_id` and `attempt` are another
# in each thread, and with each call.
OF_RELAY = ("task", "node", "job", "submission", "worker_id", "pid")
_NAMES = (*OF_RELAY, *OF_PROCESS)
_NUMBERS = frozenset({"rank", "pid"})
_ALONE = {"all": "True", "ranks": "ray.rank is not None"}
_WITH_VALUE = re.compile(r"(actor|job|node|task)\s*:\s*(\S.*)")
_METHODS = frozenset({"startswith", "endswith"})
FORMS = "all, ranks, actor:CLASS, node:IP, task:NAME, job:ID"
_HINT = f"a group is {FORMS}, or an expression such as `ray.rank in (0, 3)` or `ray.actor == 'Trainer'`"
# Of these nothing in an expression can become large, or run for long.
_HARMLESS = (
    *(ast.Expression, ast.expr_context, ast.BoolOp, ast.boolop, ast.Not, ast.Compare, ast.cmpop),
    *(ast.Tuple, ast.List, ast.Set),
)


@dataclass(frozen=True)
class Selector:
    """Decides who belongs to a group.

    Attributes:
        expression: what it reads, also where a short form was typed.
        asks: whether it needs an attribute that only the processes know.
    """

    expression: str
    asks: bool
    _code: CodeType

    @classmethod
    def of(cls, text: str) -> Selector:
        """Reads a selector. Raises Refused, which says what is wrong, and what can be typed."""
        expression = _expanded(text.strip())
        if problem := refusal_of(expression):
            raise Refused(f"{problem}: {_HINT}")
        if not may_be_compiled(expression):
            raise Refused(f"its brackets are nested too deeply: {_HINT}")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tree = ast.parse(expression, "<group>", mode="eval")
                asks = {_checked(node) for node in ast.walk(tree)} & {*OF_PROCESS}
                return cls(expression, bool(asks), compile(tree, "<group>", "eval"))
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise Refused(f"it can't be read as a group: {error}: {_HINT}") from None

    def takes(self, attributes: Mapping[str, object]) -> bool:
        """Returns whether who has these attributes belongs.

        Where they can't be compared, that is a no: of who has no rank, `ray.rank < 4` does not hold.
        """
        names = {"__builtins__": {}, "ray": SimpleNamespace(**{**dict.fromkeys(_NAMES), **attributes})}
        try:
            return bool(eval(self._code, names))
        except (TypeError, AttributeError, ZeroDivisionError):
            return False


def _expanded(text: str) -> str:
    """Returns the expression that a short form stands for; any other text as it is."""
    if text in _ALONE:
        return _ALONE[text]
    form = _WITH_VALUE.fullmatch(text)
    if form is None:
        return text
    name, value = form.groups()
    if name == "job":
        return f"{value!r} in (ray.job, ray.submission)"
    return f"ray.{name} == {value!r}"


def _checked(node: ast.AST) -> str:
    """Returns the attribute of `ray` that a part of an expression is, else nothing. Raises Refused."""
    match node:
        case ast.Attribute(value=ast.Name(id="ray"), attr=name) if name in _NAMES:
            return name
        case ast.Attribute(value=ast.Name(id="ray"), attr=name):
            raise Refused(f"of `ray`, a group has {', '.join(_NAMES)}, and no {name!r}")
        case ast.Call(func=ast.Attribute(attr=method), keywords=[]) if method in _METHODS:
            return ""
        case ast.Attribute(attr=method) if method in _METHODS:
            return ""
        # A text's % would make a text of any length of it.
        case ast.BinOp(left=ast.Attribute(attr=name), op=ast.Mod()) if name in _NUMBERS:
            return ""
        case ast.UnaryOp(op=ast.Not() | ast.USub()) | ast.Mod() | ast.USub():
            return ""
        case ast.Name(id="ray") | ast.Constant(value=str() | int() | float() | None):
            return ""
        case ast.Name(id=name):
            raise Refused(f"{name!r} is no group, and an expression has no name but `ray`: {_HINT}")
    if not isinstance(node, _HARMLESS):
        raise Refused(f"`{ast.unparse(node)[:100]}` is nothing that a group can be told by: {_HINT}")
    return ""
