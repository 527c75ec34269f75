"""The line breakpoints that the user has set in each debuggee, and where local files lie there."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from bootstrap.debug.client import Client
from bootstrap.debug.commands import Place

Lines = dict[int, str | None]  # conditions by line


class Breakpoints:
    """What is set, by worker and by the debuggee's own path.

    Args:
        shown: gives the path to show for a debuggee's own.
    """

    def __init__(self, shown: Callable[[str], str]) -> None:
        self._shown = shown
        self._set: dict[tuple[str, str], Lines] = {}

    def lines(self, worker: str, path: str) -> Lines:
        return dict(self._set.get((worker, path), {}))

    def rows(self, worker: str) -> list[str]:
        """One line of text a breakpoint."""
        return [
            f"{self._shown(path)}:{line}" + (f" if {condition}" if condition else "")
            for (of, path), lines in self._set.items()
            if of == worker
            for line, condition in sorted(lines.items())
        ]

    async def add(self, client: Client, worker: str, place: Place, current: str) -> str:
        """Sets one more; what to tell the user.

        Args:
            current: the debuggee's file that is shown, which `place` may be relative to.
        """
        path = self._path(worker, place.file, current)
        lines = {**self.lines(worker, path), place.line: place.condition}
        answers = await _send(client, path, lines)
        self._set[worker, path] = lines
        answer = answers[sorted(lines).index(place.line)] if len(answers) == len(lines) else {}
        where = f"{self._shown(path)}:{answer.get('line', place.line)}"
        if answer.get("verified"):
            return f"breakpoint at {where}"
        return f"{where} stops nothing: {answer.get('message') or 'the task has no such file'}"

    async def remove(self, client: Client, worker: str, place: Place | None, current: str) -> int:
        """Removes that one, or all of the worker's; how many they were."""
        removed = 0
        for of, path in [key for key in self._set if key[0] == worker]:
            before = self.lines(of, path)
            if place is None:
                after: Lines = {}
            elif path == self._path(worker, place.file, current):
                after = {line: condition for line, condition in before.items() if line != place.line}
            else:
                continue
            await _send(client, path, after)
            self._set[of, path] = after
            removed += len(before) - len(after)
        return removed

    def forget(self, worker: str) -> None:
        self._set = {key: lines for key, lines in self._set.items() if key[0] != worker}

    def _path(self, worker: str, file: str | None, current: str) -> str:
        known = [path for of, path in self._set if of == worker]
        return remote_path(file, current, [current, *known], self._shown)


def remote_path(file: str | None, current: str, known: Iterable[str], shown: Callable[[str], str]) -> str:
    """The debuggee's path of a file that the user names: its own, a local one, or relative to `current`."""
    if file is None:
        return current
    local = Path(file).expanduser().absolute()
    for path in known:
        if file == path or str(local) == shown(path):
            return path
    # The folders that are left of `current`, without the tail its two paths share, map onto each other.
    far, near = Path(current), Path(shown(current))
    while far.name and far.name == near.name:
        far, near = far.parent, near.parent
    if local.exists() and local.is_relative_to(near):
        return str(far / local.relative_to(near))
    return file if Path(file).is_absolute() else str(Path(current).parent / file)


async def _send(client: Client, path: str, lines: Lines) -> list[dict[str, Any]]:
    wanted = [
        {"line": line, "condition": condition} if condition else {"line": line}
        for line, condition in sorted(lines.items())
    ]
    body = await client.set_breakpoints(path, wanted)
    return list(body.get("breakpoints", []))
