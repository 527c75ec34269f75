"""Code with breakpoints compiled in, and the record of which code has which.

It leans on pydevd 1.8.22 for the names of files.

Conditions become functions, called with the local variables that they name. Evaluated on `f_locals`, a
condition costs a loop five to ten times its speed; as a function of the few variables that it names, half of
it. The value is the same but for names in nested scopes of a condition (a lambda, a generator), which an
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

_MOST_NAMES = 10_000  # of files whose names are kept

_Lines = dict[int, str]  # as in stopping.py


class Codes:
    """Has the code objects that were made here; whoever has it takes care that one thread makes them.

    Attributes:
        files: the breakpoints of each file, by pydevd's name of it.
    """

    def __init__(self) -> None:
        self.files: dict[str, _Lines] = {}
        self._names: dict[str, str] = {}  # pydevd's name of a file, by `co_filename`
        self._codes: dict[int, tuple[weakref.ref[CodeType], CodeType, _Lines]] = {}  # ours, by id
        # By original code and globals, while somebody has it: each unpickled function has its own globals.
        self._made: weakref.WeakValueDictionary[tuple[int, int], CodeType] = weakref.WeakValueDictionary()

    def set(self, files: dict[str, _Lines]) -> None:
        """Makes these the breakpoints, for code that is made from now on."""
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
        # Such as "<string>" are no files; a notebook's cells are traced.
        # A loader's path may be anything.
        if not self.files or type(filename) is not str or filename.startswith("<"):
            return False
        try:
            return self._file(filename) in self.files
        except OSError:  # It is a relative one, and the working directory is gone.
            return False

    def concerns(self, code: CodeType) -> bool:
        """Returns whether code has breakpoints, or had some, which are to be taken out."""
        return self.watches(code.co_filename) or self.original(code) is not code

    def original(self, code: CodeType) -> CodeType:
        """Returns the code as it was."""
        ours = self._codes.get(id(code))
        return code if ours is None or ours[0]() is not code else ours[1]

    def compiled_in(self, code: CodeType, namespace: dict[str, Any]) -> CodeType:
        """Returns the code that is to run with these globals; `code` itself where it has no breakpoints."""
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
        """Returns the lines with breakpoints of a code object, and of what is defined in it."""
        if not self.watches(code.co_filename):
            return {}
        wanted = self.files[self._file(code.co_filename)]
        own = {line: wanted[line] for line in inserted.lines_of(code) if line in wanted}
        for each in inserted.inner(code):
            own.update(self.lines(each))
        return own

    def _has(self, code: CodeType) -> _Lines:
        """Returns the lines that are compiled into a code object, and into what is defined in it."""
        ours = self._codes.get(id(code))
        return ours[2] if ours is not None and ours[0]() is code else {}

    def has_all(self, code: CodeType) -> bool:
        """Returns whether code has all its breakpoints compiled in."""
        has = self._has(code)
        return all(has.get(line) == condition for line, condition in self.lines(self.original(code)).items())

    def has_all_ahead(self, frame: FrameType, known: dict[tuple[int, int], bool]) -> bool:
        """Returns whether a frame can't come to a breakpoint that its code lacks, nor define such code.

        `known` has the answers of one look, by code and place: thousands of frames may wait at one line.
        """
        code, at = frame.f_code, frame.f_lasti  # it may run
        place = id(code), at  # codes that are equal may have other breakpoints
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


# What looks at the frame that it is called in sees the condition's function here, and so is evaluated.
_LOOK_AT_FRAMES = frozenset(["locals", "vars", "dir", "eval", "exec", "globals", "sys", "inspect", "super"])
# What the relay's conditions mean by it is found out with the frame (scope.py).
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
    """Returns the variables of `code` that a condition names, in order.

    None where it has to be evaluated in the frame: it names a cell of the code or what looks at frames, it
    binds a name, or the code keeps its variables by name, as that of a module and of a class does.
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
        raised: is called with what the condition raises, and says whether it holds then.
    """
    value = ast.parse(condition.strip(), mode="eval").body
    text = _TEMPLATE.format(names=", ".join(names), value="None")
    tree = ast.parse(text, "<condition>")
    test = next(node for node in ast.walk(tree) if isinstance(node, ast.IfExp))
    test.test = value
    made: dict[str, Any] = {}
    exec(compile(ast.fix_missing_locations(tree), "<condition>", "exec"), made)
    function = made["make"](raised)
    # It is a new function, for one's globals can't be replaced.
    condition_function: Callable[..., bool] = types.FunctionType(
        function.__code__, namespace, "condition", None, function.__closure__
    )
    return condition_function
