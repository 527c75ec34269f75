"""Compiled source of one file, and checks whether a running process can take its changes."""

from __future__ import annotations
import __future__

import ast
import builtins
import traceback
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from types import CodeType
from typing import Any

_OPTIMIZED = 0x1  # CO_OPTIMIZED: the code of a function, not of a class or a module
DEFINES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
BINDS = (*DEFINES, ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign)


class Refused(Exception):
    """Error for an edit that can't be applied; the message is one sentence with the reason."""


@dataclass(eq=False)
class Source:
    """Source of a file, with its code objects and definitions by qualified name."""

    path: str
    text: str
    tree: ast.Module
    code: CodeType
    codes: dict[str, list[CodeType]] = field(default_factory=dict)
    names: dict[CodeType, tuple[str, int]] = field(default_factory=dict)
    definitions: dict[str, ast.stmt] = field(default_factory=dict)

    @classmethod
    def of(cls, path: str, text: str) -> Source:
        """Compiles a text. Raises Refused."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tree = ast.parse(text, path)
                code = compile(text, path, "exec", dont_inherit=True)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            at = f":{error.lineno}" if isinstance(error, SyntaxError) else ""
            said = error.msg if isinstance(error, SyntaxError) else str(error)
            raise Refused(f"{Path(path).name}{at}: {said}") from None
        source = cls(path, text, tree, code)
        for name, each in _named_codes(code):
            alike = source.codes.setdefault(name, [])
            source.names.setdefault(each, (name, len(alike)))
            alike.append(each)
        source.definitions.update(_definitions(tree))
        return source

    def successor(self, code: CodeType, qualname: str, edited: Source) -> CodeType | None:
        """Returns the code that replaces a function's code in the edited source; None if it has none.

        `qualname` is the function's own name, for code from an earlier version of the file.
        """
        name, index = self.names.get(code, (getattr(code, "co_qualname", qualname), 0))
        before, after = self.codes.get(name, [code]), edited.codes.get(name, [])
        return after[index] if len(before) == len(after) else None


def _named_codes(code: CodeType, prefix: str = "") -> Iterator[tuple[str, CodeType]]:
    """Yields all nested code with its qualified name, which Python 3.10 does not store."""
    for each in code.co_consts:
        if isinstance(each, CodeType):
            name = prefix + each.co_name
            yield name, each
            yield from _named_codes(each, f"{name}.<locals>." if each.co_flags & _OPTIMIZED else f"{name}.")


def _definitions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, ast.stmt]]:
    for each in ast.iter_child_nodes(tree):
        if isinstance(each, DEFINES):
            name = prefix + each.name
            yield name, each
            yield from _definitions(each, f"{name}.<locals>." if isinstance(each, FUNCTIONS) else f"{name}.")
        elif not isinstance(each, ast.expr):
            yield from _definitions(each, prefix)


def refuse_definitions(before: Source, after: Source) -> None:
    """Raises Refused for a changed definition that a running process can't take."""
    file = Path(after.path).name
    for name, new in after.definitions.items():
        old = before.definitions.get(name)
        if old is None:
            continue
        if type(old) is not type(new):
            raise Refused(f"{name} in {file} is another kind of definition than before")
        if _dump(old.decorator_list) != _dump(new.decorator_list):  # type: ignore[attr-defined]
            raise Refused(f"the decorators of {name} in {file} are run only when it is defined")
        if isinstance(old, ast.ClassDef) and isinstance(new, ast.ClassDef):
            if _dump([*old.bases, *old.keywords]) != _dump([*new.bases, *new.keywords]):
                raise Refused(f"the bases of class {name} in {file} can't be changed")
            was, wanted = ([*map(_dump, _attributes(each))] for each in (old, new))
            if was != wanted:
                changed = next((each for each in _attributes(new) if _dump(each) not in was), None)
                line = f" (line {changed.lineno})" if changed is not None else ""
                raise Refused(f"what class {name} in {file} has besides methods can't be changed{line}")


