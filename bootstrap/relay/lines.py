"""Knows which lines of a Python source a debugger can stop at."""

from __future__ import annotations

from dataclasses import dataclass

_MOST_LINES = 10**6


@dataclass(frozen=True)
class Lines:
    """Describes the lines of one source, counted from 1.

    Attributes:
        code: the lines that have code of their own.
        statements: first and last of each statement that is spread over several, and has none in it.
        functions: first and last of each function.
        indents: how far each line is indented; 0 for an empty one.
    """

    code: frozenset[int]
    statements: tuple[tuple[int, int], ...]
    functions: tuple[tuple[int, int], ...]
    indents: tuple[int, ...]

    @classmethod
    def read(cls, document: object) -> Lines | None:
        """Reads what a debuggee answered (`line_table`); None where it is nothing of the kind."""
        if not isinstance(document, dict):
            return None
        lists: list[list[int]] = []
        for name in ("code", "statements", "functions", "indents"):
            numbers = document.get(name)
            if not isinstance(numbers, list) or not all(map(_is_line, numbers)):
                return None
            lists.append(numbers)
        code, statements, functions, indents = lists
        return cls(frozenset(code), _pairs(statements), _pairs(functions), tuple(indents))

    def nearest(self, line: int) -> int | None:
        """Returns the line where a breakpoint on `line` stops: that one, one of its statement, or the next
        with code of the same function; None where there is none."""
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
        return at if self._indent(line) <= self._indent(at) else None

    def column(self, line: int) -> int:
        """Returns the column at which the text of a line begins, counted from 1."""
        return self._indent(line) + 1

    def _indent(self, line: int) -> int:
        return self.indents[line - 1] if 0 < line <= len(self.indents) else 0

    def _function(self, line: int) -> tuple[int, int] | None:
        """Returns the innermost function whose body the line is in."""
        return max((span for span in self.functions if span[0] < line <= span[1]), default=None)


def _pairs(numbers: list[int]) -> tuple[tuple[int, int], ...]:
    return tuple(zip(numbers[::2], numbers[1::2], strict=False))


def _is_line(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and 0 <= number <= _MOST_LINES
