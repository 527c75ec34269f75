"""Code objects with compiled-in breakpoints, and the record of each one's breakpoints.

This relies on pydevd 1.8.22 for the names of files.

Conditions become functions, called with the local variables that they use. Evaluated on `f_locals`, a
condition slows down a loop five to ten times; as a function of few variables, to half its speed. The
value is the same except for names in nested scopes of a condition (a lambda, a generator), which an
evaluated condition would look up among the globals alone.
"""

from __future__ import annotations

import ast
import sys
import types
import weakref
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

from . import flow, inserted, stopping

_MOST_NAMES = 10_000  # limit of cached file names

_Lines = dict[int, str]  # as in stopping.py


class Codes:
    """Code objects with compiled-in breakpoints. Not thread-safe: the caller holds a lock.

    Attributes:
        files: the breakpoints of each file, by pydevd's name of the file.
    """

    def __init__(self) -> None:
        self.files: dict[str, _Lines] = {}
        self._names: dict[str, str] = {}  # pydevd's name of a file, by `co_filename`
        self._codes: dict[int, tuple[weakref.ref[CodeType], CodeType, _Lines]] = {}  # ours, by id
        # By original code and globals, while referenced: each unpickled function has its own globals.
        self._made: weakref.WeakValueDictionary[tuple[int, int], CodeType] = weakref.WeakValueDictionary()

    def set(self, files: dict[str, _Lines]) -> None:
        """Sets the breakpoints for code that is made from now on."""
        self.files = files
        self._made.clear()

    def _file(self, filename: str) -> str:
        """Returns pydevd's name of the file, the key of its breakpoints; the same for each link to it."""
        name = self._names.get(filename)
        if name is None:
            if len(self._names) > _MOST_NAMES:
                self._names.clear()
            files = sys.modules["pydevd_file_utils"]
            name = str(files.get_abs_path_real_path_and_base_from_file(filename)[1])
            self._names[filename] = name
        return name

    def watches(self, filename: str) -> bool:
        """Returns whether there are breakpoints in the file of that `co_filename`."""
        # Names such as "<string>" are no files; a notebook's cells are traced.
        # A loader's path may be any object.
        if not self.files or type(filename) is not str or filename.startswith("<"):
            return False
        try:
            return self._file(filename) in self.files
        except OSError:  # a relative path, after the working directory was removed
            return False

    def concerns(self, code: CodeType) -> bool:
        """Returns whether code has breakpoints, or compiled-in ones to remove."""
        return self.watches(code.co_filename) or self.original(code) is not code

    def original(self, code: CodeType) -> CodeType:
        """Returns the original code."""
        ours = self._codes.get(id(code))
        return code if ours is None or ours[0]() is not code else ours[1]

    def compiled_in(self, code: CodeType, namespace: dict[str, Any]) -> CodeType:
        """Returns the code with breakpoints to run with these globals; `code` itself if it has none."""
        lines = self.lines(code)
        if not lines:
            return code
        key = id(code), id(namespace)
        made = self._made.get(key)
        if made is None or self.original(made) is not code:
            made = self._made[key] = self._make(code, namespace, lines)
        return made

    def _make(self, code: CodeType, namespace: dict[str, Any], lines: _Lines) -> CodeType:
        file = self._file(code.co_filename)

        def call(line: int, inner: CodeType) -> inserted.Call:
            place = stopping.Place(file, line, lines[line])
            condition = stopping.condition_of(lines[line])
            names = names_of(condition, inner) if condition else None
            if names is None:
                return inserted.Call(place.reach)
            function = function_of(condition, names, namespace, place.raised)
            return inserted.Call(place.stop, function, names, place.reach)

        def remember(new: CodeType, code: CodeType) -> None:
            key = id(new)
            self._codes[key] = weakref.ref(new, lambda _: self._codes.pop(key, None)), code, lines

        loops = stopping.tells_loops()
        return inserted.with_calls(code, lines, call, loops=loops, made=remember)

    def lines(self, code: CodeType) -> _Lines:
        """Returns the lines with breakpoints in a code object, including nested ones."""
        if not self.watches(code.co_filename):
            return {}
        wanted = self.files[self._file(code.co_filename)]
        own = {line: wanted[line] for line in inserted.lines_of(code) if line in wanted}
        for each in inserted.inner(code):
            own.update(self.lines(each))
        return own

    def _has(self, code: CodeType) -> _Lines:
        """Returns the lines with compiled-in breakpoints in a code object, including nested ones."""
        ours = self._codes.get(id(code))
        return ours[2] if ours is not None and ours[0]() is code else {}

    def has_all(self, code: CodeType) -> bool:
        """Returns whether code has all its breakpoints compiled in."""
        has = self._has(code)
        return all(has.get(line) == condition for line, condition in self.lines(self.original(code)).items())

    def has_all_ahead(self, frame: FrameType, known: dict[tuple[int, int], bool]) -> bool:
        """Returns whether a frame can't reach a breakpoint that its code lacks, nor define such code.

        `known` caches the results of a scan, by code and position: thousands of frames may wait at one line.
        """
        code, at = frame.f_code, frame.f_lasti  # read once: the frame may be running
        place = id(code), at  # by id: equal code objects may have different breakpoints
        if place not in known:
            known[place] = self._has_all_ahead(code, at)
        return known[place]

    def _has_all_ahead(self, code: CodeType, at: int) -> bool:
        if self.has_all(code):
            return True
        has = self._has(code)
        lines, defined = flow.ahead(code, at)
        wanted = self.files[self._file(code.co_filename)]
        return all(has.get(line) == wanted[line] for line in lines if line in wanted) and all(
            map(self.has_all, defined)
        )


