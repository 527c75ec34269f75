"""Answers an editor's requests about groups, and what is typed about one in its debug console."""

from __future__ import annotations

from bootstrap.dap import groups
from bootstrap.dap.expressions import LONGEST
from bootstrap.dap.framing import Message
from bootstrap.dap.groups import ACTIONS, MEMBERS, MOST_WITHIN, WITHIN
from bootstrap.relay.editor import Editor, Refused
from bootstrap.relay.groups import Groups
from bootstrap.relay.rules import Exact, NotDap, Number, Record, Rule, choice
from bootstrap.relay.selector import FORMS

_TEXT = Exact(LONGEST, trusted=True)
_REQUEST_ACTIONS = choice(" ".join({*ACTIONS.values(), MEMBERS}))
_USAGE = (
    "`@GROUP` shows who belongs, `@GROUP next`, `step`, `finish`, `continue` or `pause` moves them,"
    f" a GROUP is {FORMS}, or an expression"
)


class GroupRequests:
    """Answers for one debug session."""

    def __init__(self, all_groups: Groups) -> None:
        self._groups = all_groups
        self.handlers = {"group": self._group}

    async def typed(self, arguments: Message) -> str | None:
        """Returns the answer to what was typed in a debug console; None where it is not about groups.

        Raises Refused. In no language of a console a line begins with `@`, and is all there is.
        """
        text = arguments["expression"].strip()
        if arguments.get("context") != "repl" or text[:1] != "@" or "\n" in text:
            return None
        command = groups.command(text)
        if command is None:
            raise Refused(_USAGE)
        action = ACTIONS.get(command.word, MEMBERS)
        answer = await self._groups.act(command.group, action, command.within)
        return "\n".join(groups.drawn(answer))

    async def _group(self, editor: Editor, request: Message, arguments: Message) -> None:
        known = _taken(
            request,
            *("group", "action"),
            group=_TEXT,
            action=_REQUEST_ACTIONS,
            within=Number(1, MOST_WITHIN),
        )
        answer = await self._groups.act(known["group"], known["action"], known.get("within", WITHIN))
        # As with the rows of all threads: of a thousand members it is long.
        async with editor.turn:
            editor.respond(request, answer)
            await editor.taken()


def _taken(request: Message, *needs: str, **fields: Rule) -> Message:
    """Returns the arguments of a request as the rules take them. Raises Refused."""
    try:
        return Record(fields, frozenset(needs), strict=True).take(request.get("arguments") or {}, "")
    except NotDap as error:
        raise Refused(f"{request['command']}: {error}") from None
