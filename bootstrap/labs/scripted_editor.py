"""Attaches to the relay as an editor does: with hit counts and logpoints, and hears what those say.

The terminal debugger knows lines and conditions alone; a lab is about all that an editor can set.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rayside.client.session import Connect
from rayside.dap.client import Client, SourceBreakpoint
from rayside.dap.framing import Message

# DAP SourceBreakpoints by the absolute path of their file.
Points = Mapping[str, Sequence[SourceBreakpoint]]


class _Editor(Client):
    """A connection to the relay that sets `points` when it attaches."""

    points: Points

    async def attach(self, **options: Any) -> Message:
        return await super().attach(breakpoints=self.points, **options)


def connecting(
    port: int, points: Points, messages: list[dict[str, Any]], report: Callable[[str], None]
) -> Connect:
    """Returns what connects to the relay at that port of this machine.

    Into `messages` goes what logpoints say: `{"task", "line", "text"}` each, in the order they came.
    """

    async def connect(*, on_event: Callable[[Message], None]) -> Client:
        def hear(event: Message) -> None:
            body = event.get("body") or {}
            # Without `redirectOutput` nothing else that the relay sends has `data`.
            if event.get("event") == "output" and "data" in body:
                task = body["data"]["ray"]["task"]
                for line in str(body["output"]).splitlines():
                    text = line.partition(": ")[2]  # behind the task's title
                    messages.append({"task": task, "line": body.get("line"), "text": text})
                    report(f"{task} says: {text}")
            on_event(event)

        editor = await _Editor.connect("127.0.0.1", port, on_event=hear)
        editor.points = points
        return editor

    return connect
