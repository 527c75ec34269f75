"""Source files: path mapping between editor and debuggees, checksums, lines with code.

A debuggee's files are in unpacked packages, `.../working_dir_files/_ray_pkg_<hash>/` and
`.../py_modules_files/_ray_pkg_<hash>/`, whose names identify their source folders. Each debuggee reports the
folders of its packages, and its installed files. Other files have the same path on both sides, or none.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os.path
import re
import sys
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rayside.dap.framing import Message
from rayside.errors import RequestFailed
from rayside.relay.connection import Connection, call
from rayside.worker.evaluated import sources

_UNPACKED = re.compile(r"^(?P<folder>.*/(?:working_dir|py_modules)_files/(?P<package>[^/]+))/(?P<rest>.+)$")
_WORKING_DIR = re.compile(r"/working_dir_files/[^/]+$")
# Extensions of shared files that a debuggee may make an editor open in any folder: its libraries.
_PYTHON = (".py", ".pyi", ".pyw", ".pyx")


@dataclass(frozen=True)
class Layout:
    """Folders of one debuggee's files."""

    packages: Mapping[str, str] = field(default_factory=dict)  # folder by package name
    modules: Mapping[str, str] = field(default_factory=dict)  # folder by name of each of py_modules
    found: dict[str, str] = field(default_factory=dict)  # path of a file that it found, by the editor's path

    @classmethod
    def of(cls, listing: Mapping[Any, object]) -> Layout:
        """Parses a debuggee's listing: the unpacked packages' folders, and the names in each."""
        folders = {
            path: [name for name in names if isinstance(name, str)]
            for path, names in listing.items()
            if isinstance(path, str) and isinstance(names, list)
        }
        packages = {path.rpartition("/")[2]: path for path in folders}
        modules = {
            name: f"{path}/{name}"
            for path, names in folders.items()
            if not _WORKING_DIR.search(path)
            for name in names
        }
        return cls(packages, modules)

    def has(self, folder: str, rest: str) -> bool:
        """Returns whether a path below a package's folder is in that package: two of py_modules may be from
        the same source folder."""
        first = rest.partition("/")[0]
        return bool(_WORKING_DIR.search(folder)) or self.modules.get(first) == f"{folder}/{first}"

    @property
    def working_dir(self) -> str | None:
        return next((path for path in self.packages.values() if _WORKING_DIR.search(path)), None)


