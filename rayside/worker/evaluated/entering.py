"""Hooks for new code in this process, and for access to a function's original code.

Imported and unpickled code gets its breakpoints compiled in. Other new code (`exec`, a function made from a
code object, Python's main program) is reported before it runs, by Python's audit events. An audit hook stays
for the process's life, so it does very little.

This relies on `exec_module` of importlib's loaders, and `_make_function` and `_code_reduce` of Ray's
cloudpickle.
https://docs.python.org/3/library/audit_events.html
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from types import CodeType, FunctionType
from typing import Any, Protocol

_CLOUDPICKLE = "ray.cloudpickle.cloudpickle"
_OURS, _UNDER = "_rayside_compiles", "_rayside_makes"  # the latter is sources.py's
_AUDITS = "_rayside_audits"
# Packages that read `__code__` only to describe a function. Others, such as numba and torch.compile, compile
# it: they get the original code, and the function is traced.
_DESCRIBE = frozenset(sys.stdlib_module_names) - {"dis", "marshal", "copy", "pickle", "types"} | {
    "ray",
    "debugpy",
    "pydevd",
}
_working = threading.local()  # `is_ours` while this thread compiles breakpoints in


class Taker(Protocol):
    """Interface of the breakpoints to these hooks."""

    def compiled_in(self, code: CodeType, namespace: dict[str, Any]) -> CodeType:
        """Returns the code with breakpoints to run with these globals in place of `code`."""

    def original(self, code: CodeType) -> CodeType:
        """Returns the original code."""

    def watches(self, filename: str) -> bool:
        """Returns whether there are breakpoints in the file of that `co_filename`."""

    def came(self, code: CodeType | None) -> None:
        """Handles code that runs without its breakpoints; None stands for any code."""

    def is_read(self, function: FunctionType) -> None:
        """Handles a read of a function's code by a package that may compile it: restores the original."""


class Ours:
    """A context in which this thread's own access to code is not reported."""

    def __enter__(self) -> None:
        self._before = getattr(_working, "is_ours", False)
        _working.is_ours = True

    def __exit__(self, *_: object) -> None:
        _working.is_ours = self._before


def is_ours() -> bool:
    """Returns whether this thread compiles in breakpoints; the program's finalizers may run meanwhile."""
    return bool(getattr(_working, "is_ours", False))


def watch(taker: Taker) -> None:
    """Installs the hooks for a taker; may be called again, for modules that were imported since."""
    _on_import(taker)
    module = sys.modules.get(_CLOUDPICKLE)
    if module is not None:
        _on_unpickling(module, taker)
        _on_pickling(module, taker)
    if not getattr(sys, _AUDITS, False):
        setattr(sys, _AUDITS, True)
        sys.addaudithook(_audited(taker))


def _compiled_in(taker: Taker, code: CodeType, namespace: dict[str, Any]) -> CodeType:
    """Returns the code to run in place of `code`; never raises, so that the program's import continues."""
    try:
        return taker.compiled_in(code, namespace)
    except Exception:  # code that `bytecode` does not support
        with suppress(Exception):  # No thread can be started.
            taker.came(code)
        return code


def _on_import(taker: Taker) -> None:
    # Type checkers know no importable name of this module.
    loaders: Any = sys.modules["importlib._bootstrap_external"]
    run = loaders._bootstrap._call_with_frames_removed
    execute = loaders._LoaderBasics.exec_module
    if hasattr(execute, _OURS):
        return

    def exec_module(self: Any, module: Any) -> None:
        code = None
        if taker.watches(getattr(self, "path", "") or ""):
            code = self.get_code(module.__name__)
        if code is None:
            execute(self, module)
        else:
            run(exec, _compiled_in(taker, code, module.__dict__), module.__dict__)
        # A driver's breakpoints are set before it imports Ray. A module may have deleted its name.
        if getattr(module, "__name__", "") == _CLOUDPICKLE:
            watch(taker)

    # With importlib's file name, it is left out of tracebacks of a module's exceptions.
    exec_module.__code__ = exec_module.__code__.replace(co_filename=execute.__code__.co_filename)
    setattr(exec_module, _OURS, True)
    loaders._LoaderBasics.exec_module = exec_module


def _on_unpickling(module: Any, taker: Taker) -> None:
    make = module._make_function
    if hasattr(make, _OURS):
        return

    def over(under: Callable[..., FunctionType]) -> Callable[..., FunctionType]:
        def _make_function(code: CodeType, *arguments: Any) -> FunctionType:
            if not taker.watches(code.co_filename) and not hasattr(under, _UNDER):
                return under(code, *arguments)
            with Ours():
                function = under(code, *arguments)
                compiled_in = _compiled_in(taker, code, function.__globals__)
                if compiled_in is not code:
                    function.__code__ = compiled_in
            return function

        # cloudpickle pickles its own functions by their name.
        _make_function.__module__, _make_function.__qualname__ = make.__module__, make.__qualname__
        setattr(_make_function, _OURS, True)
        return _make_function

    outermost = over(make)
    if hasattr(make, _UNDER):
        # sources.py later replaces this function by its own, which calls the function found here.
        setattr(outermost, _UNDER, over(getattr(make, _UNDER)))
    module._make_function = outermost


def _on_pickling(module: Any, taker: Taker) -> None:
    table = module.CloudPickler._dispatch_table
    reduce = table[CodeType]
    if hasattr(reduce, _OURS):
        return

    def reduce_original(code: CodeType) -> Any:
        return reduce(taker.original(code))

    setattr(reduce_original, _OURS, True)
    table[CodeType] = reduce_original


def _audited(taker: Taker) -> Callable[[str, tuple[Any, ...]], None]:
    def runs(code: Any, *_: Any) -> None:
        if isinstance(code, CodeType) and taker.watches(code.co_filename):
            taker.came(code)

    def main(filename: Any, *_: Any) -> None:
        if isinstance(filename, str) and taker.watches(filename):
            taker.came(None)

    def is_set(target: Any, name: Any, value: Any = None, *_: Any) -> None:
        if name == "__code__":
            runs(value)

    def is_read(target: Any, name: Any, *_: Any) -> None:
        if name == "__code__" and type(target) is FunctionType and _reader() not in _DESCRIBE:
            taker.is_read(target)

    told: dict[str, Callable[..., None]] = {
        "exec": runs,
        "function.__new__": runs,
        "cpython.run_file": main,
        "object.__setattr__": is_set,
        "object.__getattr__": is_read,
    }

    def audit(event: str, arguments: tuple[Any, ...]) -> None:
        if event in told and not is_ours():
            with Ours(), suppress(Exception):  # an exception would abort the program's operation
                told[event](*arguments)

    return audit


def _reader() -> str:
    """Returns the top-level package of the reader: the caller of `audit`, `is_read` and `_reader`."""
    frame = sys._getframe(3)
    name = str(frame.f_globals.get("__name__") or "").partition(".")[0]
    return "debugpy" if name.startswith(("_pydev", "pydev", "_rayside", "rayside")) else name
