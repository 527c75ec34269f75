"""Which lines of a Python source a debugger can stop at."""

from __future__ import annotations

import ast
import warnings
from dataclasses import dataclass
from types import CodeType


@dataclass(frozen=True)
class Lines:
    """Of one source, counted from 1.

    Attributes:
        code: those that have code of their own.
        statements: first and last of each statement that is spread over several, and has none in it.
        functions: first and last of each function.
        indents: how far each is indented; 0 for an empty one.
    """

    code: frozenset[int]
    statements: tuple[tuple[int, int], ...]
    functions: tuple[tuple[int, int], ...]
    indents: tuple[int, ...]

    @classmethod
    def of(cls, text: str) -> Lines | None:
        """None where it isn't Python, or another Python's."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tree = ast.parse(text)
                code = compile(tree, "<source>", "exec", dont_inherit=True)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None
        simple, functions = [], []
        for node in ast.walk(tree):
            if not isinstance(node, ast.stmt):
                continue
            span = (node.lineno, node.end_lineno or node.lineno)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                functions.append(span)
            elif not hasattr(node, "body") and span[1] > span[0]:
                simple.append(span)
        indents = tuple(len(line) - len(line.lstrip()) for line in text.splitlines())
        return cls(frozenset(_lines(code)), tuple(simple), tuple(functions), indents)

    def nearest(self, line: int) -> int | None:
        """Where a breakpoint on `line` stops: there, at the statement it is in, or at the next line with
        code of the same function; None where there is none."""
        if line in self.code:
            return line
        for first, last in self.statements:
            if first <= line <= last:
                return next((at for at in range(first, last + 1) if at in self.code), None)
        function = self._function(line)
        after = (at for at in sorted(self.code) if line < at and self._function(at) == function)
        at = next(after, None)
        if at is None or function is not None:
            return at
        # A comment at the end of a function is not the next function's.
        return at if self.indents[line - 1] <= self.indents[at - 1] else None

    def _function(self, line: int) -> tuple[int, int] | None:
        """The innermost function whose body the line is in."""
        return max((span for span in self.functions if span[0] < line <= span[1]), default=None)


def _lines(code: CodeType) -> set[int]:
    # Line 0 is what Python 3.11 gives a module's first instruction.
    found = {line for _, _, line in code.co_lines() if line}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found |= _lines(constant)
    return found
