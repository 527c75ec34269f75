"""Finds the file of this process that is an editor's source: in a wheel, an editable install, an image."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path
from types import ModuleType

# The most folders of `sys.path` that are looked at, names of a path below one, and files that are compared.
_MOST_FOLDERS, _DEEPEST, _MOST_FILES = 200, 16, 20
_LONGEST = 16 * 1024 * 1024  # bytes of a source

Answer = tuple[str, list[str]]


def find(wanted: dict[str, str]) -> dict[str, Answer]:
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
        if isinstance(module, ModuleType) and name != "__main__":
            # Not by attribute: that would load a module which is loaded lazily.
            file = object.__getattribute__(module, "__dict__").get("__file__")
            if isinstance(file, str):
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
        return hashlib.sha256(file.read_bytes()).hexdigest() if file.stat().st_size <= _LONGEST else ""
    except (OSError, ValueError):
        return ""
