"""Live edits: functions of a running worker get the code of an edited source file.

Functions, methods, nested functions, coroutines and generators are found among all objects of the process,
whether imported or pickled by value, and get new code; running frames keep theirs. New functions, classes,
methods and imports are added, and changed assignments of a module run again. An edit is refused, before
anything is changed, if it needs other closure variables, class bases, decorators, `__slots__`, default values
other than literals, or other statements of a module, which only run at its import.

Modules that are imported later and functions that are unpickled later get the edited code as well. Files on
disk are not changed: other jobs may share them.
"""

from __future__ import annotations

import ast
import linecache
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from . import edit_hooks
from .edited_source import (
    BINDS,
    FUNCTIONS,
    Refused,
    Source,
    changed_names,
    define,
    has_raised,
    names_in,
    new_statements,
    refuse_definitions,
    refuse_statements,
    run,
)
from .loaded_sources import due, file_of, real_path, text_of, texts

# --- replacing ---------------------------------------------------------------------------


@dataclass
class _Change:
    """Planned replacement of one file's code in this process."""

    before: Source
    after: Source
    functions: list[FunctionType]
    codes: list[tuple[FunctionType, CodeType]] = field(default_factory=list)
    defaults: list[tuple[FunctionType, tuple[Any, ...] | None, dict[str, Any] | None]] = field(
        default_factory=list
    )
    methods: list[tuple[type, str, ast.stmt]] = field(default_factory=list)
    made: list[tuple[type, str, Any]] = field(default_factory=list)


def apply(texts: Mapping[str, str]) -> str:
    """Applies these sources, by path; returns an empty text, or why not, with nothing changed."""
    try:
        changes = [change for path, text in texts.items() if (change := _change(path, text)) is not None]
        with _Statements(changes):
            for change in changes:
                _replace(change)
    except Refused as refused:
        return str(refused)
    for path in texts:
        due.pop(real_path(path), None)  # The newest request wins.
    edit_hooks.know_lines()
    return ""


def changed(texts: Mapping[str, str]) -> dict[FunctionType, FunctionType]:
    """Returns the functions that would change, each with a copy that has the new code and defaults.

    Raises Refused, as far as that is known without running the sources.
    """
    changes = [change for path, text in texts.items() if (change := _change(path, text)) is not None]
    found = {function: _copy(function, code) for change in changes for function, code in change.codes}
    for change in changes:
        for function, defaults, by_name in change.defaults:
            copy = found.setdefault(function, _copy(function, function.__code__))
            copy.__defaults__, copy.__kwdefaults__ = defaults, by_name
    return found


def _copy(function: FunctionType, code: CodeType) -> FunctionType:
    made = FunctionType(code, {}, function.__name__, function.__defaults__, function.__closure__)
    made.__kwdefaults__ = function.__kwdefaults__
    return made


def apply_later(texts: Mapping[str, str]) -> None:
    """Schedules these sources, by path: the next call of a task in this process applies them first."""
    due.update({real_path(path): text for path, text in texts.items()})


def apply_due() -> None:
    texts = dict(due)
    due.clear()
    if why := apply(texts):
        sys.stderr.write(f"rayside: this worker runs its code without the edit: {why}\n")


def _change(path: str, text: str) -> _Change | None:
    real = real_path(path)
    before = texts.get(real) or Source.of(path, text_of(path))
    if real in texts and before.text == text:
        return None
    functions = _functions(real)
    if not (before.text or functions or Path(path).is_file()):
        raise Refused(f"{path} is no file of this job")
    change = _Change(before, Source.of(path, text), functions)
    refuse_definitions(before, change.after)
    if _modules(real):
        refuse_statements(before, change.after)
    for function in functions:
        code = edit_hooks.original(function.__code__)
        new = before.successor(code, function.__qualname__, change.after)
        if new is None:
            continue
        _note_defaults(change, function, code)
        # Python 3.10 compares code as equal if only the lines differ.
        if new == code and sys.version_info >= (3, 11):
            continue
        if new.co_freevars != code.co_freevars:
            raise Refused(
                f"{function.__qualname__} in {Path(path).name} would use other variables of the function"
                f" around it ({', '.join(sorted({*new.co_freevars} ^ {*code.co_freevars}))})"
            )
        change.codes.append((function, new))
    _note_methods(change, real)
    return change


def _note_defaults(change: _Change, function: FunctionType, code: CodeType) -> None:
    name = change.before.names.get(code, (function.__qualname__, 0))[0]
    old, new = change.before.definitions.get(name), change.after.definitions.get(name)
    if not (isinstance(old, FUNCTIONS) and isinstance(new, FUNCTIONS)):
        return
    if ast.dump(old.args) == ast.dump(new.args):
        return
    named = [each for each in zip(new.args.kwonlyargs, new.args.kw_defaults, strict=True) if each[1]]
    try:
        defaults = tuple(map(ast.literal_eval, new.args.defaults)) or None
        by_name = {argument.arg: ast.literal_eval(value) for argument, value in named if value} or None
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        raise Refused(f"the default values of {name} are computed only when it is defined") from None
    change.defaults.append((function, defaults, by_name))


