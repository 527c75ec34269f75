"""Commands of the terminal debugger that concern all tasks: breakpoints, and groups of tasks."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from rayside.client import commands
from rayside.client.retrying import Retry
from rayside.client.session import Session
from rayside.client.view import View
from rayside.console import Console
from rayside.dap.framing import Message
from rayside.dap.group_commands import ACTIONS, MEMBERS, MOST_WITHIN, RETRYING, drawn, drawn_retries, target
from rayside.errors import InvalidArgument
from rayside.event_loop import Call
from rayside.plain import counted, line

# Timeout in seconds beyond the relay's wait for a group: it sends requests before and after.
_ASKING = 30.0


class Places:
    """Commands `break` and `clear`: a place may be relative to the file that `view` shows."""

    def __init__(self, session: Session, console: Console, call: Call, view: View) -> None:
        self._session, self._console, self._call, self._view = session, console, call, view

    def add(self, rest: str) -> None:
        """Sets a breakpoint; without a place, lists all."""
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
        """Returns the shown file, or a name in the current folder if there is none."""
        with suppress(InvalidArgument):
            return self._view.frame.path
        return str(Path("_").absolute())


class Groups:
    """Commands for groups; `edited` are the files that retries have replaced."""

    def __init__(self, session: Session, console: Console, call: Call) -> None:
        self._session, self._console, self._call = session, console, call
        self.edited: set[str] = set()

    def show(self, rest: str) -> None:
        """Lists the members, for `group @GROUP`. Raises InvalidArgument."""
        if not rest.removeprefix("@"):
            raise InvalidArgument("no group is named", hint="`group @ranks`, or `group @ray.rank > 3`")
        self._act(rest.removeprefix("@"), MEMBERS, 1)

    def move(self, word: str, rest: str) -> frozenset[str]:
        """Applies a word of ACTIONS to a group, `@GROUP [within S]`, and waits for the outcome.

        Returns the ids of workers whose outcome was shown.
        """
        command = target(rest)
        if command is None:
            raise InvalidArgument(
                f"not a group: {rest}".removesuffix(": "),
                hint=f"`{word} @ranks`, or `{word} @ranks within 60`, of at most {MOST_WITHIN} s",
            )
        return self._act(command.group, ACTIONS[word], command.within)

    def retry(self, rest: str, thread: int) -> list[str]:
        """Makes failed calls again, of the tasks in `rest` or of one thread; returns the outcomes."""
        command = target(rest) if rest else None
        wanted = Retry(rest, thread)
        if command is not None:
            wanted = Retry(f"@{command.group}", within=max(command.within, RETRYING))

        def ask(name: str, arguments: Message, timeout: float) -> Message:
            return self._call(self._session.client.request(name, arguments, timeout=timeout))

        answer = wanted.ask(ask)
        self.edited.update(map(line, answer["edited"]))
        for row in drawn_retries(answer):
            self._console.result(row)
        return [row["outcome"] for row in answer["retried"]]

    def _act(self, group: str, action: str, within: int) -> frozenset[str]:
        arguments = {"group": group, "action": action, "within": within}
        request = self._session.client.request("group", arguments, timeout=within + _ASKING)
        answer = self._call(request)
        for row in drawn(answer):
            self._console.result(row)
        return frozenset(row["workerId"] for row in answer["members"])