# Functions that inspect their caller's frame would see the condition's frame: such conditions are evaluated.
_LOOK_AT_FRAMES = frozenset(["locals", "vars", "dir", "eval", "exec", "globals", "sys", "inspect", "super"])
# In the relay's conditions this name depends on the frame (scope.py).
_SCOPED = frozenset(["ray"])
_TEMPLATE = """\
def make(__rayside_raised):
    def condition({names}):
        try:
            return True if {value} else False
        except Exception as __rayside_error:
            return __rayside_raised(__rayside_error)
    return condition
"""


def names_of(condition: str, code: types.CodeType) -> tuple[str, ...] | None:
    """Returns the variables of `code` that a condition uses, in order.

    None if it has to be evaluated in the frame: it uses a cell variable or a function that inspects frames,
    it binds a name, or the code stores its variables by name, as in a module or a class.
    """
    try:
        tree = ast.parse(condition.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    if not code.co_flags & 0x1:  # CO_OPTIMIZED, in CPython's Include/cpython/code.h
        return None
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom)):
            return None
        if isinstance(node, ast.Name):
            names.add(node.id)
    cells = {*code.co_cellvars, *code.co_freevars}
    if names & (cells | _LOOK_AT_FRAMES | _SCOPED) or any(name.startswith("__rayside") for name in names):
        return None
    return tuple(sorted(names & {*code.co_varnames}))


def function_of(
    condition: str,
    names: tuple[str, ...],
    namespace: dict[str, Any],
    raised: Callable[[Exception], bool],
) -> Callable[..., bool]:
    """Returns a function of the variables `names` that returns whether the condition holds.

    Args:
        condition: a Python expression that compiles.
        namespace: the globals in which it is evaluated.
        raised: is called with an exception of the condition; returns whether the condition counts as true.
    """
    value = ast.parse(condition.strip(), mode="eval").body
    text = _TEMPLATE.format(names=", ".join(names), value="None")
    tree = ast.parse(text, "<condition>")
    test = next(node for node in ast.walk(tree) if isinstance(node, ast.IfExp))
    test.test = value
    made: dict[str, Any] = {}
    exec(compile(ast.fix_missing_locations(tree), "<condition>", "exec"), made)
    function = made["make"](raised)
    # A new function, because a function's globals can't be replaced.
    condition_function: Callable[..., bool] = types.FunctionType(
        function.__code__, namespace, "condition", None, function.__closure__
    )
    return condition_function
