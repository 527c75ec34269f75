"""Edits of source files in a running worker: functions get the code that the edited text gives them.

Functions, methods, nested functions, coroutines and generators are found among all objects of the process, in
modules and by value alike, and get new code; frames that run keep theirs. New functions, classes, methods and
imports are added, and changed assignments of a module are run again. What can't be replaced is refused before
anything is changed: a closure over other variables, a class's bases, decorators, `__slots__`, default values
that are no literals, and other statements of a module, which were run when it was imported.

A file that is imported later, and a function that is unpickled later, have the edited code, too. Files on
disk are not changed, for other jobs may share them.
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

from . import later_code
from .edited_source import (
    BINDS,
    FUNCTIONS,
    Refused,
    Source,
    define,
    has_raised,
    names_in,
    new_statements,
    refuse_definitions,
    refuse_statements,
    run,
)
from .loaded_texts import due, file_of, real_path, text_of, texts

# --- replacing ---------------------------------------------------------------------------


@dataclass
class _Change:
    """Replacement of one file's code in this process, decided but not done."""

    before: Source
    after: Source
    codes: list[tuple[FunctionType, CodeType]] = field(default_factory=list)
    defaults: list[tuple[FunctionType, tuple[Any, ...] | None, dict[str, Any] | None]] = field(
        default_factory=list
    )
    methods: list[tuple[type, str, ast.stmt]] = field(default_factory=list)
    made: list[tuple[type, str, Any]] = field(default_factory=list)


def apply(texts: Mapping[str, str]) -> str:
    """Makes these texts, by path, what the process runs; returns why not, and has changed nothing then."""
    try:
        changes = [change for path, text in texts.items() if (change := _change(path, text)) is not None]
        with _Statements(changes):
            for change in changes:
                _replace(change)
    except Refused as refused:
        return str(refused)
    for path in texts:
        due.pop(real_path(path), None)  # What is asked for last holds.
    later_code.know_lines()
    return ""


def changed(texts: Mapping[str, str]) -> dict[FunctionType, FunctionType]:
    """Returns the functions that would change, each with one that has its new code and defaults.

    Raises Refused, as far as that is known without running the texts.
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
    """Keeps these texts, which the next call of a task in this process applies before it begins."""
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
    change = _Change(before, Source.of(path, text))
    refuse_definitions(before, change.after)
    if _modules(real):
        refuse_statements(before, change.after)
    for function in functions:
        code = later_code.original(function.__code__)
        new = before.successor(code, function.__qualname__, change.after)
        if new is None:
            continue
        _note_defaults(change, function, code)
        # Python 3.10 takes code as equal whose lines are others.
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
    """Notes the methods that classes get anew."""
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
    """Context that runs what modules get anew, and takes it back where something is refused."""

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
    """Gives functions that came by value the globals that their new code names, and the text defines."""
    modules = [vars(module) for module in _modules(real_path(change.after.path))]
    for function, code in change.codes:
        namespace = function.__globals__
        if not any(namespace is each for each in modules):
            kept.append((namespace, dict(namespace)))
            define(names_in(code), change.after, namespace)


def _replace(change: _Change) -> None:
    for function, code in change.codes:
        function.__code__ = code  # Breakpoints are compiled into it anew: entering.py is told.
    for function, defaults, by_name in change.defaults:
        function.__defaults__, function.__kwdefaults__ = defaults, by_name
    for owner, name, method in change.made:
        type.__setattr__(owner, name, method)  # A metaclass may refuse it.
    path, text = change.after.path, change.after.text
    texts[real_path(path)] = change.after
    # Without a time of change `linecache` does not look at the file.
    for name in {path, *(code.co_filename for _, code in change.codes)}:
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)


def _method(owner: type, name: str, definition: ast.stmt, source: Source) -> Any:
    """Makes a method; `super()` in it finds its class as the variable of a function around it."""
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
    """Gives a new method the code that its class would: names that begin with `__` are the class's own."""
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
