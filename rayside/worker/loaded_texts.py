"""Texts of the user's source files, as this process runs them: as it loaded them, or edited since."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
from pathlib import Path

from .edited_source import Source

due: dict[str, str] = {}  # texts, by real path, that the next call of a task applies
texts: dict[str, Source] = {}  # the edited files, by real path
_real: dict[str, str] = {}  # real paths, by `co_filename`
# The user's files from which something was loaded, by real path. Where a program runs in its own folder, a
# file is edited in place, so its text is kept; an unpacked package (None) does not change.
loaded: dict[str, str | None] = {}
_INSTALLED = ("/site-packages/", "/dist-packages/")  # also of another environment than this Python's own
_UNPACKED = ("/working_dir_files/", "/py_modules_files/")


def sources() -> dict[str, str]:
    """Returns the SHA-256, in hex, of each of the user's sources that the next task runs, by its path."""
    own = f"{Path(__file__).parents[1]}/"
    found = {
        path: due.get(path) or text_of(path)
        for path in list(loaded)
        if path.endswith(".py") and not path.startswith(own)
    }
    return {path: hashlib.sha256(text.encode()).hexdigest() for path, text in found.items() if text}


def text_of(path: str) -> str:
    """Returns the text of a file that this process runs, edited or not; empty where it has none."""
    real = real_path(path)
    if real in texts:
        return texts[real].text
    return loaded.get(real) or read(path)


def read(path: str) -> str:
    try:
        return importlib.util.decode_source(Path(path).read_bytes())
    except (OSError, ValueError, SyntaxError):
        return ""


def edited(path: str) -> bytes | None:
    """Returns a file's text that the next task runs in place of that on disk; None where it is that."""
    real = real_path(path)
    if real in due:
        return due[real].encode()
    source = texts.get(real)
    return None if source is None else source.text.encode()


def real_path(filename: str) -> str:
    if filename not in _real:
        _real[filename] = os.path.realpath(filename)
    return _real[filename]


def note(path: str) -> None:
    """Notes a file from which something was loaded, unless it is installed."""
    if path.startswith((sys.prefix, sys.base_prefix, "<")) or any(folder in path for folder in _INSTALLED):
        return
    if (real := real_path(path)) not in loaded:
        loaded[real] = None if any(folder in path for folder in _UNPACKED) else read(path)


def file_of(module: object) -> str:
    """Returns a module's file, empty for none; a module that is loaded lazily is not loaded by it."""
    try:
        file = object.__getattribute__(module, "__dict__").get("__file__")
    except AttributeError:  # cffi puts objects of its own among the modules.
        return ""
    return file if isinstance(file, str) else ""
