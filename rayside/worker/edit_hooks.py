"""Edited code for later imports and unpickled functions of a worker, and for pydevd's breakpoint lines.

This relies on `get_code` of importlib's SourceFileLoader, `_function_setstate` of Ray's cloudpickle, which
fills each function that was pickled by value, and `_get_code_lines` of pydevd's API (pydevd 1.8.22).
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

from .edited_source import Refused, Source, changed_names, define, names_in
from .loaded_sources import loaded, note, read, real_path, texts

_OURS = "_rayside_edits"
_firsts: dict[str, Source] = {}  # submitted sources of the edited files, by real path


def original(code: CodeType) -> CodeType:
    """Returns the code without compiled-in breakpoints."""
    compiled = sys.modules.get(f"{__package__}.evaluated.compiled")
    original: CodeType = compiled._breakpoints.original(code) if compiled is not None else code
    return original


def follow() -> None:
    """Makes later imports and unpickled functions use edited code, and records their source files."""
    loader: Any = sys.modules["importlib._bootstrap_external"].SourceFileLoader
    _put(loader, "get_code", _over_get_code)
    _put(sys.modules["ray.cloudpickle.cloudpickle"], "_function_setstate", _over_setstate)


def know_lines() -> None:
    """Makes pydevd, if it is loaded, move breakpoints by the lines of edited sources."""
    if api := sys.modules.get("_pydevd_bundle.pydevd_api"):
        _put(api, "_get_code_lines", _over_code_lines)


def _put(owner: Any, name: str, over: Callable[[Any], Any]) -> None:
    under = getattr(owner, name)
    if not hasattr(under, _OURS):
        new = over(under)
        new.__module__, new.__qualname__ = under.__module__, under.__qualname__
        setattr(new, _OURS, True)
        setattr(owner, name, new)


def _over_get_code(under: Any) -> Any:
    def get_code(self: Any, fullname: str) -> Any:
        if not isinstance(self.path, str):
            return under(self, fullname)
        note(self.path)
        edited = texts.get(real_path(self.path))
        return under(self, fullname) if edited is None else edited.code

    return get_code


def _over_code_lines(under: Any) -> Any:
    """Moves breakpoints by the lines of the edited source in place of the file's (pydevd's `adjust_line`)."""

    def _get_code_lines(code: Any) -> Any:
        edited = texts.get(real_path(code)) if isinstance(code, str) else None
        return under(code if edited is None else edited.code)

    return _get_code_lines


def _over_setstate(under: Any) -> Any:
    def _function_setstate(function: Any, state: Any) -> Any:
        result = under(function, state)
        if isinstance(function, types.FunctionType):
            try:
                _renew(function)
            except Refused as refused:
                sys.stderr.write(f"rayside: {function.__qualname__} runs without the edit: {refused}\n")
        return result

    return _function_setstate


def _renew(function: FunctionType) -> None:
    """Gives a function that was just unpickled the code of the edited source."""
    code = function.__code__
    note(code.co_filename)
    edited = texts.get(real := real_path(code.co_filename))
    if edited is None:
        return
    if real not in _firsts:
        _firsts[real] = Source.of(edited.path, loaded.get(real) or read(edited.path))
    new = _firsts[real].successor(original(code), function.__qualname__, edited)
    if new is not None and new.co_freevars == code.co_freevars:
        define(names_in(new), edited, function.__globals__, {*changed_names(_firsts[real], edited)})
        function.__code__ = new
