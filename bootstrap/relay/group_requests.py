"""Answers an editor's requests about groups, and what is typed about one in its debug console."""

from __future__ import annotations

from bootstrap.dap import groups
from bootstrap.dap.expressions import LONGEST
from bootstrap.dap.framing import Message
from bootstrap.dap.groups import ACTIONS, MEMBERS, MOST_WITHIN, WITHIN
from bootstrap.relay.editor import Editor, Refused
from bootstrap.relay.groups import Groups
from bootstrap.relay.rules import Exact, NotDap, Number, Record, Rule, choice

_TEXT = Exact(LONGEST, trusted=True)
_REQUEST_ACTIONS = choice(" ".join({*ACTIONS.values(), MEMBERS}))
_USAGE = (
    "`@GROUP` shows who belongs, `@GROUP next`, `step`, `finish`, `continue` or `pause` moves them,"
    " `@NAME = GROUP` names one, `@` lists those with names"
)


class GroupRequests:
    """Answers for one debug session."""

    def __init__(self, all_groups: Groups) -> None:
        self._groups = all_groups
        self.handlers = {"group": self._group, "groups": self._list, "nameGroup": self._name}

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
        if not command.group:
            return "\n".join(groups.drawn_list(await self._groups.listed()))
        if command.selector or command.word == "clear":
            self._groups.name(command.group, command.selector)
            if command.word == "clear":
                return f"@{command.group} is no name any more"
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
        await _respond(editor, request, answer)

    async def _list(self, editor: Editor, request: Message, arguments: Message) -> None:
        await _respond(editor, request, await self._groups.listed())

    async def _name(self, editor: Editor, request: Message, arguments: Message) -> None:
        known = _taken(request, "name", "selector", name=_TEXT, selector=_TEXT)
        self._groups.name(known["name"], known["selector"])
        editor.respond(request)


def _taken(request: Message, *needs: str, **fields: Rule) -> Message:
    """Returns the arguments of a request as the rules take them. Raises Refused."""
    try:
        return Record(fields, frozenset(needs), strict=True).take(request.get("arguments") or {}, "")
    except NotDap as error:
        raise Refused(f"{request['command']}: {error}") from None


async def _respond(editor: Editor, request: Message, body: Message) -> None:
    # As with the rows of all threads: of a thousand members it is long.
    async with editor.turn:
        editor.respond(request, body)
        await editor.taken()
