"""Source files as this process runs them: as they were loaded, or edited since."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
from pathlib import Path

from .edited_source import Source

due: dict[str, str] = {}  # edited texts that the next call of a task applies, by real path
texts: dict[str, Source] = {}  # the edited files, by real path
_real: dict[str, str] = {}  # real paths, by `co_filename`
# The user's files that were loaded, by real path. A program that runs in its own folder has its files edited
# in place, so their texts are kept; unpacked packages (None) do not change.
loaded: dict[str, str | None] = {}
_INSTALLED = ("/site-packages/", "/dist-packages/")  # of any Python environment
_UNPACKED = ("/working_dir_files/", "/py_modules_files/")


def sources() -> dict[str, str]:
    """Returns the SHA-256 (hex) of each of the user's source files that the next task runs, by path."""
    own = f"{Path(__file__).parents[1]}/"
    found = {
        path: due.get(path) or text_of(path)
        for path in list(loaded)
        if path.endswith(".py") and not path.startswith(own)
    }
    return {path: hashlib.sha256(text.encode()).hexdigest() for path, text in found.items() if text}


def text_of(path: str) -> str:
    """Returns the source of a file as this process runs it; empty if there is none."""
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
    """Returns the edited source of a file that the next task runs; None if the file is not edited."""
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
    """Records a loaded file, unless it belongs to an installed package."""
    if path.startswith((sys.prefix, sys.base_prefix, "<")) or any(folder in path for folder in _INSTALLED):
        return
    if (real := real_path(path)) not in loaded:
        loaded[real] = None if any(folder in path for folder in _UNPACKED) else read(path)


def file_of(module: object) -> str:
    """Returns a module's file, or an empty text; does not trigger the import of a lazy module."""
    try:
        file = object.__getattribute__(module, "__dict__").get("__file__")
    except AttributeError:  # cffi's modules are other objects.
        return ""
    return file if isinstance(file, str) else ""
