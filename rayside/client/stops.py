"""Data of a stop: user frames, variables, source, evaluated expressions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from rayside.client.events import Stop
from rayside.dap.client import Client
from rayside.dap.framing import Message
from rayside.errors import RequestFailed

_NOT_THE_USERS = re.compile(
    r"[/\\](?:site|dist)-packages[/\\](?:ray|debugpy)[/\\]|[/\\]_vendored[/\\]pydevd[/\\]"
)
# pydevd's groups of functions and classes; another group has special names such as `__doc__`.
_GROUPS = frozenset({"function variables", "class variables"})
# pydevd appends this to the name of the function that raised.
_RAISED = " (Current frame)"


@dataclass(frozen=True)
class Frame:
    """Frame of a stopped thread.

    `path` is the local file, or else the worker's own, whose text only the relay has, by `reference`. A label
    is no frame: it is a heading of the frames below.
    """

    id: int
    function: str
    path: str
    line: int
    reference: int = 0
    is_label: bool = False
    can_restart: bool = False  # the outermost frame of a failed task, which can run again

    @property
    def is_users(self) -> bool:
        """Returns whether the frame belongs neither to Ray nor to the debugger."""
        return not _NOT_THE_USERS.search(self.path)


async def frames(client: Client, stop: Stop) -> list[Frame]:
    """Returns the stack, innermost frame first, from the innermost user frame on.

    Without a user frame, this is the whole stack.

    Raises:
        RequestFailed, DebuggerGone: as `Client.request`.
    """
    body = await client.request("stackTrace", {"threadId": stop.thread_id})
    stack = [
        Frame(
            id=frame["id"],
            function=(frame.get("name") or "?").removesuffix(_RAISED),
            path=(frame.get("source") or {}).get("path") or "",
            line=frame.get("line") or 0,
            reference=(frame.get("source") or {}).get("sourceReference") or 0,
            is_label=frame.get("presentationHint") == "label",
            can_restart=frame.get("canRestart") is True,
        )
        for frame in body.get("stackFrames", [])
    ]
    for index, frame in enumerate(stack):
        if frame.is_users:
            return stack[index:]
    return stack


async def variables(client: Client, frame: Frame) -> dict[str, str]:
    """Returns the frame's local variables as `repr`, including functions and classes.

    The debugger cuts very long ones.
    """
    scopes = (await client.request("scopes", {"frameId": frame.id})).get("scopes", [])
    if not scopes:
        return {}
    listed = await _variables(client, scopes[0])
    for group in [variable for variable in listed if variable["name"] in _GROUPS]:
        listed += await _variables(client, group)
    # Names of groups and return values ("(return) f") are no Python identifiers.
    return {v["name"]: v["value"] for v in listed if v["name"].isidentifier()}


async def _variables(client: Client, parent: Message) -> list[Message]:
    """Returns DAP's Variable for each child of a scope or a variable."""
    body = await client.request("variables", {"variablesReference": parent.get("variablesReference", 0)})
    return list(body.get("variables", []))


async def evaluate(client: Client, frame: Frame, expression: str) -> str:
    """Returns the `repr` of the expression's value in that frame.

    Raises:
        RequestFailed: it raised; the message is as in `NameError: name 'y' is not defined`.
    """
    # In DAP's context `watch`, pydevd's message is just the exception; in `repl` it is a traceback.
    body = await client.request(
        "evaluate", {"expression": expression, "frameId": frame.id, "context": "watch"}
    )
    return str(body.get("result", ""))


async def execute(client: Client, frame: Frame, statement: str) -> str:
    """Runs a statement in that frame; returns the `repr` of its value, if it has one.

    Raises:
        RequestFailed: it raised; the message is the last line of the traceback.
    """
    try:
        body = await client.request(
            "evaluate", {"expression": statement, "frameId": frame.id, "context": "repl"}
        )
    except RequestFailed as error:
        raise RequestFailed(error.message.strip().splitlines()[-1], hint=error.hint) from error
    return str(body.get("result", ""))


async def source(client: Client, frame: Frame) -> str:
    """Returns the text of the frame's file; empty if it can't be read."""
    if frame.reference:
        body = await client.request(
            "source",
            {
                "source": {"path": frame.path, "sourceReference": frame.reference},
                "sourceReference": frame.reference,
            },
        )
        return str(body.get("content", ""))
    try:
        return Path(frame.path).read_text(encoding="utf-8")
    except (OSError, UnicodeError):
        return ""
