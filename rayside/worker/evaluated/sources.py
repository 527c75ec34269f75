"""Source files and functions of a debuggee: lines that have code, the file that an editor's source is.

Lines are found here, for the debuggee's Python is the one that runs the source, and because compiling costs
memory: the relay has little, and would pay for what unauthenticated clients wrote. `ast` is left alone: its
objects take 500 times the memory of the text, and on Python 3.11 one source that is nested too deeply spoils
it for the rest of the process.

What a driver defines itself reaches tasks as code, not as a file: pickled by value. Where the driver's file
lies on another machine (a notebook's, or one that no package brought along), its breakpoints can be set only
once such a function is there. So the thread that makes it waits a moment for the relay.
It leans on `_make_function` of Ray's cloudpickle, which makes each of them, and on `exists` of pydevd, which
sets no breakpoint in a file that is not there.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import io
import json
import os
import sys
import tokenize
import warnings
from collections.abc import Iterable
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from .. import loaded_texts, tracing
from . import objects, reached, telling

# --- lines ------------------------------------------------------------------------------

# Bytes of a file: a longer one counts as none (LONGEST), or has no table of lines (LONGEST_SOURCE).
LONGEST, LONGEST_SOURCE = 64 * 1024 * 1024, 256 * 1024
# The most characters of an answer.
LONGEST_ANSWER = 1024 * 1024
_COMPOUND = frozenset(
    ["async", "class", "def", "elif", "else", "except", "finally", "for", "if", "try", "while", "with"]
)
_LAYOUT = {tokenize.NL, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def line_table(path: str) -> str:
    """Returns JSON: null where there is no such file, else its `sha256` and, of a Python source, `lines`.

    `lines` has lists of numbers, of lines from 1: `code`, those that have code; `statements` and `functions`,
    the first and the last of each, one after the other; `indents`, how far each line is indented, 0 for an
    empty one.
    """
    try:
        content = loaded_texts.edited(path)
        if content is None:
            file = Path(path)
            if not file.is_file() or file.stat().st_size > LONGEST:
                return "null"
            content = file.read_bytes()
    except (OSError, ValueError):
        return "null"
    document: dict[str, Any] = {"sha256": hashlib.sha256(content).hexdigest(), "lines": None}
    if len(content) <= LONGEST_SOURCE:
        document["lines"] = _lines(content)
    text = json.dumps(document, separators=(",", ":"))
    return text if len(text) <= LONGEST_ANSWER else json.dumps({**document, "lines": None})


def _lines(content: bytes) -> dict[str, list[int]] | None:
    """Returns `lines` as `line_table` has it; None where the text isn't Python, or is another Python's."""
    try:
        text = importlib.util.decode_source(content)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            code = compile(text, "<source>", "exec", dont_inherit=True)
        statements, functions = _spans(text)
    except (SyntaxError, UnicodeError, ValueError, RecursionError, MemoryError, tokenize.TokenError):
        return None
    indents = [min(len(line) - len(line.lstrip()), 1000) for line in text.split("\n")]
    return {"code": sorted(_code(code)), "statements": statements, "functions": functions, "indents": indents}


def _code(code: CodeType) -> set[int]:
    # Line 0 is what Python 3.11 gives a module's first instruction.
    numbers = {line for _, _, line in code.co_lines() if line}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            numbers |= _code(constant)
    return numbers


def _spans(text: str) -> tuple[list[int], list[int]]:
    """Returns the first and last line of each function, and of each statement over several lines that has
    none in it; the statements first."""
    statements: list[int] = []
    functions: list[int] = []
    opened: list[tuple[int, int]] = []  # functions: depth and first line
    depth = last = 0
    logical: list[tokenize.TokenInfo] = []  # the first token of the logical line, and the last one
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.INDENT:
            depth += 1
        elif token.type == tokenize.DEDENT:
            depth -= 1
        elif token.type == tokenize.NEWLINE and logical:
            first, end = logical
            last = end.end[0]
            header = first.string in _COMPOUND or end.string == ":"
            if not header and first.string != "@" and last > first.start[0]:
                statements += [first.start[0], last]
            if first.string == "def" or (first.string == "async" and "def" in first.line.split()[:2]):
                opened.append((depth, first.start[0]))
            logical = []
        elif token.type not in _LAYOUT:
            if not logical:
                while opened and opened[-1][0] >= depth:
                    functions += [opened.pop()[1], last]
            logical = [logical[0] if logical else token, token]
    while opened:
        functions += [opened.pop()[1], last]
    return statements, functions


# --- files of the editor's that lie elsewhere here: in a wheel, an editable install, an image ---------

# The most folders of `sys.path` that are looked at, names of a path below one, and files that are compared.
_MOST_FOLDERS, _DEEPEST, _MOST_FILES = 200, 16, 20
_LONGEST_COMPARED = 16 * 1024 * 1024  # bytes of a source

Answer = tuple[str, list[str]]


def own_files(wanted: dict[str, str]) -> dict[str, Answer]:
    """Returns what there is of each of the editor's files that is not one of this process's by its own path.

    `wanted` has the SHA-256 of each, in hex, or nothing where it is unknown. An answer is `same` or, without
    that, `likely`, each with one path; `differs` where only files with another text lie at its place; or
    `several`.
    """
    entries: list[object] = [*dict.fromkeys(sys.path)]
    folders = [str(Path.cwd() / each) for each in entries if isinstance(each, str)]
    loaded = _loaded()
    answers: dict[str, Answer] = {}
    for path, sha256 in wanted.items():
        if os.path.isfile(path):  # noqa: PTH113 (a string is what there is)
            if path in loaded or any(path.startswith(f"{folder}/") for folder in folders):
                continue  # It is imported from there, as from an editable install.
            sha256 = sha256 or _sha256(path)
        answer = _chosen(_candidates(path, folders[:_MOST_FOLDERS], loaded), sha256)
        if answer is not None:
            answers[path] = answer
    return answers


def _loaded() -> dict[str, int]:
    """Returns the files of loaded modules, and how many names each has below what it was imported from."""
    files: dict[str, int] = {}
    modules: list[tuple[str, object]] = list(sys.modules.items())
    for name, module in modules:
        if isinstance(module, ModuleType) and name != "__main__" and (file := loaded_texts.file_of(module)):
            files[file] = name.count(".") + 1 + file.endswith("/__init__.py")
    return files


def _candidates(path: str, folders: list[str], loaded: dict[str, int]) -> dict[str, tuple[int, str]]:
    """Returns files at the place of the editor's, by their real path: how many names agree, and the path."""
    names = path.strip("/").split("/")
    found: dict[str, tuple[int, str]] = {}

    def add(file: str, count: int) -> None:
        real = os.path.realpath(file)
        found[real] = max(found.get(real, (0, "")), (count, file))

    for folder in folders:
        for count in range(1, min(len(names), _DEEPEST) + 1):
            file = "/".join([folder, *names[-count:]])
            if os.path.isfile(file):  # noqa: PTH113
                add(file, count)
    for file, count in loaded.items():
        if file.endswith("/" + "/".join(names[-count:])) and count <= len(names):
            add(file, count)
    return found


