"""Reads a stop: its frames, the user's own among them, its variables, its source, its task."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from bootstrap.debug.client import Client
from bootstrap.debug.session import Stop
from bootstrap.errors import RequestFailed

# Asks only a Ray that is loaded already: importing it into a process that isn't Ray's costs seconds.
_TASK_NAME = "__import__('sys').modules['ray'].get_runtime_context().get_task_name()"

_NOT_THE_USERS = re.compile(
    r"[/\\](?:site|dist)-packages[/\\](?:ray|debugpy)[/\\]|[/\\]_vendored[/\\]pydevd[/\\]"
)


@dataclass(frozen=True)
class Frame:
    """One frame of a stopped thread; `path` is the debuggee's own."""

    id: int
    function: str
    path: str
    line: int

    @property
    def is_users(self) -> bool:
        """Whether it is neither Ray's nor the debugger's own."""
        return not _NOT_THE_USERS.search(self.path)


async def frames(stop: Stop) -> list[Frame]:
    """The stack, innermost frame first, from the first frame that is the user's.

    All of it where none is the user's.

    Raises:
        RequestFailed, DebuggerGone: as `Client.request`.
    """
    body = await stop.attached.client.request("stackTrace", {"threadId": stop.thread_id})
    stack = [
        Frame(
            id=frame["id"],
            function=frame.get("name") or "?",
            path=(frame.get("source") or {}).get("path") or "",
            line=frame.get("line") or 0,
        )
        for frame in body.get("stackFrames", [])
    ]
    for index, frame in enumerate(stack):
        if frame.is_users:
            return stack[index:]
    return stack


async def variables(client: Client, frame: Frame) -> dict[str, str]:
    """The frame's local variables as `repr`, cut by the debugger where one is very long."""
    scopes = (await client.request("scopes", {"frameId": frame.id})).get("scopes", [])
    if not scopes:
        return {}
    body = await client.request("variables", {"variablesReference": scopes[0]["variablesReference"]})
    # What pydevd adds are groups ("special variables") and return values ("(return) f"): none of
    # them is a name.
    return {v["name"]: v["value"] for v in body.get("variables", []) if v["name"].isidentifier()}


async def evaluate(client: Client, frame: Frame, expression: str) -> str:
    """The expression's `repr` in that frame.

    Raises:
        RequestFailed: it raised; the message is as in `NameError: name 'y' is not defined`.
    """
    # In DAP's context `watch` pydevd's message is just what was raised; in `repl` it is a traceback.
    body = await client.request(
        "evaluate", {"expression": expression, "frameId": frame.id, "context": "watch"}
    )
    return str(body.get("result", ""))


async def execute(client: Client, frame: Frame, statement: str) -> str:
    """Runs a statement in that frame; the `repr` of its value where it has one.

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


async def _literal(client: Client, frame: Frame, expression: str) -> object:
    """The value of an expression that gives a literal; None where it raised."""
    try:
        # Of DAP's contexts, `clipboard` is the one whose values are never cut. It gives the repr of
        # what was raised as if it were the value, which isn't a literal.
        body = await client.request(
            "evaluate", {"expression": expression, "frameId": frame.id, "context": "clipboard"}
        )
        return ast.literal_eval(str(body.get("result", "")))
    except (RequestFailed, ValueError, SyntaxError):
        return None


async def task_name(stop: Stop, frame: Frame) -> str:
    """The Ray task that stopped, asked in the frame; what discovery said where it isn't a Ray task."""
    # Asked each time: a worker that is used again runs another task than the one discovery knew.
    name = await _literal(stop.attached.client, frame, _TASK_NAME)
    return name if isinstance(name, str) and name else stop.attached.debuggee.task


async def source(client: Client, frame: Frame) -> str:
    """The text of the frame's file as the debuggee has it; empty where it has none.

    Asked of the debuggee, for a local file may have been edited since the job was submitted.
    """
    text = await _literal(client, frame, f"''.join(__import__('linecache').getlines({frame.path!r}))")
    return text if isinstance(text, str) else ""


async def is_running(client: Client, frame: Frame) -> bool:
    """Whether any thread is still inside that frame's function; asked while the debuggee runs."""
    expression = (
        f"any(g.f_code.co_filename == {frame.path!r} and g.f_code.co_name == {frame.function!r}"
        " for f in __import__('sys')._current_frames().values()"
        " for g, _ in __import__('traceback').walk_stack(f))"
    )
    try:
        body = await client.request("evaluate", {"expression": expression, "context": "repl"})
    except RequestFailed:
        return True  # too busy to answer
    return str(body.get("result")) != "False"