class Paths:
    """Path mapping between an editor and debuggees.

    Args:
        mappings: the editor's `pathMappings`, pairs of its folder and the folder on the workers: `.` for
            working_dir, the name of one of py_modules, or an absolute path. They have priority, except for
            files of a package whose source folder is above or below the editor's folder: the editor may have
            been started in another folder than the submitted one.
        roots: as `Discovery.local_roots`.
        shared: whether editor, relay and debuggees see the same files under the same paths. Then only
            existing files are mapped.
    """

    def __init__(
        self,
        mappings: Sequence[tuple[str, str]] = (),
        roots: Callable[[], Mapping[str, Sequence[str]]] = dict,
        *,
        shared: bool = False,
    ) -> None:
        self._mappings = [(local.rstrip("/") or "/", remote) for local, remote in mappings]
        self._roots = roots
        self.shared = shared
        # The editor's own path of a package's file, which may contain a symlink.
        self._named: dict[tuple[str, str], str] = {}
        self._opened: dict[str, str] = {}  # the editor's path of files that no rule maps

    def remote(self, path: str, layout: Layout) -> str:
        """Returns a debuggee's path for the editor's."""
        named, path = path, os.path.normpath(path)
        remote = self._remote(path, layout)
        if remote == path and self.shared:
            # The job knows the file by its real path, the editor maybe through a symlink.
            remote = self._remote(os.path.realpath(path), layout)
            remote = path if remote == os.path.realpath(path) else remote
        if unpacked := _UNPACKED.match(remote):
            self._named[unpacked["package"], unpacked["rest"]] = named
        return remote

    def opens(self, path: str, local: str) -> None:
        """Records the editor's path of a debuggee's file, in which the editor has set breakpoints."""
        self._opened[path] = local

    def local(self, path: str) -> str | None:
        """Returns the editor's path for a debuggee's; None if the editor can't have the file."""
        if not _is_canonical(path):
            return None
        if path in self._opened:
            return self._opened[path]
        unpacked = _UNPACKED.match(path)
        named = self._named.get((unpacked["package"], unpacked["rest"])) if unpacked else None
        if named and (not self.shared or os.path.isfile(named)):  # noqa: PTH113 (a string is what is wanted)
            return named
        for root, rest in self._candidates(path, unpacked):
            if not self.shared or _may_be_opened(_join(root, rest), root):
                return _join(root, rest)
        return path if self.shared and _may_be_opened(path, unpacked and unpacked["folder"]) else None

    def _remote(self, path: str, layout: Layout) -> str:
        for local, remote in self._mappings:
            rest = _below(path, local)
            if rest is not None and remote.startswith("/"):
                return _join(remote, rest)
        roots = self._roots()
        for package, folder in layout.packages.items():
            for root in roots.get(package, ()):
                rest = _below(path, root)
                if rest is not None and layout.has(folder, rest):
                    return _join(folder, rest)
        for local, remote in self._mappings:
            rest = _below(path, local)
            mapped = layout.working_dir if remote == "." else layout.modules.get(remote)
            if rest is not None and mapped is not None:
                return _join(mapped, rest)
        # The path may come from another node, or contain the symlink `session_latest`.
        if (unpacked := _UNPACKED.match(path)) and unpacked["package"] in layout.packages:
            return _join(layout.packages[unpacked["package"]], unpacked["rest"])
        if path in layout.found:
            return layout.found[path]
        # Last, since any job's metadata may name symlinks and their targets.
        for key, targets in roots.items():
            package, _, link = key.partition("/")
            rest = next((rest for target in targets if (rest := _below(path, target)) is not None), None)
            if link and rest is not None and package in layout.packages:
                return _join(f"{layout.packages[package]}/{link}", rest)
        return path

    def _candidates(self, path: str, unpacked: re.Match[str] | None) -> list[tuple[str, str]]:
        """Returns candidates for a file: folders on the editor's side, and the path below each."""
        candidates: list[tuple[str, str]] = []
        if unpacked:
            package, rest = unpacked["package"], unpacked["rest"]
            roots = self._roots().get(package, ())
            for local, remote in self._mappings:
                if any(_below(local, root) or _below(root, local) for root in roots):
                    continue  # one folder contains the other
                if _WORKING_DIR.search(unpacked["folder"]):
                    below = rest if remote == "." else None
                else:
                    below = _below(rest, remote)
                if below is not None:
                    candidates.append((local, below))
            candidates += [(root, rest) for root in roots[:1]]
        for local, remote in self._mappings:
            if remote.startswith("/") and (below := _below(path, remote)) is not None:
                candidates.append((local, below))
        return candidates


def _is_canonical(path: str) -> bool:
    """Returns whether a debuggee's path is absolute and normalized, without `..`."""
    return path.startswith("/") and "\0" not in path and os.path.normpath(path) == path and path[:2] != "//"


def _may_be_opened(path: str, root: str | None) -> bool:
    """Returns whether a debuggee may make the editor open this file, which both see.

    The debuggee chooses the path: it must not show a private key as "its source", nor through a symlink.
    """
    real = os.path.realpath(path)
    if not os.path.isfile(real):  # noqa: PTH113 (a string is what there is)
        return False
    return real.endswith(_PYTHON) or (root is not None and _below(real, os.path.realpath(root)) is not None)


def _below(path: str, folder: str) -> str | None:
    """Returns what follows the folder in the path, empty for the folder itself; None outside of it."""
    folder = folder.rstrip("/")
    if path == folder:
        return ""
    return path[len(folder) + 1 :] if path.startswith(folder + "/") else None


def _join(folder: str, rest: str) -> str:
    return f"{folder.rstrip('/')}/{rest}" if rest else folder


_MOST_LINES = 10**6
MOST_LOCATIONS = 10_000  # in one answer


