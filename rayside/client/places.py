"""Sets, lists and removes breakpoints, for the terminal debugger's commands `break` and `clear`."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from rayside.client import commands
from rayside.client.session import Session
from rayside.client.view import View
from rayside.console import Console
from rayside.errors import InvalidArgument
from rayside.event_loop import Call
from rayside.plain import counted


class Places:
    """Reads what is typed: a place may be relative to the file that `view` shows."""

    def __init__(self, session: Session, console: Console, call: Call, view: View) -> None:
        self._session, self._console, self._call, self._view = session, console, call, view

    def add(self, rest: str) -> None:
        """Sets a breakpoint; without a place, it lists them."""
        breakpoints = self._session.breakpoints
        if not rest:
            self._console.result("\n".join(f"  {row}" for row in breakpoints.rows()) or "no breakpoints")
            return
        place = commands.named_place("break", rest)
        current = self._view.frame.path if place.file is None else self._shown()
        self._console.event(self._call(breakpoints.add(self._session.client, place, current)))

    def clear(self, rest: str) -> None:
        """Removes a breakpoint; without a place, all of them."""
        place = commands.named_place("clear", rest) if rest else None
        current = self._view.frame.path if place is not None and place.file is None else self._shown()
        removed = self._call(self._session.breakpoints.remove(self._session.client, place, current))
        self._console.event(f"{counted(removed, 'breakpoint')} removed")

    def _shown(self) -> str:
        """Returns the file that is looked at, or a name in the current folder where there is none."""
        with suppress(InvalidArgument):
            return self._view.frame.path
        return str(Path("_").absolute())
