"""Source files and functions of a debuggee: lines with code, and the match for an editor's file.

Lines are computed here, because the debuggee's Python version runs the source, and because compilation needs
memory: the relay has little, and would spend it on sources from unauthenticated clients. `ast` is not used:
its objects take 500 times the memory of the text, and on Python 3.11 one source that is nested too deeply
breaks it for the rest of the process.

A driver's own functions reach tasks as code, not as files: pickled by value. If the driver's file is on
another machine (a notebook's, or one that no package contains), its breakpoints can be set only once such a
function has been unpickled. So the unpickling thread waits a moment for the relay.
This relies on `_make_function` of Ray's cloudpickle, which makes each of them, and on `exists` of pydevd,
which sets no breakpoint in a missing file.
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

from .. import loaded_sources, tracing
from . import objects, reached, telling

# --- lines ------------------------------------------------------------------------------

# Limits in bytes: a longer file counts as missing (LONGEST), or has no line table (LONGEST_SOURCE).
LONGEST, LONGEST_SOURCE = 64 * 1024 * 1024, 256 * 1024
# Limit: characters of an answer.
LONGEST_ANSWER = 1024 * 1024
_COMPOUND = frozenset(
    ["async", "class", "def", "elif", "else", "except", "finally", "for", "if", "try", "while", "with"]
)
_LAYOUT = {tokenize.NL, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def line_table(path: str) -> str:
    """Returns JSON: null for a missing file, else its `sha256` and, for Python, `lines`.

    `lines` has lists of numbers, of lines from 1: `code`, lines with code; `statements` and `functions`,
    first and last line of each, in sequence; `indents`, the indentation of each line, 0 for an empty one.
    """
    try:
        content = loaded_sources.edited(path)
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
    """Returns `lines` for `line_table`; None if the text isn't Python, or is for another Python version."""
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
    # In Python 3.11, a module's first instruction has line 0.
    numbers = {line for _, _, line in code.co_lines() if line}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            numbers |= _code(constant)
    return numbers


def _spans(text: str) -> tuple[list[int], list[int]]:
    """Returns the first and last line of each multi-line statement without a nested statement, and of each
    function; the statements first."""
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


# --- an editor's files at other paths here: in a wheel, an editable install, an image ------------------

# Limits: folders of `sys.path` that are searched, names of a path below one, and files that are compared.
_MOST_FOLDERS, _DEEPEST, _MOST_FILES = 200, 16, 20
_LONGEST_COMPARED = 16 * 1024 * 1024  # bytes of a source

Answer = tuple[str, list[str]]


def own_files(wanted: dict[str, str]) -> dict[str, Answer]:
    """Returns the matches for each of the editor's files that this process does not import by the same path.

    `wanted` has the SHA-256 of each, in hex, or empty if unknown. An answer is `same` or, without a hash,
    `likely`, each with one path; `differs` if only files with another text match its path; or `several`.
    """
    entries: list[object] = [*dict.fromkeys(sys.path)]
    folders = [str(Path.cwd() / each) for each in entries if isinstance(each, str)]
    loaded = _loaded()
    answers: dict[str, Answer] = {}
    for path, sha256 in wanted.items():
        if os.path.isfile(path):  # noqa: PTH113 (a string is what there is)
            if path in loaded or any(path.startswith(f"{folder}/") for folder in folders):
                continue  # It is imported from that path, as in an editable install.
            sha256 = sha256 or _sha256(path)
        answer = _chosen(_candidates(path, folders[:_MOST_FOLDERS], loaded), sha256)
        if answer is not None:
            answers[path] = answer
    return answers


def _loaded() -> dict[str, int]:
    """Returns the files of loaded modules, each with its number of path names below its import folder."""
    files: dict[str, int] = {}
    modules: list[tuple[str, object]] = list(sys.modules.items())
    for name, module in modules:
        if isinstance(module, ModuleType) and name != "__main__" and (file := loaded_sources.file_of(module)):
            files[file] = name.count(".") + 1 + file.endswith("/__init__.py")
    return files


def _candidates(path: str, folders: list[str], loaded: dict[str, int]) -> dict[str, tuple[int, str]]:
    """Returns candidates for an editor's file, by real path: the number of equal path names, and the path."""
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
    # A matching file name alone is not enough, except with the same text.
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


# --- functions from files that are missing in this process -------------------------------

_MAKES = "ray.cloudpickle.cloudpickle"
_OURS = "_rayside_makes"

_Table = tuple[set[int], set[tuple[int, int]]]  # the lines with code; first and last of each function
_awaited: set[str] = set()
_tables: dict[str, _Table] = {}


def await_files(paths: Iterable[str]) -> dict[str, dict[str, list[int]]]:
    """Reports functions from these files to the relay from now on; returns line tables of existing ones.

    The tables are as in `line_table`, without the parts that require the text.
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
    """Returns the line table of a file's functions that this process has so far."""
    code, functions = _tables.get(path, (set(), set()))
    spans = [line for function in sorted(functions) for line in function]
    return {"code": sorted(code), "statements": [], "functions": spans, "indents": []}


def _watch(module: Any) -> None:
    make = getattr(module, "_make_function", None)
    if make is None:
        return
    make = getattr(make, _OURS, make)  # the original, if an earlier connection replaced it

    # `wraps` keeps the name: cloudpickle pickles its own functions by their name.
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
    """Adds code, with nested code, to its file's table; returns whether that has more lines now."""
    lines, functions = _tables.setdefault(code.co_filename, (set(), set()))
    before = len(lines)
    todo = [code]
    while todo:
        at = todo.pop()
        own = {line for _, _, line in at.co_lines() if line}
        if own:
            functions.add((at.co_firstlineno, max(own)))
        # No breakpoint stops at its `def`, which ran in the process that defined the function.
        lines |= own - {at.co_firstlineno} or own
        todo += [constant for constant in at.co_consts if isinstance(constant, CodeType)]
    return len(lines) > before


# --- functions that a function breakpoint would stop in ----------------------------------


def are_loaded(names: Iterable[str]) -> list[bool]:
    """Returns, for each name, whether this process has such a function in which the debugger stops."""
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
