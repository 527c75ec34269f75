"""Commands of the terminal debugger for groups of tasks; the relay carries them out."""

from __future__ import annotations

from rayside.client.session import Session
from rayside.console import Console
from rayside.dap.group_commands import ACTIONS, MEMBERS, MOST_WITHIN, drawn, target
from rayside.errors import InvalidArgument
from rayside.event_loop import Call

# Words that a group may follow.
WORDS = frozenset(ACTIONS)
# Seconds that the relay may take beyond those that it waits for the members: it asks them before and after.
_ASKING = 30.0


class Groups:
    """Asks the relay, and shows its answers."""

    def __init__(self, session: Session, console: Console, call: Call) -> None:
        self._session, self._console, self._call = session, console, call

    def show(self, rest: str) -> None:
        """Shows who belongs, for `group @GROUP`. Raises InvalidArgument."""
        if not rest.removeprefix("@"):
            raise InvalidArgument("no group is named", hint="`group @ranks`, or `group @ray.rank > 3`")
        self._act(rest.removeprefix("@"), MEMBERS, 1)

    def move(self, word: str, rest: str) -> frozenset[str]:
        """Does what a word of WORDS says with a group, `@GROUP [within S]`; waits until that is done.

        Returns the workers of whom it has told what became of them.
        """
        command = target(rest)
        if command is None:
            raise InvalidArgument(
                f"not a group: {rest}".removesuffix(": "),
                hint=f"`{word} @ranks`, or `{word} @ranks within 60`, of at most {MOST_WITHIN} s",
            )
        return self._act(command.group, ACTIONS[word], command.within)

    def _act(self, group: str, action: str, within: int) -> frozenset[str]:
        arguments = {"group": group, "action": action, "within": within}
        request = self._session.client.request("group", arguments, timeout=within + _ASKING)
        answer = self._call(request)
        for row in drawn(answer):
            self._console.result(row)
        return frozenset(row["workerId"] for row in answer["members"])
