"""Breakpoints in functions whose file this process does not have, set before they run.

What a driver defines itself reaches tasks as code, not as a file: pickled by value. Where the driver's file
lies on another machine (a notebook's, or one that no package brought along), its breakpoints can be set only
once such a function is there. So the thread that makes it waits a moment for the relay.
It leans on `_make_function` of Ray's cloudpickle, which makes each of them, and on `exists` of pydevd, which
sets no breakpoint in a file that is not there.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable
from types import CodeType, FunctionType
from typing import Any

from . import objects, reached

_MAKES = "ray.cloudpickle.cloudpickle"
_OURS = "_rayside_makes"

_Table = tuple[set[int], set[tuple[int, int]]]  # the lines with code; first and last of each function
_awaited: set[str] = set()
_tables: dict[str, _Table] = {}


def await_files(paths: Iterable[str]) -> dict[str, dict[str, list[int]]]:
    """Tells the relay of functions of these files from now on; returns a line table of each that has any.

    The tables are as in line_table.py, without what only a text can tell.
    """
    _awaited.clear()
    _awaited.update(paths)
    _watch(sys.modules.get(_MAKES))
    _have_files_exist()
    for each in objects.held(lambda code: code.co_filename in _awaited):
        if type(each) is FunctionType:
            _add(each.__code__)
    return {path: table(path) for path in _awaited if path in _tables}


def table(path: str) -> dict[str, list[int]]:
    """Returns the line table of the functions of that file that this process has by now."""
    code, functions = _tables.get(path, (set(), set()))
    spans = [line for function in sorted(functions) for line in function]
    return {"code": sorted(code), "statements": [], "functions": spans, "indents": []}


def _watch(module: Any) -> None:
    make = getattr(module, "_make_function", None)
    if make is None:
        return
    make = getattr(make, _OURS, make)  # the original, where an earlier connection replaced it

    # It has the name of cloudpickle's, which pickles its own functions by their name.
    @functools.wraps(make)
    def make_and_tell(code: CodeType, *args: Any, **kwargs: Any) -> Any:
        if code.co_filename in _awaited:
            _tell(code)
        return make(code, *args, **kwargs)

    setattr(make_and_tell, _OURS, make)
    module._make_function = make_and_tell


def _have_files_exist() -> None:
    files = sys.modules["pydevd_file_utils"]
    exists = getattr(files.exists, _OURS, files.exists)

    def exists_or_came(path: str) -> bool:
        return path in _tables or bool(exists(path))

    setattr(exists_or_came, _OURS, exists)
    files.exists = exists_or_came  # type: ignore[attr-defined]


def _tell(code: CodeType) -> None:
    if not _add(code):
        return
    if sys.modules["pydevd"]._is_attached():
        reached.ask({"key": 0, "what": "file", "text": code.co_filename})


def _add(code: CodeType) -> bool:
    """Adds code, and what is defined in it, to its file's table; returns whether that has more lines now."""
    lines, functions = _tables.setdefault(code.co_filename, (set(), set()))
    before = len(lines)
    todo = [code]
    while todo:
        at = todo.pop()
        own = {line for _, _, line in at.co_lines() if line}
        if own:
            functions.add((at.co_firstlineno, max(own)))
        # At its `def` nothing stops: that was run where the function was defined.
        lines |= own - {at.co_firstlineno} or own
        todo += [constant for constant in at.co_consts if isinstance(constant, CodeType)]
    return len(lines) > before
