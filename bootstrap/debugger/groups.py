"""Names, lists and moves groups of tasks, for the terminal debugger: the relay does it, upon requests."""

from __future__ import annotations

from typing import Any

from bootstrap.console import Console
from bootstrap.dap.groups import ACTIONS, MEMBERS, MOST_WITHIN, drawn, drawn_list, target
from bootstrap.debugger.session import Session
from bootstrap.errors import InvalidArgument
from bootstrap.event_loop import Call

# Words that a group may follow.
WORDS = frozenset({*ACTIONS, "clear"})
# Seconds that the relay may take beyond those that it waits for the members: it asks them before and after.
_ASKING = 30.0
_HINT = "`group slow ray.rank > 3` names one, `next @slow` steps it; `next @ranks` needs no name"


class Groups:
    """Asks the relay, and shows its answers."""

    def __init__(self, session: Session, console: Console, call: Call) -> None:
        self._session, self._console, self._call = session, console, call

    def name(self, rest: str) -> None:
        """Names a group, for `group NAME SELECTOR`, or shows one, for `group NAME` and `group @GROUP`."""
        name, _, selector = rest.partition(" ")
        if not name:
            raise InvalidArgument("no group is named", hint=_HINT)
        if rest[0] == "@" or not selector:
            self._act(rest.removeprefix("@"), MEMBERS, 1)
            return
        self._request("nameGroup", {"name": name, "selector": selector.strip()}, _ASKING)
        self._act(name, MEMBERS, 1)

    def list(self) -> None:
        """Shows the groups that have names, with their members."""
        for row in drawn_list(self._request("groups", {}, _ASKING)):
            self._console.result(row)

    def move(self, word: str, rest: str) -> frozenset[str]:
        """Does what a word of WORDS says with a group, `@GROUP [within S]`; waits until that is done.

        Returns the workers of whom it has told what became of them.
        """
        command = target(rest)
        if command is None:
            raise InvalidArgument(
                f"not a group: {rest}".removesuffix(": "),
                hint=f"`{word} @NAME`, or `{word} @ranks within 60`, of at most {MOST_WITHIN} s",
            )
        if word == "clear":
            self._request("nameGroup", {"name": command.group, "selector": ""}, _ASKING)
            self._console.event(f"@{command.group} is no name any more")
            return frozenset()
        return self._act(command.group, ACTIONS[word], command.within)

    def _act(self, group: str, action: str, within: int) -> frozenset[str]:
        arguments = {"group": group, "action": action, "within": within}
        answer = self._request("group", arguments, within + _ASKING)
        for row in drawn(answer):
            self._console.result(row)
        return frozenset(row["workerId"] for row in answer["members"])

    def _request(self, command: str, arguments: dict[str, Any], timeout: float) -> dict[str, Any]:
        return self._call(self._session.client.request(command, arguments, timeout=timeout))
