"""Functions of a debuggee that a function breakpoint would stop in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import FunctionType
from typing import Any

from . import objects, reached


def are_loaded(names: Iterable[str]) -> list[bool]:
    """Returns, for each name, whether this process has such a function that the debugger would stop in."""
    pydevd = reached.debugger()
    last_names = {name.rpartition(".")[2] for name in names}
    found = objects.held(lambda code: code.co_name in last_names)
    functions = [each for each in found if type(each) is FunctionType]

    users = [function for function in functions if _is_users(pydevd, function)]

    def has(name: str) -> bool:
        if any(reached.is_named(each.__qualname__, str(each.__module__), name) for each in users):
            return True
        owners = [each for each in _classes() if f".{each.__name__}." in f".{name}"] if users else []
        return any(reached.is_method(owner, each.__code__, name) for owner in owners for each in users)

    return [has(name) for name in names]


def _classes() -> Iterator[type]:
    left, seen = [object], set[int]()
    while left:
        each = left.pop()
        yield each
        new = [found for found in type.__subclasses__(each) if id(found) not in seen]
        seen.update(map(id, new))
        left += new


def _is_users(pydevd: Any, function: FunctionType) -> bool:
    """Returns whether the debugger stops in a function's file: not in libraries, with `justMyCode`."""
    try:
        return not pydevd.get_use_libraries_filter() or bool(
            pydevd.in_project_roots_filename_uncached(function.__code__.co_filename)
        )
    except Exception:
        return True
