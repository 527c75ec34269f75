"""Maps an editor's paths to those of debuggees, and back.

A debuggee's files lie in unpacked packages, `.../working_dir_files/_ray_pkg_<hash>/` and
`.../py_modules_files/_ray_pkg_<hash>/`, whose names say what they were packed from; where each debuggee
has them, it says itself, as it does of what is installed there. Everything else has the same path on both
sides, or none.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

_UNPACKED = re.compile(r"^(?P<folder>.*/(?:working_dir|py_modules)_files/(?P<package>[^/]+))/(?P<rest>.+)$")
_WORKING_DIR = re.compile(r"/working_dir_files/[^/]+$")
# A debuggee may have an editor open shared files of these kinds wherever they lie: the libraries it runs.
_PYTHON = (".py", ".pyi", ".pyw", ".pyx")


@dataclass(frozen=True)
class Layout:
    """Describes where one debuggee has its files.

    Attributes:
        packages: the folder of each unpacked package, by the package's name.
        modules: the folder of each of py_modules, by the module's name.
        found: its path of each of the editor's files that it has found by itself.
    """

    packages: Mapping[str, str] = field(default_factory=dict)
    modules: Mapping[str, str] = field(default_factory=dict)
    found: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, listing: Mapping[Any, object]) -> Layout:
        """Reads what a debuggee says: the unpacked packages' folders, and the names in each."""
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
        """Returns whether a path below a package's folder is of what is packed in it: two of py_modules may
        be from the same folder."""
        first = rest.partition("/")[0]
        return bool(_WORKING_DIR.search(folder)) or self.modules.get(first) == f"{folder}/{first}"

    @property
    def working_dir(self) -> str | None:
        return next((path for path in self.packages.values() if _WORKING_DIR.search(path)), None)


class Paths:
    """Maps paths by what is known of the editor's side.

    Args:
        mappings: the editor's own, pairs of its folder and what that is on the workers: `.` for
            working_dir, the name of one of py_modules, or an absolute path. They win, but for files of a
            package that is known to have been packed from a folder above or below: an editor may have been
            started in another folder than the one that was submitted.
        roots: the folders that a package was packed from, by its name; the first is shown. What a symlink
            in a package leads to has the symlink in its key, as in `_ray_pkg_9e9d6e2076c1b321/shared`.
        shared: whether the editor sees the debuggees' files under their own paths, and the relay sees
            the editor's. Then only what is there is mapped.
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
        # The form in which the editor named a package's file, for it may know it by a symlink.
        self._named: dict[tuple[str, str], str] = {}
        self._opened: dict[str, str] = {}  # the editor's path of a file that no rule leads to

    def remote(self, path: str, layout: Layout) -> str:
        """Returns a debuggee's path for the editor's."""
        named, path = path, os.path.normpath(path)
        remote = self._remote(path, layout)
        if remote == path and self.shared:
            # The job knows the file by its real path, where the editor came by way of a symlink.
            remote = self._remote(os.path.realpath(path), layout)
            remote = path if remote == os.path.realpath(path) else remote
        if unpacked := _UNPACKED.match(remote):
            self._named[unpacked["package"], unpacked["rest"]] = named
        return remote

    def opens(self, path: str, local: str) -> None:
        """Notes that the editor has a file of which there is code, for it has set breakpoints there."""
        self._opened[path] = local

    def local(self, path: str) -> str | None:
        """Returns the editor's path for a debuggee's; None where the editor can't have the file."""
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
        # The path may be of another node, or go by way of `session_latest`.
        if (unpacked := _UNPACKED.match(path)) and unpacked["package"] in layout.packages:
            return _join(layout.packages[unpacked["package"]], unpacked["rest"])
        if path in layout.found:
            return layout.found[path]
        # Last: any job's metadata may name symlinks, and what they lead to.
        for key, targets in roots.items():
            package, _, link = key.partition("/")
            rest = next((rest for target in targets if (rest := _below(path, target)) is not None), None)
            if link and rest is not None and package in layout.packages:
                return _join(f"{layout.packages[package]}/{link}", rest)
        return path

    def _candidates(self, path: str, unpacked: re.Match[str] | None) -> list[tuple[str, str]]:
        """Returns folders of the editor's side, and where the file would be below each."""
        candidates: list[tuple[str, str]] = []
        if unpacked:
            package, rest = unpacked["package"], unpacked["rest"]
            roots = self._roots().get(package, ())
            for local, remote in self._mappings:
                if any(_is_one_in_the_other(local, root) for root in roots):
                    continue
                if remote == "." and _WORKING_DIR.search(unpacked["folder"]):
                    candidates.append((local, rest))
                elif (below := _below(rest, remote)) is not None and not _WORKING_DIR.search(
                    unpacked["folder"]
                ):
                    candidates.append((local, below))
            candidates += [(root, rest) for root in roots[:1]]
        for local, remote in self._mappings:
            if remote.startswith("/") and (below := _below(path, remote)) is not None:
                candidates.append((local, below))
        return candidates


def _is_canonical(path: str) -> bool:
    """Returns whether a debuggee's path leads where it seems to: absolute, without `..`."""
    return path.startswith("/") and "\0" not in path and os.path.normpath(path) == path and path[:2] != "//"


def _may_be_opened(path: str, root: str | None) -> bool:
    """Returns whether a debuggee may have the editor open this file of a machine that both see.

    It chooses the path: a private key is not to be shown as "its source", also not by way of a symlink.
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


def _is_one_in_the_other(folder: str, other: str) -> bool:
    """Returns whether one of two folders lies somewhere in the other; false where they are the same."""
    return bool(_below(folder, other) or _below(other, folder))


def _join(folder: str, rest: str) -> str:
    return f"{folder.rstrip('/')}/{rest}" if rest else folder
