"""Code with breakpoints compiled in, and the record of which code has which.

It leans on pydevd 1.8.22 for the names of files.
"""

from __future__ import annotations

import sys
import weakref
from types import CodeType, FrameType
from typing import Any

from . import conditions, flow, inserted, stopping

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
            names = conditions.names_of(condition, inner) if condition else None
            if names is None:
                return inserted.Call(place.reach)
            function = conditions.function_of(condition, names, namespace, place.raised)
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