@dataclass(frozen=True)
class Lines:
    """Lines of one source, counted from 1.

    Attributes:
        code: the lines with code.
        statements: first and last line of each multi-line statement that contains no other statement.
        functions: first and last line of each function.
        indents: indentation of each line; 0 for an empty one.
    """

    code: frozenset[int]
    statements: tuple[tuple[int, int], ...]
    functions: tuple[tuple[int, int], ...]
    indents: tuple[int, ...]

    @classmethod
    def read(cls, document: object) -> Lines | None:
        """Parses a debuggee's answer (`line_table`); returns None if it is invalid."""
        if not isinstance(document, dict):
            return None
        lists: list[list[int]] = []
        for name in ("code", "statements", "functions", "indents"):
            numbers = document.get(name)
            if not isinstance(numbers, list) or not all(map(_is_line, numbers)):
                return None
            lists.append(numbers)
        code, statements, functions, indents = lists
        return cls(frozenset(code), _pairs(statements), _pairs(functions), tuple(indents))

    def nearest(self, line: int) -> int | None:
        """Returns the line where a breakpoint on `line` stops: in its statement, or next in its function."""
        if line in self.code:
            return line
        for first, last in self.statements:
            if first <= line <= last:
                return min((at for at in self.code if first <= at <= last), default=None)
        after = sorted(at for at in self.code if line < at)
        function, *functions = self._functions([line, *after])
        at = next((at for at, its in zip(after, functions, strict=True) if its == function), None)
        if at is None or function is not None:
            return at
        # A comment at the end of a function does not belong to the next function.
        return at if self._indent(line) <= self._indent(at) else None

    def locations(self, asked: Message) -> list[Message]:
        """Returns DAP's BreakpointLocation for each line with code in the requested range.

        Python debuggers stop at lines: a line's column is where its text begins.
        """
        first: int = asked["line"]
        last: int = asked.get("endLine", first)
        # Without columns, DAP's range is from the first to the last column.
        begin, end = (first, asked.get("column", 1)), (last, asked.get("endColumn", sys.maxsize))
        within = sorted(line for line in self.code if begin <= (line, self._indent(line) + 1) <= end)
        return [{"line": line} for line in within[:MOST_LOCATIONS]]

    def _indent(self, line: int) -> int:
        return self.indents[line - 1] if 0 < line <= len(self.indents) else 0

    def _functions(self, lines: Iterable[int]) -> Iterator[tuple[int, int] | None]:
        """Yields, for lines in ascending order, the innermost function that contains each line."""
        later, begun = sorted(self.functions, reverse=True), []
        for at in lines:
            while later and later[-1][0] < at:
                begun.append(later.pop())
            while begun and begun[-1][1] < at:
                begun.pop()
            yield begun[-1] if begun else None


def _pairs(numbers: list[int]) -> tuple[tuple[int, int], ...]:
    return tuple(zip(numbers[::2], numbers[1::2], strict=False))


def _is_line(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and 0 <= number <= _MOST_LINES


# Packages are named by the hash of their content, so their files never change.
_PACKAGE = re.compile(r"/(?:working_dir|py_modules)_files/(_ray_pkg_[^/]+/.+)$")
# Seconds for which any other file is cached: many debuggees are asked for it at the same time.
_FRESH = 5.0
# Timeout in seconds of a pending read from another debuggee; each answers within milliseconds.
_WAITING = 0.2


@dataclass(frozen=True)
class File:
    """Content of a file; `lines` is None if it is not a Python source."""

    sha256: str
    lines: Lines | None


class Files:
    """Cache of debuggees' files; debuggees with the same package have the same files."""

    def __init__(self) -> None:
        self._read: dict[Hashable, tuple[float, asyncio.Future[File | None]]] = {}

    async def read(self, connection: Connection, node: str, path: str, edit: Hashable = None) -> File | None:
        """Returns a file or None; `edit`: hash of its edited text. Raises RequestFailed, DebuggerGone."""
        package = _PACKAGE.search(path)
        key: Hashable = (package[1] if package else (node, path), edit)
        since, reading = self._read.get(key, (0.0, None))
        if reading is not None and (package or time.monotonic() - since < _FRESH):
            # The debuggee that was asked may be frozen, or have ended.
            await asyncio.wait({reading}, timeout=_WAITING)
            if reading.done() and not reading.cancelled() and reading.exception() is None:
                return reading.result()
        reading = asyncio.ensure_future(_read(connection, path))
        self._read[key] = (time.monotonic(), reading)
        # A failed read is repeated for the next request. Nothing may wait for this one, so its error is read.
        reading.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(reading)

    def clear(self) -> None:
        self._read.clear()


def sha256_of(path: str) -> str | None:
    """Returns the SHA-256, in hex, of a file on this machine; None if it can't be read."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 (the path is the editor's string)
            return hashlib.sha256(file.read()).hexdigest()
    except (OSError, ValueError):
        return None


async def _read(connection: Connection, path: str) -> File | None:
    answer = await connection.run(call(sources.line_table, path), connection.patience)
    text = str(answer.get("result", ""))
    try:
        document = json.loads(text) if len(text) <= sources.LONGEST_ANSWER else None
    except (ValueError, RecursionError) as error:
        raise RequestFailed(f"{path} can't be read: {error}", hint="Try again.") from error
    if not isinstance(document, dict) or not isinstance(document.get("sha256"), str):
        return None
    return File(document["sha256"], Lines.read(document.get("lines")))