def _chosen(candidates: dict[str, tuple[int, str]], sha256: str) -> Answer | None:
    longest = sorted(candidates.values(), reverse=True)[:_MOST_FILES]
    # The name of a file alone says nothing: only its text can.
    packaged = [each for each in longest if each[0] > 1]
    same = [each for each in longest if sha256 and _sha256(each[1]) == sha256]
    chosen = same or packaged
    best = [file for count, file in chosen if count == chosen[0][0]]
    if not best:
        return None
    if sha256 and not same:
        return "differs", best[:3]
    if len(best) > 1:
        return "several", best[:3]
    return ("same" if sha256 else "likely"), best


def _sha256(path: str) -> str:
    try:
        file = Path(path)
        return (
            hashlib.sha256(file.read_bytes()).hexdigest() if file.stat().st_size <= _LONGEST_COMPARED else ""
        )
    except (OSError, ValueError):
        return ""


# --- functions whose file this process does not have -------------------------------------

_MAKES = "ray.cloudpickle.cloudpickle"
_OURS = "_rayside_makes"

_Table = tuple[set[int], set[tuple[int, int]]]  # the lines with code; first and last of each function
_awaited: set[str] = set()
_tables: dict[str, _Table] = {}


def await_files(paths: Iterable[str]) -> dict[str, dict[str, list[int]]]:
    """Reports functions of these files to the relay from now on; returns a line table of each that has any.

    The tables are as in `line_table`, without what only a text can tell.
    """
    _awaited.clear()
    _awaited.update(paths)
    _watch(sys.modules.get(_MAKES))
    _have_files_exist()
    for each in objects.held(lambda code: code.co_filename in _awaited):
        if type(each) is FunctionType:
            _add(each.__code__)
    return {path: table_by_value(path) for path in _awaited if path in _tables}


def table_by_value(path: str) -> dict[str, list[int]]:
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
        telling.ask(reached.EVENT, {"key": 0, "what": "file", "text": code.co_filename}, reached.PATIENCE)


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


# --- functions that a function breakpoint would stop in ----------------------------------


def are_loaded(names: Iterable[str]) -> list[bool]:
    """Returns, for each name, whether this process has such a function that the debugger would stop in."""
    pydevd = tracing.debugger()
    last_names = {name.rpartition(".")[2] for name in names}
    found = objects.held(lambda code: code.co_name in last_names)
    functions = [each for each in found if type(each) is FunctionType]

    users = [function for function in functions if _is_users(pydevd, function)]

    def has(name: str) -> bool:
        if any(reached.is_named(each.__qualname__, str(each.__module__), name) for each in users):
            return True
        owners = [each for each in objects.classes() if f".{each.__name__}." in f".{name}"] if users else []
        return any(reached.is_method(owner, each.__code__, name) for owner in owners for each in users)

    return [has(name) for name in names]


def _is_users(pydevd: Any, function: FunctionType) -> bool:
    """Returns whether the debugger stops in a function's file: not in libraries, with `justMyCode`."""
    try:
        return not pydevd.get_use_libraries_filter() or bool(
            pydevd.in_project_roots_filename_uncached(function.__code__.co_filename)
        )
    except Exception:
        return True
