"""Finds the lines of a Python source that have code, inside a debuggee.

It answers in JSON. It runs there, for the debuggee's Python is the one that runs the source, and because
compiling costs memory: the relay has little, and would pay for what strangers wrote. `ast` is left alone:
its objects take 500 times the memory of the text, and on Python 3.11 one source that is nested too deeply
spoils it for the rest of the process.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import json
import tokenize
import warnings
from pathlib import Path
from types import CodeType
from typing import Any

# Bytes of a file: a longer one counts as none (LONGEST), or has no table of lines (LONGEST_SOURCE).
LONGEST, LONGEST_SOURCE = 64 * 1024 * 1024, 256 * 1024
# The most characters of an answer.
LONGEST_ANSWER = 1024 * 1024
_COMPOUND = frozenset(
    ["async", "class", "def", "elif", "else", "except", "finally", "for", "if", "try", "while", "with"]
)
_LAYOUT = {tokenize.NL, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def answer(path: str) -> str:
    """Returns JSON: null where there is no such file, else its `sha256` and, of a Python source, `lines`.

    `lines` has lists of numbers, of lines from 1: `code`, those that have code; `statements` and `functions`,
    the first and the last of each, one after the other; `indents`, how far each line is indented, 0 for an
    empty one.
    """
    try:
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
    """Returns `lines` as `answer` describes it; None where the text isn't Python, or is another Python's."""
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