def _note_methods(change: _Change, real: str) -> None:
    """Collects the methods that are new to classes."""
    wanted: dict[str, list[tuple[str, ast.stmt]]] = {}
    for name, definition in change.after.definitions.items():
        owner, _, bare = name.rpartition(".")
        is_in_class = isinstance(change.before.definitions.get(owner), ast.ClassDef)
        if is_in_class and name not in change.before.definitions:
            wanted.setdefault(owner, []).append((bare, definition))
    if wanted:
        from .evaluated import objects

        for each in objects.classes():
            for bare, definition in wanted.get(each.__qualname__, ()):
                if any(_is_in(member, real) for member in vars(each).values()):
                    change.methods.append((each, bare, definition))


def _is_in(member: object, real: str) -> bool:
    function = getattr(member, "__func__", member)
    return isinstance(function, FunctionType) and real_path(function.__code__.co_filename) == real


class _Statements:
    """Context that runs new statements of modules, and rolls back if something is refused."""

    def __init__(self, changes: Iterable[_Change]) -> None:
        self._changes = changes
        self._kept: list[tuple[dict[str, Any], dict[str, Any]]] = []

    def __enter__(self) -> None:
        try:
            for change in self._changes:
                for module in _modules(real_path(change.after.path)):
                    self._kept.append((vars(module), dict(vars(module))))
                    for statement in new_statements(change.before, change.after):
                        if isinstance(statement, BINDS):
                            run(statement, change.after, vars(module))
                _fill(change, self._kept)
                change.made = [(*each[:2], _method(*each, change.after)) for each in change.methods]
        except BaseException:
            self._take_back()
            raise

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._take_back()

    def _take_back(self) -> None:
        for namespace, before in reversed(self._kept):
            namespace.clear()
            namespace.update(before)


def _fill(change: _Change, kept: list[tuple[dict[str, Any], dict[str, Any]]]) -> None:
    """Gives functions that were pickled by value the new and changed globals that they use."""
    modules = {id(vars(module)) for module in _modules(real_path(change.after.path))}
    codes, changed = dict(change.codes), dict[int, set[str]]()
    for function in change.functions:
        namespace = function.__globals__
        if id(namespace) in modules:
            continue
        if id(namespace) not in changed:
            kept.append((namespace, dict(namespace)))
            changed[id(namespace)] = {*changed_names(change.before, change.after)}
        names = names_in(codes.get(function, function.__code__))
        define(names, change.after, namespace, changed[id(namespace)])


def _replace(change: _Change) -> None:
    for function, code in change.codes:
        function.__code__ = code  # The relay then has breakpoints compiled in again.
    for function, defaults, by_name in change.defaults:
        function.__defaults__, function.__kwdefaults__ = defaults, by_name
    for owner, name, method in change.made:
        type.__setattr__(owner, name, method)  # A metaclass may refuse it.
    path, text = change.after.path, change.after.text
    texts[real_path(path)] = change.after
    # Without a modification time, `linecache` does not check the file.
    for name in {path, *(code.co_filename for _, code in change.codes)}:
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)


def _method(owner: type, name: str, definition: ast.stmt, source: Source) -> Any:
    """Defines a method; its `super()` gets the class from a closure variable."""
    around = ast.parse("def around(__class__): pass").body[0]
    assert isinstance(around, ast.FunctionDef)
    around.body = [definition, ast.Return(ast.Name(name, ast.Load()))]
    # A decorated member may be of another module.
    member = next(each for each in vars(owner).values() if _is_in(each, real_path(source.path)))
    made: dict[str, Any] = {}
    run(around, source, getattr(member, "__func__", member).__globals__, made)
    try:
        method = made["around"](owner)
    except Exception as error:  # of a decorator, or a default value
        raise has_raised(error, definition.lineno, source) from error
    function = getattr(method, "__func__", method)
    if isinstance(function, FunctionType):
        function.__qualname__ = f"{owner.__qualname__}.{name}"
        _compile_in_class(function, source)
    return method


def _compile_in_class(function: FunctionType, source: Source) -> None:
    """Gives a new method its code compiled in the class, with private names mangled."""
    code = source.codes.get(function.__qualname__, [function.__code__])[-1]
    made = function.__code__  # A decorator may have made it.
    if (code.co_name, code.co_firstlineno, code.co_freevars) == (
        *(made.co_name, made.co_firstlineno, made.co_freevars),
    ):
        function.__code__ = code


def _modules(real: str) -> list[ModuleType]:
    return [module for module in list(sys.modules.values()) if real_path(file_of(module)) == real]


def _functions(real: str) -> list[FunctionType]:
    from .evaluated import objects

    found = objects.held(lambda code: real_path(code.co_filename) == real)
    return [each for each in found if type(each) is FunctionType]
