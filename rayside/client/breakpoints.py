"""Line breakpoints of the user, the same for all tasks, by path."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rayside.client.commands import Place
from rayside.dap.client import Client

Lines = dict[int, Place]


class Breakpoints:
    """Breakpoints of a session, and their state as last reported to the user.

    Args:
        places: initial breakpoints, set by `send` for each of `files`; each has a `file`.
    """

    def __init__(self, places: Iterable[Place] = ()) -> None:
        self._set: dict[str, Lines] = {}
        self._ids: dict[int, tuple[str, int]] = {}  # path and line by the relay's id
        self._at: dict[tuple[str, int], int] = {}  # line of the stop, by path and requested line
        self._reported: dict[tuple[str, int], set[str]] = {}
        for place in places:
            assert place.file is not None, "only the terminal has a file that is shown"
            self._set.setdefault(place.file, {})[place.line] = place

    def files(self) -> list[str]:
        """Returns the paths of files with breakpoints."""
        return list(self._set)

    def lines(self, path: str) -> Lines:
        return dict(self._set.get(path, {}))

    def rows(self) -> list[str]:
        """Returns one line of text for each breakpoint."""
        return [
            f"{replace(place, file=path)}{self._moved(path, place.line)}"
            for path, lines in self._set.items()
            for _, place in sorted(lines.items())
        ]

    def _moved(self, path: str, line: int) -> str:
        at = self._at.get((path, line), line)
        return f"  (stops at {at})" if at != line else ""

    async def send(self, client: Client, path: str) -> list[str]:
        """Sends a file's breakpoints to the relay; returns new messages for the user."""
        answers = await self._send(client, path)
        texts = [self._news(path, line, answer) for line, answer in answers.items()]
        return [text for text in texts if text]

    async def add(self, client: Client, place: Place, current: str) -> str:
        """Adds a breakpoint; returns a message for the user.

        Args:
            current: the shown file, to which `place` may be relative.
        """
        path = path_of(place.file, current)
        before = self.lines(path)
        self._set[path] = {**before, place.line: place}
        try:
            answers = await self._send(client, path)
        except BaseException:
            self._set[path] = before
            raise
        answer = answers.get(place.line, {})
        self._news(path, place.line, answer)
        return _description(path, place.line, answer)

    async def remove(self, client: Client, place: Place | None, current: str) -> int:
        """Removes a breakpoint, or all of them; returns the number of removed ones."""
        removed = 0
        for path, before in list(self._set.items()):
            if place is None:
                after: Lines = {}
            elif path == path_of(place.file, current):
                after = {line: kept for line, kept in before.items() if line != place.line}
            else:
                continue
            self._set[path] = after
            await self._send(client, path)
            removed += len(before) - len(after)
        return removed

    def changed(self, breakpoint_: Mapping[str, Any]) -> list[str]:
        """Returns new messages for the user from a `breakpoint` event."""
        key = self._ids.get(breakpoint_.get("id", 0))
        if key is None or key[1] not in self._set.get(key[0], {}):
            return []
        text = self._news(*key, breakpoint_)
        return [text] if text else []

    def _news(self, path: str, line: int, answer: Mapping[str, Any]) -> str:
        """Returns a message, or "" for a repeated one. That a breakpoint is set as requested is reported only
        after another state."""
        self._at[path, line] = answer.get("line", line) if answer.get("verified") else line
        reported = self._reported.setdefault((path, line), set())
        text = _description(path, line, answer)
        as_asked = answer.get("verified") and answer.get("line", line) == line and not answer.get("message")
        if text in reported or (as_asked and not reported):
            return ""
        reported.add(text)
        return text

    async def _send(self, client: Client, path: str) -> dict[int, Mapping[str, Any]]:
        """Sends the breakpoints of a file; returns the relay's answers by requested line."""
        lines = sorted(self._set[path].items())
        body = await client.set_breakpoints(
            path, [_spec(place) for _, place in lines], source=_checksums(path)
        )
        answers = dict(zip([line for line, _ in lines], body.get("breakpoints", []), strict=False))
        for line, answer in answers.items():
            if isinstance(answer.get("id"), int):
                self._ids[answer["id"]] = (path, line)
        return answers


def path_of(file: str | None, current: str) -> str:
    """Returns the path of a file that the user names: a local one, or relative to the shown file."""
    if file is None:
        return current
    local = Path(file).expanduser().absolute()
    if local.exists() or Path(file).is_absolute():
        return str(local)
    return str(Path(current).parent / file)


def _spec(place: Place) -> dict[str, Any]:
    """Returns DAP's SourceBreakpoint."""
    more = {"condition": place.condition, "hitCondition": place.hits}
    return {"line": place.line, **{name: text for name, text in more.items() if text}}


def _description(path: str, line: int, answer: Mapping[str, Any]) -> str:
    at, why = answer.get("line", line), answer.get("message")
    if not answer.get("verified"):
        return f"breakpoint at {path}:{line} waits: {why or 'no task has run that file'}"
    if why is None and at != line:
        why = f"line {line} has no code"
    return f"breakpoint at {path}:{at}" + (f" ({why})" if why else "")


def _checksums(path: str) -> dict[str, Any]:
    # With a checksum, the relay detects an edit after the job's submission, on any machine.
    try:
        digest = hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError:
        return {}
    return {"checksums": [{"algorithm": "SHA256", "checksum": digest}]}
