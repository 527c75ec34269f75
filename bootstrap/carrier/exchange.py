"""Knows of one editor's connection to the relay what is open, and says what an editor without it is told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bootstrap.dap.additions import RELAY_ENDING, RESTARTS, WAITING
from bootstrap.dap.framing import Message


class Exchange:
    """Follows what both sides say.

    Attributes:
        attached: whether the relay has let the editor attach.
        over: whether one side has said that it is the end.
    """

    def __init__(self) -> None:
        self.attached = self.over = False
        self._open: dict[int, str] = {}  # the commands without an answer, by the request's seq

    def asked(self, message: Message) -> None:
        """Notes a message of the editor."""
        seq, command = message.get("seq"), message.get("command")
        if message.get("type") == "request" and isinstance(seq, int):
            self._open[seq] = str(command)
            self.over = self.over or command == "disconnect"

    def answered(self, message: Message) -> None:
        """Notes a message of the relay."""
        if message.get("type") == "event":
            self.over = self.over or message.get("event") == "terminated"
            return
        seq = message.get("request_seq")
        command = self._open.pop(seq, "") if isinstance(seq, int) else ""
        self.attached = self.attached or (command == "attach" and message.get("success") is True)

    def unanswered(self, why: str) -> list[Message]:
        """Returns the answers to what the relay will not answer any more."""
        asked, self._open = self._open, {}
        return [_refusal(seq, command, why) for seq, command in asked.items()]

    @property
    def outlasts(self) -> bool:
        """Returns whether the editor is to keep its session if the way breaks now."""
        return self.attached and not self.over


def answer(message: Message, why: str) -> Message | None:
    """Returns the answer to a message of an editor without a relay; None where it needs none."""
    seq, command = message.get("seq"), str(message.get("command"))
    if message.get("type") != "request" or not isinstance(seq, int):
        return None
    if command != "disconnect":
        return _refusal(seq, command, why)
    arguments = message.get("arguments")
    if isinstance(arguments, dict) and arguments.get("suspendDebuggee") is True:
        return _refusal(seq, command, f"it can't be told to keep tasks stopped: {why}")
    return {"type": "response", "request_seq": seq, "command": command, "success": True}


def is_relay_ending(message: Message) -> bool:
    """Returns whether the relay says that it ends, as one does in whose place another may come."""
    return message.get("event") == "terminated" and _reason(message) == RELAY_ENDING


def waiting(text: str) -> Message:
    """Returns what tells an editor that the way is lost, and is looked for."""
    return _output(text, {"ray": {"reason": WAITING}})


def end(text: str, reason: str, *, again: bool = False) -> list[Message]:
    """Returns what ends an editor's session; with `again`, editors that know DAP's `restart` attach again."""
    body: Message = {"ray": {"reason": reason}, **({"restart": RESTARTS} if again else {})}
    return [_output(text), {"type": "event", "event": "terminated", "body": body}]


def _reason(message: Message) -> object:
    body = message.get("body")
    ray = body.get("ray") if isinstance(body, dict) else None
    return ray.get("reason") if isinstance(ray, dict) else None


def _output(text: str, more: Mapping[str, Any] | None = None) -> Message:
    return {
        "type": "event",
        "event": "output",
        "body": {"category": "console", "output": f"{text}\n", **(more or {})},
    }


def _refusal(seq: int, command: str, why: str) -> Message:
    return {
        "type": "response",
        "request_seq": seq,
        "command": command,
        "success": False,
        "message": why,
        "body": {"error": {"id": 1, "format": why, "showUser": False}},
    }