def _attributes(definition: ast.ClassDef) -> list[ast.stmt]:
    """Returns the statements of a class that only run at its definition, such as `__slots__`."""
    return [each for each in definition.body if not isinstance(each, DEFINES) and not _says_nothing(each)]


def _says_nothing(statement: ast.stmt) -> bool:
    """Returns whether a statement is a constant, such as a docstring, or `pass`."""
    is_text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return is_text or isinstance(statement, ast.Pass)


def refuse_statements(before: Source, after: Source) -> None:
    for statement in new_statements(before, after):
        if not isinstance(statement, BINDS) and not _is_for_programs(statement):
            raise Refused(
                f"line {statement.lineno} of {Path(after.path).name} is run only when the module is imported"
            )


def new_statements(before: Source, after: Source) -> Iterator[ast.stmt]:
    """Yields the module's statements that are new in `after`, without changed definitions."""
    known = {_dump(each) for each in before.tree.body}
    for statement in after.tree.body:
        is_known = isinstance(statement, DEFINES) and statement.name in before.definitions
        if not is_known and _dump(statement) not in known and not _says_nothing(statement):
            yield statement


def _is_for_programs(statement: ast.stmt) -> bool:
    """Returns whether it is `if __name__ == "__main__":`, or `if TYPE_CHECKING:`."""
    return isinstance(statement, ast.If) and any(
        isinstance(each, ast.Name) and each.id in ("__name__", "TYPE_CHECKING")
        for each in ast.walk(statement.test)
    )


def _dump(node: Any) -> str:
    return ",".join(map(ast.dump, node)) if isinstance(node, list) else ast.dump(node)


def run(
    statement: ast.stmt, source: Source, namespace: dict[str, Any], names: dict[str, Any] | None = None
) -> None:
    """Runs a statement of a source under the `__future__` imports of that source. Raises Refused."""
    module = ast.fix_missing_locations(ast.Module([statement], []))
    future = source.code.co_flags & __future__.annotations.compiler_flag
    try:
        code = compile(module, source.path, "exec", flags=future, dont_inherit=True)
        exec(code, namespace, names)
    except Exception as error:
        raise has_raised(error, statement.lineno, source) from error


def has_raised(error: Exception, line: int, source: Source) -> Refused:
    why = "".join(traceback.format_exception_only(type(error), error)).strip()  # `__str__` may raise, too
    return Refused(f"line {line} of {Path(source.path).name} raised {why}")


def define(names: Iterable[str], source: Source, namespace: dict[str, Any], changed: set[str]) -> None:
    """Defines these names in a namespace that lacks them, as the source does. Raises Refused.

    `changed` has the names to define again; each is removed once that is done.
    """
    for name in names:
        if name not in changed and (name in namespace or hasattr(builtins, name)):
            continue
        statement = next((each for each in source.tree.body if name in _bound(each)), None)
        if statement is not None:
            # A definition needs the names that it uses, perhaps also its own, which is therefore set first.
            namespace.setdefault(name, None)
            changed -= _bound(statement)
            used = [each.id for each in ast.walk(statement) if isinstance(each, ast.Name)]
            define(used, source, namespace, changed)
            run(statement, source, namespace)


@lru_cache(maxsize=32)
def changed_names(before: Source, after: Source) -> frozenset[str]:
    """Returns the names that new statements in `after` bind, without changed definitions."""
    return frozenset().union(*map(_bound, new_statements(before, after)))


def _bound(statement: ast.stmt) -> set[str]:
    if isinstance(statement, DEFINES):
        return {statement.name}
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        return {alias.asname or alias.name.partition(".")[0] for alias in statement.names}
    if isinstance(statement, (ast.Assign, ast.AnnAssign)):
        names = [each for each in ast.walk(statement) if isinstance(each, ast.Name)]
        return {each.id for each in names if isinstance(each.ctx, ast.Store)}
    return set()


def names_in(code: CodeType) -> set[str]:
    inner = [each for each in code.co_consts if isinstance(each, CodeType)]
    return {*code.co_names}.union(*map(names_in, inner))
